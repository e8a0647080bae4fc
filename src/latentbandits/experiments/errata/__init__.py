"""The cost of the errors in the paper's appendix: `latentbandits reproduce errata`."""

from latentbandits.experiments.errata.experiment import ErrataExperiment

__all__ = ["ErrataExperiment"]

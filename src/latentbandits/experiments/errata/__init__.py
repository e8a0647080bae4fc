"""What the errors of the paper's appendix cost: `latentbandits reproduce errata`."""

from latentbandits.experiments.errata.experiment import ErrataExperiment

__all__ = ["ErrataExperiment"]

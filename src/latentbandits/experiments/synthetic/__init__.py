"""Section 5.1 of the paper: `latentbandits reproduce synthetic`."""

from latentbandits.experiments.synthetic.experiment import SyntheticExperiment

__all__ = ["SyntheticExperiment"]

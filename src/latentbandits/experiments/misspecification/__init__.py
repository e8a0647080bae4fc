"""The cost of a wrong model: `latentbandits reproduce misspecification`."""

from latentbandits.experiments.misspecification.experiment import MisspecificationExperiment

__all__ = ["MisspecificationExperiment"]

"""What a wrong model costs: `latentbandits reproduce misspecification`."""

from latentbandits.experiments.misspecification.experiment import MisspecificationExperiment

__all__ = ["MisspecificationExperiment"]

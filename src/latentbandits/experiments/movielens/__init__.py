"""Section 5.2 of the paper: `latentbandits reproduce movielens`."""

from latentbandits.experiments.movielens.experiment import MovieLensExperiment

__all__ = ["MovieLensExperiment"]

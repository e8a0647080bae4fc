"""Theorems 1 and 2 and Corollaries 1 and 2: `latentbandits reproduce theory`."""

from latentbandits.experiments.theory.bounds import regret_bound
from latentbandits.experiments.theory.check import check_bounds, claims
from latentbandits.experiments.theory.experiment import TheoryExperiment

__all__ = ["TheoryExperiment", "check_bounds", "claims", "regret_bound"]

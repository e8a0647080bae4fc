"""Many policies x many runs, side by side."""

from latentbandits.report.report import Estimate
from latentbandits.simulation.simulate import PolicyResult, Results, pool, simulate
from latentbandits.simulation.tune import Tuning, tune

__all__ = ["Estimate", "PolicyResult", "Results", "Tuning", "pool", "simulate", "tune"]

"""The closed loop on a real service: serve, log, relearn, promote only better candidates."""

from latentbandits.experiments.loop.experiment import LoopExperiment

__all__ = ["LoopExperiment"]

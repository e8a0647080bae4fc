"""Policies compared with the exact optimum: `latentbandits reproduce yardstick`."""

from latentbandits.experiments.yardstick.experiment import YardstickExperiment

__all__ = ["YardstickExperiment"]

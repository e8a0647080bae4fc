"""Policies beside the exact optimum of small problems: `latentbandits reproduce yardstick`."""

from latentbandits.experiments.yardstick.experiment import YardstickExperiment

__all__ = ["YardstickExperiment"]

"""The policy that `tune` chooses, compared with its candidates: `latentbandits reproduce auto`."""

from latentbandits.experiments.auto.experiment import AutoExperiment

__all__ = ["AutoExperiment"]

"""The policy that `tune` chooses, beside its candidates: `latentbandits reproduce auto`."""

from latentbandits.experiments.auto.experiment import AutoExperiment

__all__ = ["AutoExperiment"]

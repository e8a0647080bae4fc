"""A latent state that switches (the paper's conclusion): `latentbandits reproduce drift`."""

from latentbandits.experiments.drift.experiment import DriftExperiment

__all__ = ["DriftExperiment"]

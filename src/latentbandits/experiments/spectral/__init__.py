"""The error of a learned mixture by amount of data: moments, EM, and an oracle with labels."""

from latentbandits.experiments.spectral.experiment import SpectralExperiment

__all__ = ["SpectralExperiment"]

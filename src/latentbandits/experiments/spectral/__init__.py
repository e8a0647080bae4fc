"""How the error of a learned mixture falls with the data: moments, EM, and who knows the labels."""

from latentbandits.experiments.spectral.experiment import SpectralExperiment

__all__ = ["SpectralExperiment"]

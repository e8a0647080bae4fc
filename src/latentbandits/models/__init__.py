"""What was learned offline: frozen values, each with its own uncertainty."""

from latentbandits.models.artefacts import ArtefactError, load, load_catalogue, save
from latentbandits.models.catalogue import Catalogue
from latentbandits.models.gaussian_arms import GaussianArms
from latentbandits.models.linear_gaussian import LinearGaussian
from latentbandits.models.protocol import Context, KnownModel, Model

__all__ = [
    "ArtefactError",
    "Catalogue",
    "Context",
    "GaussianArms",
    "KnownModel",
    "LinearGaussian",
    "Model",
    "load",
    "load_catalogue",
    "save",
]

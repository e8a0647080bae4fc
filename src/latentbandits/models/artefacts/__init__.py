"""Save and load models as safetensors with a checksummed manifest."""

from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.artefacts.files import ArtefactError, load, load_catalogue, save

__all__ = ["ArtefactError", "Catalogue", "load", "load_catalogue", "save"]

"""Models: frozen values that were learned offline, each with its own uncertainty.

The models themselves are listed in `families`; the registry also knows the models of other
packages. A model's class holds its conjugate mathematics (likelihood, predictive density,
posterior, sampler); `beliefs` holds what is the same for all models. So a new reward family is one
class in one file, and no policy is written again for it.
"""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.models.arms.gaussian import GaussianArms as GaussianArms
from latentbandits.models.linear.gaussian import LinearGaussian as LinearGaussian
from latentbandits.models.protocol import Context as Context
from latentbandits.models.protocol import KnownModel as KnownModel
from latentbandits.models.protocol import Model as Model

if TYPE_CHECKING:
    from latentbandits.models.artefacts import ArtefactError as ArtefactError
    from latentbandits.models.artefacts import Catalogue as Catalogue
    from latentbandits.models.artefacts import load as load
    from latentbandits.models.artefacts import load_catalogue as load_catalogue
    from latentbandits.models.artefacts import save as save
    from latentbandits.models.families import *  # noqa: F403
    from latentbandits.models.registry import register as register

_MODULES = {
    "ArtefactError": "latentbandits.models.artefacts",
    "Catalogue": "latentbandits.models.artefacts",
    "load": "latentbandits.models.artefacts",
    "load_catalogue": "latentbandits.models.artefacts",
    "save": "latentbandits.models.artefacts",
    "register": "latentbandits.models.registry",
}
__getattr__, __dir__ = lazy_exports(
    __name__, _MODULES, "latentbandits.models.families", eager=("Context", "KnownModel", "Model")
)

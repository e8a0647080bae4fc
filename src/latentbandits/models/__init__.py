"""What was learned offline: frozen values, each with its own uncertainty."""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.protocol import Context, KnownModel, Model

if TYPE_CHECKING:
    from latentbandits.models.arms.bernoulli import BernoulliArms
    from latentbandits.models.arms.categorical import CategoricalArms
    from latentbandits.models.arms.exponential import ExponentialArms
    from latentbandits.models.arms.gaussian_unknown_noise import GaussianArmsUnknownNoise
    from latentbandits.models.arms.poisson import PoissonArms
    from latentbandits.models.artefacts.catalogue import Catalogue
    from latentbandits.models.artefacts.files import ArtefactError, load, load_catalogue, save
    from latentbandits.models.composed.ensemble import Ensemble
    from latentbandits.models.composed.function import FunctionModel
    from latentbandits.models.composed.markov import Markov
    from latentbandits.models.composed.particles import Particles
    from latentbandits.models.linear.gaussian_unknown_noise import LinearGaussianUnknownNoise
    from latentbandits.models.linear.logistic import LogisticLinear

__all__ = [
    "ArtefactError",
    "BernoulliArms",
    "Catalogue",
    "CategoricalArms",
    "Context",
    "Ensemble",
    "ExponentialArms",
    "FunctionModel",
    "GaussianArms",
    "GaussianArmsUnknownNoise",
    "KnownModel",
    "LinearGaussian",
    "LinearGaussianUnknownNoise",
    "LogisticLinear",
    "Markov",
    "Model",
    "Particles",
    "PoissonArms",
    "load",
    "load_catalogue",
    "save",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ArtefactError": "latentbandits.models.artefacts.files",
        "load": "latentbandits.models.artefacts.files",
        "load_catalogue": "latentbandits.models.artefacts.files",
        "save": "latentbandits.models.artefacts.files",
        "Catalogue": "latentbandits.models.artefacts.catalogue",
        "BernoulliArms": "latentbandits.models.arms.bernoulli",
        "CategoricalArms": "latentbandits.models.arms.categorical",
        "Ensemble": "latentbandits.models.composed.ensemble",
        "ExponentialArms": "latentbandits.models.arms.exponential",
        "FunctionModel": "latentbandits.models.composed.function",
        "GaussianArmsUnknownNoise": "latentbandits.models.arms.gaussian_unknown_noise",
        "LinearGaussianUnknownNoise": "latentbandits.models.linear.gaussian_unknown_noise",
        "LogisticLinear": "latentbandits.models.linear.logistic",
        "Markov": "latentbandits.models.composed.markov",
        "Particles": "latentbandits.models.composed.particles",
        "PoissonArms": "latentbandits.models.arms.poisson",
    },
)

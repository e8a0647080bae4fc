"""What was learned offline: frozen values, each with its own uncertainty."""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.models.gaussian_arms import GaussianArms
from latentbandits.models.linear_gaussian import LinearGaussian
from latentbandits.models.protocol import Context, KnownModel, Model

if TYPE_CHECKING:
    from latentbandits.models.artefacts import ArtefactError, load, load_catalogue, save
    from latentbandits.models.bernoulli_arms import BernoulliArms
    from latentbandits.models.catalogue import Catalogue
    from latentbandits.models.categorical_arms import CategoricalArms
    from latentbandits.models.ensemble import Ensemble
    from latentbandits.models.exponential_arms import ExponentialArms
    from latentbandits.models.function_model import FunctionModel
    from latentbandits.models.gaussian_arms_unknown_noise import GaussianArmsUnknownNoise
    from latentbandits.models.linear_gaussian_unknown_noise import LinearGaussianUnknownNoise
    from latentbandits.models.logistic_linear import LogisticLinear
    from latentbandits.models.markov import Markov
    from latentbandits.models.particles import Particles
    from latentbandits.models.poisson_arms import PoissonArms

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
        "ArtefactError": "latentbandits.models.artefacts",
        "load": "latentbandits.models.artefacts",
        "load_catalogue": "latentbandits.models.artefacts",
        "save": "latentbandits.models.artefacts",
        "Catalogue": "latentbandits.models.catalogue",
        "BernoulliArms": "latentbandits.models.bernoulli_arms",
        "CategoricalArms": "latentbandits.models.categorical_arms",
        "Ensemble": "latentbandits.models.ensemble",
        "ExponentialArms": "latentbandits.models.exponential_arms",
        "FunctionModel": "latentbandits.models.function_model",
        "GaussianArmsUnknownNoise": "latentbandits.models.gaussian_arms_unknown_noise",
        "LinearGaussianUnknownNoise": "latentbandits.models.linear_gaussian_unknown_noise",
        "LogisticLinear": "latentbandits.models.logistic_linear",
        "Markov": "latentbandits.models.markov",
        "Particles": "latentbandits.models.particles",
        "PoissonArms": "latentbandits.models.poisson_arms",
    },
)

"""What was learned offline: frozen values, each with its own uncertainty."""

from latentbandits.models.artefacts import ArtefactError, load, load_catalogue, save
from latentbandits.models.bernoulli_arms import BernoulliArms
from latentbandits.models.catalogue import Catalogue
from latentbandits.models.categorical_arms import CategoricalArms
from latentbandits.models.ensemble import Ensemble
from latentbandits.models.exponential_arms import ExponentialArms
from latentbandits.models.function_model import FunctionModel
from latentbandits.models.gaussian_arms import GaussianArms
from latentbandits.models.gaussian_arms_unknown_noise import GaussianArmsUnknownNoise
from latentbandits.models.linear_gaussian import LinearGaussian
from latentbandits.models.linear_gaussian_unknown_noise import LinearGaussianUnknownNoise
from latentbandits.models.logistic_linear import LogisticLinear
from latentbandits.models.markov import Markov
from latentbandits.models.particles import Particles
from latentbandits.models.poisson_arms import PoissonArms
from latentbandits.models.protocol import Context, KnownModel, Model

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

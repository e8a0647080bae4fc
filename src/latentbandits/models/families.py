"""The models that the library brings along: one import line for each.

`latentbandits.models` and `latentbandits` export every name below, and the registry knows it. A
module is imported when one of its names is first used.
"""

from latentbandits.models.arms.dirichlet import BernoulliArms as BernoulliArms
from latentbandits.models.arms.dirichlet import CategoricalArms as CategoricalArms
from latentbandits.models.arms.gamma import ExponentialArms as ExponentialArms
from latentbandits.models.arms.gamma import PoissonArms as PoissonArms
from latentbandits.models.arms.gaussian import GaussianArms as GaussianArms
from latentbandits.models.arms.gaussian import GaussianArmsUnknownNoise as GaussianArmsUnknownNoise
from latentbandits.models.arms.hurdle import HurdleGammaArms as HurdleGammaArms
from latentbandits.models.arms.hurdle import HurdleLogNormalArms as HurdleLogNormalArms
from latentbandits.models.clicks import PositionClicks as PositionClicks
from latentbandits.models.composed.ensemble import Ensemble as Ensemble
from latentbandits.models.composed.function import FunctionModel as FunctionModel
from latentbandits.models.composed.markov import Markov as Markov
from latentbandits.models.composed.transformed import Log1pRewards as Log1pRewards
from latentbandits.models.composed.transformed import SqrtRewards as SqrtRewards
from latentbandits.models.linear.gaussian import LinearGaussian as LinearGaussian
from latentbandits.models.linear.gaussian import (
    LinearGaussianUnknownNoise as LinearGaussianUnknownNoise,
)
from latentbandits.models.linear.logistic import LogisticLinear as LogisticLinear

"""Latent bandits: learn offline who your users can be, find out online which one this is.

>>> from latentbandits import GaussianArms, mmTS
>>> import numpy as np
>>> policy = mmTS(GaussianArms(means=[[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
>>> belief, rng = policy.init(n_sessions=1), np.random.default_rng(0)
>>> decision = policy.decide(belief, None, rng)
>>> belief = policy.update(belief, None, decision, reward=[0.9])
"""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.models import (
    GaussianArms,
    LinearGaussian,
)
from latentbandits.policies import (
    EXP4,
    TS,
    UCB1,
    Agent,
    Decision,
    Discounted,
    LinTS,
    LinUCB,
    Policy,
    SlidingWindow,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)

if TYPE_CHECKING:
    from latentbandits.models import (
        ArtefactError,
        BernoulliArms,
        CategoricalArms,
        Ensemble,
        ExponentialArms,
        FunctionModel,
        GaussianArmsUnknownNoise,
        LinearGaussianUnknownNoise,
        LogisticLinear,
        Markov,
        Particles,
        PoissonArms,
        load,
        save,
    )
    from latentbandits.simulation import simulate

__version__ = "0.1.0"

__all__ = [
    "EXP4",
    "TS",
    "UCB1",
    "Agent",
    "ArtefactError",
    "BernoulliArms",
    "CategoricalArms",
    "Decision",
    "Discounted",
    "Ensemble",
    "ExponentialArms",
    "FunctionModel",
    "GaussianArms",
    "GaussianArmsUnknownNoise",
    "LinTS",
    "LinUCB",
    "LinearGaussian",
    "LinearGaussianUnknownNoise",
    "LogisticLinear",
    "Markov",
    "Particles",
    "PoissonArms",
    "Policy",
    "SlidingWindow",
    "load",
    "mIDS",
    "mTS",
    "mUCB",
    "mmGreedy",
    "mmIDS",
    "mmTS",
    "mmUCB",
    "save",
    "simulate",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ArtefactError": "latentbandits.models",
        "load": "latentbandits.models",
        "save": "latentbandits.models",
        "BernoulliArms": "latentbandits.models",
        "CategoricalArms": "latentbandits.models",
        "Ensemble": "latentbandits.models",
        "ExponentialArms": "latentbandits.models",
        "FunctionModel": "latentbandits.models",
        "GaussianArmsUnknownNoise": "latentbandits.models",
        "LinearGaussianUnknownNoise": "latentbandits.models",
        "LogisticLinear": "latentbandits.models",
        "Markov": "latentbandits.models",
        "Particles": "latentbandits.models",
        "PoissonArms": "latentbandits.models",
        "simulate": "latentbandits.simulation",
    },
)

"""Latent bandits: learn offline who your users can be, find out online which one this is.

>>> from latentbandits import GaussianArms, mmTS
>>> import numpy as np
>>> policy = mmTS(GaussianArms(means=[[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
>>> belief, rng = policy.init(n_sessions=1), np.random.default_rng(0)
>>> decision = policy.decide(belief, None, rng)
>>> belief = policy.update(belief, None, decision, reward=[0.9])
"""

from latentbandits.models import (
    ArtefactError,
    BernoulliArms,
    CategoricalArms,
    Ensemble,
    ExponentialArms,
    FunctionModel,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LogisticLinear,
    Markov,
    Particles,
    PoissonArms,
    load,
    save,
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

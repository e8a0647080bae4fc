"""Which policy a session gets, and how likely its decisions are said to be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.names import one_of
from latentbandits.policies import (
    EXP4,
    TS,
    UCB1,
    Decision,
    LinTS,
    LinUCB,
    Uniform,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)
from latentbandits.policies.checked import CheckedPolicy
from latentbandits.policies.thompson import JointThompson
from latentbandits.serving.records import Arm

PropensityMode = Literal["counted", "policy", "none"]
AnyChecked = CheckedPolicy[Any]

_ON_MODEL: Mapping[str, Callable[[Any], AnyChecked]] = {
    "mmTS": mmTS,
    "mTS": mTS,
    "mmUCB": mmUCB,
    "mUCB": mUCB,
    "mmIDS": mmIDS,
    "mIDS": mIDS,
    "mmGreedy": mmGreedy,
    "EXP4": EXP4,
    "uniform": Uniform,
}
_ON_ACTIONS: Mapping[str, Callable[[Any], AnyChecked]] = {
    "UCB1": lambda model: UCB1(model.n_actions),
    "TS": lambda model: TS(model.n_actions, model.noise),
}
_ON_FEATURES: Mapping[str, Callable[[Any], AnyChecked]] = {
    "LinUCB": lambda model: LinUCB(model.n_features),
    "LinTS": lambda model: LinTS(model.n_features, model.noise),
}
POLICIES = (*_ON_MODEL, *_ON_ACTIONS, *_ON_FEATURES)


def make_policy(name: str, model: Any) -> AnyChecked:
    """The policy of this name on `model`; ValueError where they do not go together."""
    one_of("policy", name, POLICIES)
    if name in _ON_MODEL:
        return _ON_MODEL[name](model)
    if name in _ON_ACTIONS:
        if model.n_actions is None:
            raise ValueError(f"{name} needs a model with a fixed set of actions; try LinUCB, LinTS")
        return _ON_ACTIONS[name](model)
    if model.n_actions is not None:
        raise ValueError(f"{name} needs a model whose actions have features; try UCB1 or TS")
    return _ON_FEATURES[name](model)


def arm_of(session: str, salt: bytes, holdout_share: float) -> Arm:
    """The share of sessions that is held out: by a salted hash, so the same in every process.

    >>> arm_of("ann", b"salt", 0.0), arm_of("ann", b"salt", 1.0)
    ('policy', 'holdout')
    """
    digest = hashlib.blake2b(session.encode(), digest_size=8, key=salt[:64]).digest()
    return "holdout" if int.from_bytes(digest, "big") < holdout_share * 2.0**64 else "policy"


class Propensities:
    """How the chance of a chosen action is found.

    counted: in closed form where there is one, else by `draws` more decisions of the same belief.
    policy: as the policy itself does it, which for mmTS without features is an integral, exact to
    1e-6 and milliseconds long. none: not at all.
    """

    def __init__(self, mode: PropensityMode, draws: int) -> None:
        self._mode = mode
        self._draws = draws

    def decide(
        self,
        policy: AnyChecked,
        belief: Any,
        context: FloatArray | None,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> tuple[Decision, float | None, str]:
        """A decision for a batch of one session, its propensity, and the kind of that."""
        if self._mode == "counted" and isinstance(policy, JointThompson):
            decision = policy.decide_counting(belief, context, rng, self._draws, eligible=eligible)
        else:
            decision = policy.decide(
                belief, context, rng, eligible=eligible, propensity=self._mode != "none"
            )
        if decision.propensity is None:
            return decision, None, "none"
        return decision, float(decision.propensity[0]), decision.propensity_kind

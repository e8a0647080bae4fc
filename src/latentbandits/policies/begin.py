"""The belief of sessions whose users have attributes: P1(s | z) in place of P1(s).

Attributes change the prior of the state alone, and the posterior is prior times likelihood. So a
belief that keeps log weights of the states is shifted by log P1(s | z) - log P1(s), once, when the
session begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentbandits.models.attributes.columns import Row
from latentbandits.models.attributes.gate import Gate
from latentbandits.models.attributes.parts import part
from latentbandits.policies.protocol import AnyPolicy


def begin(policy: AnyPolicy, users: Sequence[Row | None]) -> Any:
    """Return the belief of new sessions, one for each user; None: nothing is known of the user.

    Policies that keep no posterior over states (mUCB, UCB1, LinTS, ...) and models without a gate
    begin with `policy.init`.

    >>> import numpy as np
    >>> from latentbandits import GaussianArms, mTS
    >>> from latentbandits.models.attributes.columns import Category
    >>> from latentbandits.models.attributes.columns import Encoder
    >>> from latentbandits.models.attributes.parts import with_parts
    >>> encoder = Encoder((Category("country", ("AT", "DE"), (0.5, 0.5)),))
    >>> gate = Gate(encoder, np.array([[0.0, 2.0], [0.0, -2.0]]), ())
    >>> model = with_parts(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), gate=gate)
    >>> belief = begin(mTS(model), [{"country": "DE"}, None])
    >>> mTS(model).state_probabilities(belief).round(2)
    array([[0.88, 0.12],
           [0.5 , 0.5 ]])
    """
    belief = policy.init(len(users))
    model, gate = policy.model_or_none, gate_of(policy)
    if model is None or gate is None or not any(users):
        return belief
    average = model.log_state_prior
    return policy.shift_state_prior(belief, gate.log_prior(users, average) - average)


def gate_of(policy: AnyPolicy) -> Gate | None:
    """Return the gate of a policy's model; None if there is none."""
    gate: Gate | None = part(policy.model_or_none, "gate")
    return gate

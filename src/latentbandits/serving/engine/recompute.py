"""Recompute a logged decision from its id and the earlier part of the log."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from latentbandits.serving.engine.actions import decode_names
from latentbandits.serving.engine.engine import Engine, answer_of
from latentbandits.serving.engine.ids import parse_decision_id
from latentbandits.serving.engine.open_session import Live, first_belief, state_probabilities
from latentbandits.serving.engine.replay import replay
from latentbandits.serving.engine.values import Decided, DecisionRequest
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import FALLBACK


def recompute(engine: Engine, decision_id: str) -> Decided:
    """Return the same action, propensity and state probabilities as when it was made.

    Floats agree to 1e-12: rewards of merged sessions may be learned in another order.

    Needs an engine with the policy and the propensity settings of that time, in a transaction.
    """
    order, token = parse_decision_id(decision_id)
    row = engine.decision(order, token, decision_id)
    session = engine.store.session(row.session)
    served = engine.library.served(row.model)
    group = served.of_group(row.group)
    policy = group.policy
    if session is None or row.policy not in (group.text, policy.name, FALLBACK):
        raise Invalid(f"{decision_id} was decided by {row.policy}; this engine has {group.text}")
    known = engine.store.applied(row.session, merged=session.members > 0, before=order)
    features: Any = None
    if row.features is not None:
        features = np.frombuffer(row.features).reshape(row.n_actions, -1).tolist()
    named = decode_names(row.actions)
    actions = (named.actions or ()) if features is None else ()
    if any(served.lacks(one.decision) for one in known) or not all(map(served.space.has, actions)):
        served = engine.library.grown(row.model, before=order)
        group = served.of_group(row.group)
    start = first_belief(group.policy, session)
    belief = replay(group, served.id, served.space, known, start)
    then = msgspec.structs.replace(session, rounds=row.round - 1, model=row.model, group=row.group)
    states = state_probabilities(group.policy, belief)[0]
    live = Live(then, served, group, belief, states, len(known))
    request = DecisionRequest(
        session.name,
        named.actions,
        features,
        default=row.action if row.policy == FALLBACK else None,
        exclude=named.exclude,
        user=named.user,
    )
    again = engine.decisions.again(live, request, order, token, row.time)
    return answer_of(again, live.probabilities, is_new=again.action in served.space.new)

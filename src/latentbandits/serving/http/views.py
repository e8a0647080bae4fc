"""Rows as people and programs outside see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from latentbandits.policies.protocol import policy_name
from latentbandits.serving.engine.library import ActionNames, ServedModel
from latentbandits.serving.engine.orders import decision_id, time_of
from latentbandits.serving.engine.sessions import Live, floats
from latentbandits.serving.http.messages import Event, LogEntry, ModelView, SessionView
from latentbandits.serving.records import DecisionRow, LoggedDecision

_decode_names = msgspec.json.Decoder(list[str]).decode


def seconds(order: int) -> float:
    return time_of(order) / 1000


def describe(belief: Any) -> dict[str, Any]:
    """The arrays of a belief, by name, for its one session.

    A square root of a covariance is shown as that covariance: the root depends on the order of
    rewards, what it stands for does not.
    """
    shown: dict[str, Any] = {}
    names = getattr(belief, "_fields", None) or [str(i) for i in range(len(belief))]
    for name, value in zip(names, belief, strict=True):
        if isinstance(value, tuple):
            shown[name] = describe(value)
        elif name == "factor":
            shown["covariance"] = (value[0] @ value[0].swapaxes(-1, -2)).tolist()
        else:
            shown[name] = _finite(value[0])
    return shown


def _finite(values: Any) -> Any:
    """JSON has no infinities: the log weight of an impossible state is null."""
    array = np.asarray(values)
    if np.isfinite(array).all():
        return array.tolist()
    return np.where(np.isfinite(array), array, np.array(None)).tolist()


def event_fields(row: DecisionRow) -> dict[str, Any]:
    return {
        "decision_id": decision_id(row.order, row.token),
        "round": row.round,
        "time": seconds(row.order),
        "model": row.model,
        "arm": row.arm,
        "policy": row.policy,
        "action": row.action,
        "index": row.index,
        "propensity": row.propensity,
        "propensity_kind": row.propensity_kind,
        "state_probabilities": floats(row.probabilities),
        "reward": row.reward,
        "reward_status": row.reward_status,
        "reward_time": None if row.reward_order is None else seconds(row.reward_order),
    }


def session_view(live: Live, rows: Sequence[DecisionRow]) -> SessionView:
    row = live.row
    return SessionView(
        session=row.name,
        arm=row.arm,
        policy=policy_name(live.policy),
        model=row.model,
        round=row.rounds,
        rewards=row.rewards,
        mean_reward=row.reward_sum / row.rewards if row.rewards else None,
        started=seconds(row.key),
        seen=row.seen / 1000,
        state_probabilities=live.probabilities,
        belief=describe(live.belief),
        history=[Event(**event_fields(decision)) for decision in rows],
    )


def log_entry(logged: LoggedDecision, names: ActionNames) -> LogEntry:
    """A decision with its eligible actions by name and the features it was made from."""
    row = logged.row
    features = None
    if row.features is not None:
        features = np.frombuffer(row.features).reshape(row.n_actions, -1).tolist()
    if row.actions is not None:
        eligible = _decode_names(row.actions)
    else:
        known = names.of(row.model) if row.features is None else None
        eligible = [str(i) for i in range(row.n_actions)] if known is None else list(known)
    return LogEntry(
        **event_fields(row),
        session=logged.session_name,
        eligible=eligible,
        features=features,
        cursor=f"{row.order:016x}",
    )


def model_view(served: ServedModel, *, active: bool) -> ModelView:
    return ModelView(
        id=served.id,
        name=served.name,
        kind=type(served.model).__name__,
        active=active,
        n_states=served.model.n_states,
        n_actions=None if served.space.names is None else len(served.space.names),
        n_features=getattr(served.model, "n_features", None),
    )

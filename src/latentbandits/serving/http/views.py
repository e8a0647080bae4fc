"""Sessions and models as answers of the service."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from latentbandits.policies.protocol import policy_name
from latentbandits.serving.engine.engine import SessionDetails
from latentbandits.serving.engine.library import ModelSummary
from latentbandits.serving.engine.live import Live, decode_user
from latentbandits.serving.http.messages import Event, ModelView, SessionView
from latentbandits.serving.log import event_fields

SHOWN = 20_000
"""Numbers of an array of a belief that are shown: it bounds the answer."""


def describe(belief: Any) -> dict[str, Any]:
    """Return the arrays of a belief, by name, for its one session.

    An array of more than SHOWN numbers is not shown: {"shape": [...]} stands for it. A square root
    of a covariance is shown as that covariance: the root depends on the order of rewards, the
    covariance does not.
    """
    shown: dict[str, Any] = {}
    names = getattr(belief, "_fields", None) or [str(i) for i in range(len(belief))]
    for name, value in zip(names, belief, strict=True):
        if isinstance(value, tuple):
            shown[name] = describe(value)
        elif name == "factor":
            small = value[0].size <= SHOWN
            covariance = value[0] @ value[0].swapaxes(-1, -2) if small else value[0]
            shown["covariance"] = _finite(covariance)
        else:
            shown[name] = _finite(value[0])
    return shown


def _finite(values: Any) -> Any:
    """Return an array as JSON takes it; the log weight of an impossible state is null."""
    array = np.asarray(values)
    if array.size > SHOWN:
        return {"shape": list(array.shape)}
    if np.isfinite(array).all():
        return array.tolist()
    return np.where(np.isfinite(array), array, np.array(None)).tolist()


def session_view(details: SessionDetails) -> SessionView:
    """Return a session as `GET /v1/sessions/{id}` answers."""
    return view_with(details.live, events_of(details))


def events_of(details: SessionDetails) -> list[Event]:
    """Return the decisions of a session as its history shows them."""
    return [
        Event(**event_fields(one.decision, one.reward, is_new=is_new))
        for one, is_new in zip(details.decisions, details.of_new_actions, strict=True)
    ]


def view_with(live: Live, history: list[Event]) -> SessionView:
    """Return a session with this history."""
    row = live.row
    return SessionView(
        session=row.name,
        group=row.group,
        policy=policy_name(live.policy),
        model=row.model,
        round=row.rounds,
        rewards=row.rewards,
        mean_reward=row.reward_sum / row.rewards if row.rewards else None,
        started=row.started / 1000,
        seen=row.seen / 1000,
        state_probabilities=live.probabilities,
        belief=describe(live.belief),
        history=history,
        user_features=decode_user(row.user_features),
    )


def model_view(model_id: str, name: str, summary: ModelSummary, *, active: bool) -> ModelView:
    """Return a model from the summary that its row has."""
    return ModelView(id=model_id, name=name, active=active, **msgspec.structs.asdict(summary))

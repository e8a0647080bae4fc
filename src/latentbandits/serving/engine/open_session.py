"""A session under way: its row, its model, and its belief."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from latentbandits.policies.begin import begin, gate_of
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.serving.engine.served_models import GroupPolicy, ServedModel
from latentbandits.serving.errors import Conflict, Damaged
from latentbandits.serving.records import DecisionRow, SessionRow


class Live(NamedTuple):
    """A session with its belief, which holds the first `learned` of its rewards.

    `served` is the session's model, or that model grown by actions that it lacks.
    """

    row: SessionRow
    served: ServedModel
    group: GroupPolicy
    belief: Any
    probabilities: list[float]
    learned: int = 0
    learned_to: int = -1  # `applies_at` of the last learned reward
    played_new: bool = False  # some learned rewards are of actions that the model lacks

    @property
    def policy(self) -> AnyPolicy:
        """The policy of the session's group."""
        return self.group.policy

    def with_belief(
        self,
        row: SessionRow,
        belief: Any,
        probabilities: list[float],
        learned: int,
        learned_to: int,
        played: Iterable[DecisionRow] = (),
    ) -> Live:
        """Return the session with this belief, which learned from the decisions `played` too."""
        new = self.served.space.new
        return Live(
            row,
            self.served,
            self.group,
            belief,
            probabilities,
            learned,
            learned_to,
            self.played_new or (bool(new) and any(one.action in new for one in played)),
        )

    def with_row(self, row: SessionRow) -> Live:
        """Return the session with another row and the same belief."""
        return Live(row, *self[1:])  # faster than _replace

    def fits(self, row: SessionRow) -> bool:
        """Return whether this belief, with the rewards that came since, is that of `row`."""
        mine = self.row
        return mine.model == row.model and mine.revision == row.revision


def state_probabilities(policy: AnyPolicy, belief: Any, n: int = 1) -> list[list[float]]:
    """Return P(s) of `n` sessions; one certain state where the policy does not give them."""
    probabilities = policy.state_probabilities(belief)
    if probabilities is None:
        return [[1.0]] * n
    rows: list[list[float]] = probabilities.tolist()
    return rows


def first_belief(policy: AnyPolicy, row: SessionRow) -> Any:
    """Return the belief of a session without rewards: the prior given its user's attributes.

    Attributes that this model's gate lacks, after a change of models, are left out.
    """
    user = decode_user(row.user_features)
    gate = None if user is None else gate_of(policy)
    if user is None or gate is None:
        return policy.init(1)
    known = {name: value for name, value in user.items() if name in gate.names}
    try:
        return begin(policy, [known])
    except ValueError:  # a value has another type than this gate expects
        return policy.init(1)


encode_user = msgspec.json.Encoder(order="sorted").encode


def decode_user(data: bytes | None) -> dict[str, Any] | None:
    """Return the attributes of a session's user, by name."""
    return None if data is None else msgspec.json.decode(data, type=dict[str, Any])


def check_same_user(row: SessionRow, user: Mapping[str, Any]) -> None:
    """Refuse other attributes of the user than those that the session began with."""
    if row.user_features != encode_user(user):
        began = row.user_features.decode() if row.user_features else "none"
        raise Conflict(
            f"session {row.name!r} began with the user_features {began}, which hold for the whole "
            "session: send the same ones, or leave them out"
        )


def too_short(row: SessionRow) -> Damaged:
    """Return the error of a session whose log has fewer or more rewards than its row says."""
    return Damaged(
        f"session {row.name!r} states {row.rewards} rewards, but its log has others: rows of it "
        "are lost or damaged (`latentbandits check` tells more)"
    )


def floats(data: bytes) -> list[float]:
    """Return the numbers that `as_bytes` turned into these bytes."""
    return array("d", data).tolist()


def as_bytes(values: list[float]) -> bytes:
    """Return numbers as float64 bytes."""
    return array("d", values).tobytes()

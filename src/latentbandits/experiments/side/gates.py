"""The value of users' attributes in round 1, on generated logs with known effects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

COLUMNS = ("country", "age", "device")
USELESS = ("device",)
"""Attributes of `generate_attributed`; the device is independent of the user's state."""

_NEW_USERS = 5_000


class GateJob(NamedTuple):
    """The fit of a gate to a log of users with `n_rows` rows each."""

    n_users: int
    n_rows: int
    columns: tuple[str, ...]
    seed: int


class RoundOne(NamedTuple):
    """Mean true reward of new users in round 1, with the action of highest estimated reward."""

    without: float  # the same best action for everybody
    gated: float  # with the learned model and gate
    best: float  # with the true means and the true P(s | z)
    untold: float  # with a model learned from the same log without attributes


def play_gate(job: GateJob) -> RoundOne:
    """Fit a log with user attributes, and play round 1 with new users."""
    from latentbandits.learning import fit
    from latentbandits.learning.side.generate import generate_attributed, round_one

    truth = generate_attributed(job.n_users, job.n_rows, seed=job.seed)
    model, untold = (
        fit(truth.table, user_features=columns, states=4, bootstrap=0).model
        for columns in (job.columns, ())
    )
    users = truth.users(_NEW_USERS, seed=job.seed + 1_000_003)
    known = [{name: user[name] for name in job.columns} for user in users]
    prior = model.gate.log_prior(known, model.log_state_prior)
    without, gated, best = round_one(truth, prior, model.expected_rewards(None)[0], users)
    average = np.repeat(untold.log_state_prior, len(users), axis=0)
    _, same, _ = round_one(truth, average, untold.expected_rewards(None)[0], users)
    return RoundOne(without, gated, best, same)

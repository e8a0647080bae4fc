"""Choose between kinds of model: arms, or linear in vectors of users and actions.

Both learn from the same users. They are compared on the same held-out users, by the log probability
of each user's rewards given the earlier ones and, if that does not decide, by the rewards that
`mmGreedy` earns in replay. Arms are chosen unless a difference is clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms.families import cells_of_values
from latentbandits.learning.assess import replay as replays
from latentbandits.learning.backends.backend import summary_of
from latentbandits.learning.fit_options import Form
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import Selection, clearly_below, judge
from latentbandits.policies.latent.bayes_ucb import mmGreedy
from latentbandits.report.report import Estimate

MOST_USERS = 200
"""The number of held-out users, sampled by hash, that are replayed."""

_CLEAR = 2.0  # paired standard errors


@dataclass(frozen=True, eq=False)
class KindChoice:
    """The chosen kind of model, and its comparison with the other kind."""

    chosen: Form
    other: Form
    evidence: Estimate  # log probability of a user's rewards: that of the chosen less the other's
    replayed: Estimate | None  # reward of a round, likewise; None: nothing was replayed
    rounds: int
    log_probability: Mapping[Form, float]  # of a held-out reward, in nats

    @property
    def sentence(self) -> str:
        """The comparison in one line."""
        line = (
            f"{self.chosen}: the log probability of a held-out user's rewards is "
            f"{self.evidence:+} nats compared with {self.other}"
        )
        if self.replayed is None:
            return line
        return f"{line}, and mmGreedy earns {self.replayed:+} a round in rounds 1-{self.rounds}"

    def report(self) -> dict[str, Any]:
        """Return the choice as plain data for report.json."""
        replayed = self.replayed
        return {
            "chosen": self.chosen,
            "sentence": self.sentence,
            "over": self.other,
            "nats_per_user": self.evidence.mean,
            "nats_per_user_stderr": self.evidence.stderr,
            "log_probability": dict(self.log_probability),
            "replay": None if replayed is None else replayed.mean,
            "replay_stderr": None if replayed is None else replayed.stderr,
            "rounds": self.rounds,
        }


def choose_kind(arms: Selection, linear: Selection, held_out: Log, seed: int) -> KindChoice:
    """Choose between the best model of arms and the best linear model of the same users.

    The kind whose held-out rewards are clearly more probable is chosen; if none is, the one that
    clearly earns more in replay; otherwise arms. Only actions that both models know are compared.
    """
    known = (arms.learned.counts > 0) & (linear.learned.counts > 0)
    log = held_out.of_events(known[held_out.actions])
    rewards = summary_of(log).rewards
    cells = cells_of_values(rewards.values, rewards.off_lattice)
    of_arms, of_linear = (judge(one.learned, log, cells) for one in (arms, linear))
    without, given = of_arms.log_probability_by_user(), of_linear.log_probability_by_user()
    lead, replayed, rounds = Estimate.from_values(given - without), None, 0
    better = clearly_below(without, given, _CLEAR)
    if not better and not clearly_below(given, without, _CLEAR):
        replayed, rounds = _replayed(arms, linear, log, seed)
        better = replayed is not None and replayed.mean > _CLEAR * replayed.stderr
    if not better:
        lead = Estimate(-lead.mean, lead.stderr)
        replayed = None if replayed is None else Estimate(-replayed.mean, replayed.stderr)
    chosen: Form = "linear" if better else "arms"
    other: Form = "arms" if better else "linear"
    n = len(of_arms.reward)
    means: dict[Form, float] = {"arms": without.sum() / n, "linear": given.sum() / n}
    return KindChoice(chosen, other, lead, replayed, rounds, means)


def _replayed(
    arms: Selection, linear: Selection, log: Log, seed: int
) -> tuple[Estimate | None, int]:
    """Return the reward of a round under the linear model less that under arms, and the rounds."""
    rounds = replays.playable_rounds(log)
    if np.count_nonzero(rounds) < replays.FEWEST_USERS:
        return None, 0
    log = log.of_users(np.flatnonzero(rounds))
    if log.n_users > MOST_USERS:
        log = log.of_users(user_hash.sample(log.keys, MOST_USERS, seed))
    players: dict[str, replays.Player] = {
        name: replays.PolicyPlayer(mmGreedy(one.learned.model), log.n_actions, one.learned.features)
        for name, one in (("arms", arms), ("linear", linear))
    }
    played = replays.replay(players, log, seed=seed)
    horizon = played.horizons[-1]
    return played.difference("linear", "arms", horizon), horizon

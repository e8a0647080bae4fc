"""Click logs with a known truth, and new users to play."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.learning.logs import Log
from latentbandits.models import BernoulliArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.protocol import AnyPolicy

LOGGED, NEW, IMPRESSIONS = 4_000, 2_000, 60
ROUNDS = 100
WINDOWS = (10, 20, 50, 100)
"""Numbers of rounds H; click rates are averaged over rounds 1..H."""

_SURE = 1e9  # pseudo-observations of the true model, so that it is practically certain


@dataclass(frozen=True, eq=False)
class ClickProblem:
    """Click rates of every state and action, a log of some users, and the states of new users."""

    name: str
    rates: FloatArray  # (n_states, n_actions)
    log: Log
    state: IntArray  # (n_new,): states of the new users

    @property
    def popular(self) -> int:
        """The action with the largest click rate in the log (one click and 20 shows added)."""
        shown = np.bincount(self.log.actions, minlength=self.log.n_actions)
        clicked = np.bincount(self.log.actions, self.log.rewards, minlength=self.log.n_actions)
        overall = clicked.sum() / shown.sum()
        return int(((clicked + 20 * overall) / (shown + 20)).argmax())

    def true_model(self) -> BernoulliArms:
        """Return the model with the true rates and equally likely states."""
        return BernoulliArms(self.rates * _SURE, (1 - self.rates) * _SURE)


def reference_problem() -> ClickProblem:
    """Return the problem of the reference figures: 3 states, 20 actions, 2.2% clicks."""
    rng = np.random.default_rng(3)
    rates = np.clip(rng.gamma(1, 0.02, (3, 20)), 0.002, 0.25)
    state = rng.integers(0, 3, LOGGED + NEW)
    users = np.repeat(np.arange(LOGGED), IMPRESSIONS)
    actions = rng.integers(0, 20, len(users))
    clicks = (rng.random(len(users)) < rates[state[users], actions]).astype(np.float64)
    return ClickProblem("reference", rates, _log(users, actions, clicks, 20), state[LOGGED:])


def other_problem(seed: int) -> ClickProblem:
    """Return a problem with 3 x 20 or 4 x 30 click rates, log-uniform in 1 to 10%.

    If `seed // 2` is odd, the log shows the action with the highest click rate so far with
    probability 1/2. Other impressions are of random actions.
    """
    rng = np.random.default_rng([seed, 20])
    n_states, n_actions = ((3, 20), (4, 30))[seed % 2]
    seeks = (seed // 2) % 2 == 1
    rates = np.exp(rng.uniform(np.log(0.01), np.log(0.1), (n_states, n_actions)))
    state = rng.integers(0, n_states, LOGGED + NEW)
    actions = rng.integers(0, n_actions, (IMPRESSIONS, LOGGED))
    clicks = np.empty((IMPRESSIONS, LOGGED))
    shown, clicked = np.full(n_actions, 20.0), np.full(n_actions, 1.0)
    for t in range(IMPRESSIONS):
        if seeks:
            popular = int((clicked / shown).argmax())
            actions[t] = np.where(rng.random(LOGGED) < 0.5, popular, actions[t])
        clicks[t] = rng.random(LOGGED) < rates[state[:LOGGED], actions[t]]
        shown += np.bincount(actions[t], minlength=n_actions)
        clicked += np.bincount(actions[t], clicks[t], minlength=n_actions)
    users = np.repeat(np.arange(LOGGED), IMPRESSIONS)
    log = _log(users, actions.T.ravel(), clicks.T.ravel(), n_actions)
    name = f"{n_states} x {n_actions}, {'popular' if seeks else 'uniform'}, seed {seed}"
    return ClickProblem(name, rates, log, state[LOGGED:])


def play(problem: ClickProblem, policy: AnyPolicy, seed: int = 0) -> FloatArray:
    """Return the true click rate of the actions shown to new users, `(n_new, ROUNDS)`."""
    rates = problem.rates[problem.state]
    n = len(rates)
    rng = np.random.default_rng([seed, 7])
    rewards = np.empty((n, ROUNDS))
    some: Any = policy
    belief = some.init(n)
    for t in range(ROUNDS):
        decision = some.decide(belief, None, rng, propensity=False)
        rewards[:, t] = rates[np.arange(n), decision.action]
        clicks = (rng.random(n) < rewards[:, t]).astype(np.float64)
        belief = some.update(belief, None, decision, clicks)
    return rewards


def play_popular(problem: ClickProblem) -> FloatArray:
    """Show every new user the most popular action of the log."""
    rates = problem.rates[problem.state, problem.popular]
    return np.broadcast_to(rates[:, None], (len(rates), ROUNDS))


def play_knowing(problem: ClickProblem) -> FloatArray:
    """Show every new user the best action of their state."""
    rates = problem.rates.max(axis=1)[problem.state]
    return np.broadcast_to(rates[:, None], (len(rates), ROUNDS))


def _log(users: IntArray, actions: IntArray, clicks: FloatArray, n_actions: int) -> Log:
    ids = tuple(str(u) for u in range(LOGGED)), tuple(str(a) for a in range(n_actions))
    return Log(users, actions, clicks, *ids)

"""Generated logs of rewards as people have them: with atoms, contaminated, and clean.

`python -m evidence rewards` fits each with defaults, and plays the recommended policy with new
users of the true states, beside the action of the largest true mean over all users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import Option, positive
from latentbandits.report.report import Claim, Report, Table

__all__ = ["RewardsExperiment", "generate"]

KINDS: Mapping[str, tuple[str, ...]] = {
    "atoms": ("fractions", "amounts", "grades"),
    "contaminated": ("huge", "swapped"),
    "clean": ("clean",),
}
CONTAMINATION = 0.02
_NOISE = 0.5
_LOGS = 20
_USERS, _ROUNDS = 2_000, 20  # that play the recommended policy
_ERRORS = 2.0


class Truth(NamedTuple):
    """Users of three states, and the rewards that they give without contamination.

    - `fractions`: 0 or 1, and 3% are fractions of three digits;
    - `amounts`: most are 0, the others log-normal amounts in cents;
    - `grades`: whole numbers from 0 to 100, with many at both ends;
    - else Gaussian.
    """

    kind: str
    level: FloatArray  # (n_states, n_actions), from 0.1 to 0.9
    typical: FloatArray  # (n_states, n_actions): mean amounts
    shares: FloatArray  # (n_states,)

    def draw(self, state: IntArray, action: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw a reward for each state and action."""
        level, n = self.level[state, action], len(state)
        if self.kind == "fractions":
            clicks = (rng.random(n) < level).astype(float)
            return np.where(rng.random(n) < 0.03, rng.random(n).round(3), clicks)
        if self.kind == "amounts":
            amounts = self.typical[state, action] * np.exp(0.8 * rng.standard_normal(n) - 0.32)
            return np.where(rng.random(n) < 0.5 * level, amounts, 0.0).round(2)
        if self.kind == "grades":
            points = np.round(100 * (level + 0.25 * rng.standard_normal(n)))
            return np.clip(points, 0.0, 100.0)
        rewards: FloatArray = level + _NOISE * rng.standard_normal(n)
        return rewards

    def means(self) -> FloatArray:
        """Return the mean rewards, `(n_states, n_actions)`; of grades, by a sum over them."""
        from scipy.special import ndtr

        if self.kind == "fractions":
            return 0.97 * self.level + 0.03 * 0.5
        if self.kind == "amounts":
            return 0.5 * self.level * self.typical
        if self.kind == "grades":
            at_least = (np.arange(1, 101) - 0.5) / 100
            means: FloatArray = ndtr((self.level[..., None] - at_least) / 0.25).sum(axis=-1)
            return means
        return self.level


class Problem(NamedTuple):
    """A log, and the truth behind it."""

    log: Log
    truth: Truth

    @property
    def means(self) -> FloatArray:
        return self.truth.means()


def generate(
    kind: str,
    seed: int,
    n_users: int = 600,
    n_rounds: int = 20,
    n_states: int = 3,
    n_actions: int = 8,
) -> Problem:
    """Generate a log of one kind, logged uniformly at random.

    Of `huge`, 2% of the rewards are 1e9; of `swapped`, 2% are the number of the user.
    """
    rng = np.random.default_rng([seed, 77])
    level = rng.uniform(0.1, 0.9, (n_states, n_actions))
    typical = rng.uniform(5.0, 20.0, (n_states, n_actions))
    truth = Truth(kind, level, typical, rng.dirichlet(np.full(n_states, 10.0)))
    state = rng.choice(n_states, size=n_users, p=truth.shares)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(n_actions, size=len(users))
    rewards = truth.draw(state[users], actions, rng)
    if kind in KINDS["contaminated"]:
        wrong = rng.random(len(users)) < CONTAMINATION
        rewards = np.where(wrong, 1e9 if kind == "huge" else users, rewards)
    ids = tuple(map(str, range(n_users))), tuple(map(str, range(n_actions)))
    return Problem(Log(users, actions, rewards, *ids), truth)


class Outcome(NamedTuple):
    """A fit with defaults, and what its recommended policy earned."""

    group: str
    kind: str
    model: str
    n_states: int
    policy: str
    verdict: str
    covered: float  # share of held-out rewards inside their 95% intervals
    gain: float  # mean reward above popularity's, as a share of it
    gain_error: float
    best: float  # the same of the best action of every state, known from the start

    @property
    def harms(self) -> bool:
        return self.gain < -_ERRORS * self.gain_error


def run_one(job: tuple[str, str, int]) -> Outcome:
    """Generate a log, fit it, and play the recommended policy with new users."""
    from latentbandits.learning import fit

    group, kind, seed = job
    problem = generate(kind, seed)
    fitted = fit(problem.log, seed=seed)
    judged = fitted.report["judgement"]
    policy = judged["recommended_policy"]
    gains, popular = play(fitted.model, policy, problem.truth, seed)
    covered = {row["level"]: row["covered"] for row in fitted.report["held_out"]["coverage"]}
    means, shares = problem.means, problem.truth.shares
    best = float(shares @ means.max(axis=1))
    return Outcome(
        group,
        kind,
        type(fitted.model).__name__,
        fitted.model.n_states,
        policy,
        judged["verdict"],
        covered[0.95],
        float(gains.mean()) / popular,
        float(gains.std() / np.sqrt(len(gains))) / popular,
        best / popular - 1,
    )


def play(model: Any, policy: str, truth: Truth, seed: int) -> tuple[FloatArray, float]:
    """Return each user's mean reward above that of popularity, and popularity's mean reward."""
    from latentbandits.policies.registry import Inputs, build

    rng = np.random.default_rng([seed, 78])
    state = rng.choice(len(truth.shares), size=_USERS, p=truth.shares)
    means = truth.means()
    popular = int((truth.shares @ means).argmax())
    earned = np.zeros(_USERS)
    if policy == "popularity":
        action = int((np.exp(model.log_state_prior[0]) @ model.expected_rewards(None)[0]).argmax())
        earned = means[state, action]
    else:
        player: Any = build(policy, Inputs(model, horizon=_ROUNDS))
        belief = player.init(_USERS)
        for _ in range(_ROUNDS):
            decision = player.decide(belief, None, rng, propensity=False)
            earned += means[state, decision.action] / _ROUNDS
            reward = truth.draw(state, decision.action, rng)
            belief = player.update(belief, None, decision, reward)
    return earned - means[state, popular], float(truth.shares @ means[:, popular])


class RewardsExperiment(Experiment):
    """Fit logs of rewards with atoms and with errors, and play what `fit` recommends."""

    name = "rewards"
    help = "rewards with atoms and with errors: families, states, intervals, and what is earned"
    options = (Option("logs", "of each group", _LOGS, positive),)

    def measure(self, work: Work) -> Report:
        options = work.options
        jobs = [
            (group, kinds[i % len(kinds)], options.seed + i)
            for group, kinds in KINDS.items()
            for i in range(options.logs)
        ]
        outcomes = work.map("fitting logs", run_one, jobs)
        return Report(claims=claims_of(outcomes), tables=[_table(outcomes)])


def claims_of(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return the claims about harm, intervals, states and power."""
    dirty = [one for one in outcomes if one.group != "clean"]
    harms = sum(one.harms for one in dirty)
    covered = min(one.covered for one in dirty)
    right = float(np.mean([one.n_states == 3 for one in dirty]))
    most = max(one.n_states for one in dirty)
    clean = np.array([one.gain for one in outcomes if one.group == "clean"])
    error = float(clean.std() / np.sqrt(len(clean)))
    return [
        Claim("harm", "what fit recommends is not clearly below popularity",
              "in at most 1 of 40 logs with atoms or errors", f"{harms} of {len(dirty)}",
              harms <= max(1, len(dirty) // 40)),
        Claim("intervals", "95% intervals of held-out rewards are not far too narrow",
              "they hold at least 80% in every log", f"at least {covered:.1%}", covered >= 0.8),
        Claim("states", "atoms and errors are not taken for states", "at most 4, mostly 3",
              f"3 in {right:.0%}, at most {most}", most <= 4 and right >= 0.8),
        Claim("power", "clean logs keep their gain",
              "on average above popularity by two standard errors",
              f"{clean.mean():+.1%} ±{error:.1%}", float(clean.mean()) > _ERRORS * error),
    ]  # fmt: skip


def _table(outcomes: Sequence[Outcome]) -> Table:
    rows: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(one.kind for one in outcomes):
        some = [one for one in outcomes if one.kind == kind]
        models = ", ".join(sorted({one.model for one in some}))
        counted = [one.n_states for one in some]
        states = f"{min(counted)} to {max(counted)}"
        covered = f"{min(one.covered for one in some):.1%}"
        gain = f"{np.mean([one.gain for one in some]):+.1%}"
        best = f"{np.mean([one.best for one in some]):+.1%}"
        harms = f"{sum(one.harms for one in some)} of {len(some)}"
        rows.append((kind, models, states, covered, gain, best, harms))
    columns = ("rewards", "models", "states (3)", "95% intervals hold at least",
               "over popularity", "if states were known", "clearly below")  # fmt: skip
    return Table("Fits with defaults, and what they recommend, over 20 rounds", columns, rows)

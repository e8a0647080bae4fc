"""Logs that a fit may be misled by, and clean logs: what `fit` recommends on them, and earns.

`python -m evidence rewards` fits each log with defaults, and plays the recommended policy with new
users of the true states, beside the action of the largest average in the log. Logs are misleading
if rewards have atoms, if some rows are wrong (contaminated), or if whoever chose the actions knew
the users' states (confounded). In clean logs the true model earns at least 10% more than
popularity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from evidence.loop_visits import shown_means
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning import fit
from latentbandits.learning.logs.rows import Log
from latentbandits.models import BernoulliArms, CategoricalArms, GaussianArms, PoissonArms
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import Option, positive
from latentbandits.policies.registry import build, inputs_of
from latentbandits.report.report import Claim, Report, Table

KINDS: Mapping[str, tuple[str, ...]] = {
    "atoms": ("fractions", "amounts", "grades"),
    "contaminated": ("huge", "swapped"),
    "confounded": ("clicks", "gaussian"),
    "clean": ("gaussian", "clicks", "counts", "ratings", "opposite"),
}
CLEAN, OPPOSITE = "clean", "opposite"
CONTAMINATION = 0.02
LEAST_GAIN = 0.1  # of the true model on a clean log, as a share of popularity's reward
_LOGS = 20
_CLEAN_LOGS = 3  # for each log of another group
_USERS, _ROUNDS = 2_000, 20  # that play the recommended policy
_ERRORS = 2.0
_ROUNDING = 1e-9
_EXACT = 1e-3  # spread of the true model's priors around its means


class Truth(NamedTuple):
    """Users of a few states, and the rewards that they give without contamination.

    - `fractions`: 0 or 1, and 3% are fractions of three digits;
    - `amounts`: most are 0, the others log-normal amounts in cents;
    - `grades`: whole numbers from 0 to 100, with many at both ends;
    - `clicks`: 0 or 1; `counts`: Poisson; `ratings`: one to five stars, binomial;
    - else Gaussian.
    """

    kind: str
    level: FloatArray  # (n_states, n_actions)
    typical: FloatArray  # (n_states, n_actions): mean amounts
    shares: FloatArray  # (n_states,)
    noise: float = 0.5

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
        if self.kind == "clicks":
            return (rng.random(n) < level).astype(float)
        if self.kind == "counts":
            return rng.poisson(level).astype(float)
        if self.kind == "ratings":
            return np.add(1.0, rng.binomial(4, level), dtype=np.float64)
        rewards: FloatArray = level + self.noise * rng.standard_normal(n)
        return rewards

    def means(self) -> FloatArray:
        """Return the mean rewards, `(n_states, n_actions)`; of grades, by a sum over them."""
        if self.kind == "fractions":
            return 0.97 * self.level + 0.03 * 0.5
        if self.kind == "amounts":
            return 0.5 * self.level * self.typical
        if self.kind == "grades":
            at_least = (np.arange(1, 101) - 0.5) / 100
            means: FloatArray = ndtr((self.level[..., None] - at_least) / 0.25).sum(axis=-1)
            return means
        if self.kind == "ratings":
            return 1.0 + 4 * self.level
        return self.level

    def model(self) -> Any:
        """Return the true model, for kinds of clean logs and errors; None for others."""
        if self.kind == "clicks":
            return BernoulliArms.from_means(self.level, _EXACT, self.shares)
        if self.kind == "counts":
            return PoissonArms.from_means(self.level, _EXACT, self.shares)
        if self.kind == "ratings":
            stars = np.arange(5)
            chance = binom.pmf(stars, 4, self.level[..., None])
            return CategoricalArms(chance / _EXACT**2, 1.0 + stars, self.shares)
        if self.kind in ("gaussian", *KINDS["contaminated"]):
            return GaussianArms(self.level, self.noise, _EXACT, self.shares)
        return None


class Problem(NamedTuple):
    """A log, and the truth behind it."""

    log: Log
    truth: Truth
    right: FloatArray  # (n_events,): 1, or 0 for contaminated rows

    @property
    def means(self) -> FloatArray:
        return self.truth.means()

    @property
    def popular(self) -> int:
        """The action of the largest average in the log, without contaminated rows."""
        counts, sums = (
            np.bincount(self.log.actions, weights, minlength=self.log.n_actions)
            for weights in (self.right, self.right * self.log.rewards)
        )
        return int(np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf).argmax())

    def new_users(self, rng: np.random.Generator) -> IntArray:
        """Draw the states of new users."""
        return rng.choice(len(self.means), size=_USERS, p=self.truth.shares)

    def over_popularity(self, state: IntArray, earned: FloatArray) -> tuple[FloatArray, float]:
        """Return what each user earned a round above popularity, and popularity's mean reward."""
        popular = self.means[state, self.popular]
        return earned - popular, float(popular.mean())


def generate(
    kind: str,
    seed: int,
    n_users: int = 600,
    n_rounds: int = 20,
    n_states: int = 3,
    n_actions: int = 8,
) -> Problem:
    """Generate a log of rewards with atoms or errors, logged uniformly at random.

    Of `huge`, 2% of the rewards are 1e9; of `swapped`, 2% are the number of the user.
    """
    rng = np.random.default_rng([seed, 77])
    level = rng.uniform(0.1, 0.9, (n_states, n_actions))
    typical = rng.uniform(5.0, 20.0, (n_states, n_actions))
    truth = Truth(kind, level, typical, rng.dirichlet(np.full(n_states, 10.0)))
    problem = _logged(truth, n_users, n_rounds, None, rng)
    if kind not in KINDS["contaminated"]:
        return problem
    wrong = rng.random(problem.log.n_events) < CONTAMINATION
    value = 1e9 if kind == "huge" else problem.log.users
    log = replace(problem.log, rewards=np.where(wrong, value, problem.log.rewards))
    return Problem(log, truth, (~wrong).astype(np.float64))


def generate_confounded(kind: str, seed: int) -> Problem:
    """Generate a log whose actions were chosen by a logger that knew the users' states.

    In half of the logs each state's choices are arbitrary, in the others better actions were chosen
    more often. The log does not tell.
    """
    rng = np.random.default_rng([seed, 79])
    n_states, n_actions = int(rng.integers(2, 5)), int(rng.integers(4, 10))
    shape = n_states, n_actions
    level = rng.beta(2.0, 2.0, shape) if kind == "clicks" else rng.normal(1.0, 0.5, shape)
    truth = Truth(kind, level, level, rng.dirichlet(np.full(n_states, 10.0)), noise=1.0)
    reasons = rng.standard_normal(shape)
    if rng.random() < 0.5:
        reasons = 2 * (level - level.mean(axis=1, keepdims=True)) / level.std()
    chosen = np.exp(rng.uniform(1.0, 4.0) * reasons)
    chosen /= chosen.sum(axis=1, keepdims=True)
    return _logged(truth, int(rng.integers(600, 1_500)), int(rng.integers(5, 16)), chosen, rng)


def generate_clean(kind: str, seed: int) -> Problem:
    """Generate a log of a drawn size, logged uniformly at random, on which states are worth 10%.

    Of `opposite`, users of two states have the same mean over all actions: what one state likes,
    the other one dislikes.
    """
    rng = np.random.default_rng([seed, 80])
    families = [family for family in KINDS[CLEAN] if family != OPPOSITE]
    for _ in range(1_000):
        n_states, n_actions = int(rng.integers(2, 6)), int(rng.integers(4, 21))
        family = families[seed % len(families)] if kind == OPPOSITE else kind
        level = _levels(family, (n_states, n_actions), rng)
        if kind == OPPOSITE:
            level = _opposed(level[0], np.inf if family in ("gaussian", "counts") else 1.0)
        shares = rng.dirichlet(np.full(len(level), 10.0))
        truth = Truth(family, level, level, shares, noise=rng.uniform(0.3, 1.0))
        n_users = round(400 * (3_000 / 400) ** rng.random())
        rows = rng.integers(8, rng.integers(8, 31) + 1, size=n_users)
        problem = _logged(truth, n_users, rows, None, rng)
        if best_gain(problem, seed) >= LEAST_GAIN:
            return problem
    raise ValueError(f"no {kind} log of 1,000 is worth {LEAST_GAIN:.0%} (seed {seed})")


def _levels(family: str, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Draw levels of states and actions: states move around what an action pays on average."""
    actions, states = rng.standard_normal(shape[1]), rng.standard_normal(shape)
    moves = 0.5 * actions + rng.uniform(0.5, 1.5) * states
    if family == "gaussian":
        return 1.0 + 0.3 * moves
    if family == "counts":
        levels: FloatArray = np.exp(rng.uniform(-0.5, 1.0) + 0.4 * moves)
        return levels
    chances: FloatArray = 1 / (1 + np.exp(-rng.uniform(-2.0, 0.0) - moves))
    return chances


def _opposed(likes: FloatArray, most: float) -> FloatArray:
    """Return levels of two states with equal means, inside 0 and `most`."""
    middle = likes.mean()
    move = likes - middle
    room = 0.9 * min(middle, most - middle)
    move *= min(1.0, room / np.abs(move).max())
    return np.stack([middle + move, middle - move])


def _logged(
    truth: Truth,
    n_users: int,
    n_rounds: int | IntArray,
    chosen: FloatArray | None,
    rng: np.random.Generator,
) -> Problem:
    """Log users' rewards. Actions are uniform, or have probabilities (n_states, n_actions).

    Actions that were never chosen are no part of the problem.
    """
    n_states, n_actions = truth.level.shape
    state = rng.choice(n_states, size=n_users, p=truth.shares)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(n_actions, size=len(users))
    if chosen is not None:
        below = chosen.cumsum(axis=1)[state[users], :-1]
        seen, actions = np.unique(
            (rng.random((len(users), 1)) > below).sum(axis=1), return_inverse=True
        )
        truth = truth._replace(level=truth.level[:, seen], typical=truth.typical[:, seen])
    rewards = truth.draw(state[users], actions, rng)
    ids = tuple(map(str, range(n_users))), tuple(map(str, range(truth.level.shape[1])))
    return Problem(Log(users, actions, rewards, *ids), truth, np.ones(len(users)))


class Outcome(NamedTuple):
    """A fit with defaults, and what its recommended policy earned."""

    group: str
    kind: str
    model: str
    n_states: int
    true_states: int
    policy: str
    verdict: str
    covered: float  # share of held-out rewards inside their 95% intervals
    gain: float  # mean reward above popularity's, as a share of it
    gain_error: float
    best: float  # the same of the true model

    @property
    def harms(self) -> bool:
        return self.gain < -_ERRORS * self.gain_error - _ROUNDING

    @property
    def falsely_helps(self) -> bool:
        return self.verdict == "helps" and self.gain <= _ROUNDING


def problem_of(group: str, kind: str, seed: int) -> Problem:
    """Generate a log of one group and kind."""
    if group == "confounded":
        return generate_confounded(kind, seed)
    return generate_clean(kind, seed) if group == CLEAN else generate(kind, seed)


def run_one(group: str, kind: str, seed: int) -> Outcome:
    """Generate a log, fit it, and play the recommended policy with new users."""
    problem = problem_of(group, kind, seed)
    fitted = fit(problem.log, seed=seed)
    judged = fitted.report["judgement"]
    policy, verdict = judged["recommended_policy"], judged["verdict"]
    gains, popular = play(fitted.model, policy, problem, seed, fitted.catalogue)
    covered = {row["level"]: row["covered"] for row in fitted.report["held_out"]["coverage"]}
    gain, error = float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))
    name, n_states = type(fitted.model).__name__, fitted.model.n_states
    return Outcome(
        group, kind, name, n_states, len(problem.truth.shares), policy, verdict, covered[0.95],
        gain / popular, error / popular, best_gain(problem, seed),
    )  # fmt: skip


def play(
    model: Any, policy: str, problem: Problem, seed: int, catalogue: Catalogue | None = None
) -> tuple[FloatArray, float]:
    """Return each new user's mean reward above popularity's, and popularity's mean reward."""
    features = None if catalogue is None else catalogue.features
    context = None if features is None else np.broadcast_to(features, (_USERS, *features.shape))
    player = build(policy, inputs_of(model, catalogue, horizon=_ROUNDS))
    rng = np.random.default_rng([seed, 78])
    state = problem.new_users(rng)

    def react(action: IntArray) -> FloatArray:
        return problem.truth.draw(state, action, rng)

    shown = shown_means(player, problem.means[state], react, _ROUNDS, rng, context)
    return problem.over_popularity(state, shown.mean(axis=1))


def best_gain(problem: Problem, seed: int) -> float:
    """Return the true model's gain over popularity as a share, by the better of two policies.

    If the rewards have no model, it is the gain of known states.
    """
    model = problem.truth.model()
    if model is None:
        state = problem.new_users(np.random.default_rng([seed, 78]))
        played = [problem.over_popularity(state, problem.means.max(axis=1)[state])]
    else:
        played = [play(model, policy, problem, seed) for policy in ("mIDS", "mmGreedy")]
    return max(float(gains.mean()) / popular for gains, popular in played)


class RewardsExperiment(Experiment):
    """Fit misleading and clean logs, and play what `fit` recommends."""

    name = "rewards"
    help = (
        "logs with atoms, errors and hidden reasons, and clean ones: verdicts, and what is earned"
    )
    options = (Option("logs", "of each misleading group, and a third of the clean logs", _LOGS,
                      positive),)  # fmt: skip

    def measure(self, work: Work) -> Report:
        options = work.options
        jobs = [
            (group, kinds[i % len(kinds)], options.seed + i)
            for group, kinds in KINDS.items()
            for i in range(options.logs * (_CLEAN_LOGS if group == CLEAN else 1))
        ]
        outcomes = work.map("fitting logs", run_one, jobs)
        return Report(claims=claims_of(outcomes), tables=[_table(outcomes)])


def claims_of(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return the claims about harm and false verdicts, intervals, states, power and gain."""
    misleading = [one for one in outcomes if one.group != CLEAN]
    clean = [one for one in outcomes if one.group == CLEAN]
    n = len(misleading)
    harms = sum(one.harms for one in misleading)
    false = sum(one.falsely_helps for one in misleading)
    covered = min(one.covered for one in misleading)
    three = [one for one in misleading if one.group != "confounded"]
    right = float(np.mean([one.n_states == 3 for one in three]))
    most = max(one.n_states for one in three)
    helps = sum(one.verdict == "helps" for one in clean)
    gained = sum(one.gain for one in clean) / sum(one.best for one in clean)
    return [
        Claim("harm", "what fit recommends is not clearly below popularity",
              "in at most 2 of 60 misleading logs", f"{harms} of {n}", harms * 60 <= 2 * n),
        Claim("false", "a model that helps by its verdict earns more than popularity",
              "not so in at most 1 of 60 misleading logs", f"{false} of {n}", false * 60 <= n),
        Claim("intervals", "95% intervals of held-out rewards are not far too narrow",
              "they hold at least 80% in every log", f"at least {covered:.1%}", covered >= 0.8),
        Claim("states", "atoms and errors are not taken for states", "at most 4, mostly 3",
              f"3 in {right:.0%}, at most {most}", most <= 4 and right >= 0.8),
        Claim("power", "clean logs, in which the true model gains 10%, are known to help",
              "in at least 48 of 60", f"{helps} of {len(clean)}", helps * 60 >= 48 * len(clean)),
        Claim("gain", "clean logs keep the true model's gain in rounds 1-20", "at least 70%",
              f"{gained:.0%}", gained >= 0.7),
    ]  # fmt: skip


def _table(outcomes: Sequence[Outcome]) -> Table:
    rows: list[tuple[str, ...]] = []
    for group, kind in dict.fromkeys((one.group, one.kind) for one in outcomes):
        some = [one for one in outcomes if (one.group, one.kind) == (group, kind)]
        models = ", ".join(sorted({one.model for one in some}))
        right = f"{sum(one.n_states == one.true_states for one in some)} of {len(some)}"
        covered = f"{min(one.covered for one in some):.1%}"
        gain = f"{np.mean([one.gain for one in some]):+.1%}"
        best = f"{np.mean([one.best for one in some]):+.1%}"
        helps = str(sum(one.verdict == "helps" for one in some))
        false = str(sum(one.falsely_helps for one in some))
        harms = str(sum(one.harms for one in some))
        rows.append((group, kind, models, right, covered, gain, best, helps, false, harms))
    columns = ("logs", "rewards", "models", "states found", "95% intervals hold at least",
               "over popularity", "the true model", "helps", "falsely",
               "clearly below")  # fmt: skip
    return Table("Fits with defaults, and what they recommend, over 20 rounds", columns, rows)

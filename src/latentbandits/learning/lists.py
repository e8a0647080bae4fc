"""Learning from logs of lists: which click model explains them, and how often positions are seen.

A row is one action at one position of a list. In a cascade, the rows below a click were not
observed, and are dropped; what is left is an ordinary log. In the click model `positions`, e_l is
learned by EM together with the states, and e_1 = 1 fixes the scale. It is identified only if
actions move between positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from latentbandits.learning import user_hash
from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.arms.mixture import Mixture, Problem, best_of
from latentbandits.learning.assess.heldout import MOST_ROUNDS
from latentbandits.learning.assess.list_replay import ListRounds
from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.learners import Split, clearly_below
from latentbandits.learning.logs.rows import Log, distinct, make_family
from latentbandits.learning.logs.tables import LogError, check_one_of
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.clicks import (
    Cascade,
    ClickModel,
    Each,
    PositionClicks,
    Positions,
    log_not_clicked,
)
from latentbandits.report.report import Estimate, Progress

if TYPE_CHECKING:
    from latentbandits.learning.fit_options import FitOptions

ClickModelName = Literal["auto", "each", "cascade", "positions"]

LEAST_MOVED = 10
"""Rows of one action at each of two positions that connect them: with fewer, nothing can be said
about the examination of one relative to the other."""

MOST_UPDATES = 300
TOLERANCE = 1e-5
"""The most updates of the examination, and the change below which they end."""

_PASSES = 2  # over the users, for each update of the examination
_FIRST = 0.5  # examination at which EM starts
_LEAST, _NEWTON_STEPS = 1e-6, 5


def number_lists(log: Log, list_column: str, position_column: str) -> Log:
    """Return the log with its lists and positions as numbers, from two of the columns beside it.

    Positions count from 1 (or 0). LogError if a position repeats in a list, or a list has rows of
    several users.
    """
    assert log.beside is not None
    names, shown = log.beside[list_column].cast(pl.String), log.beside[position_column]
    alone = names.is_null() & shown.is_null()
    half = (names.is_null() | shown.is_null()) & ~alone
    if half.any():
        raise LogError(
            f"{half.sum():,} of {len(half):,} rows have only one of {list_column} and "
            f"{position_column}: a row of a list has both, and an action shown alone has none"
        )
    shown = shown.cast(pl.String).fill_null("1") if alone.any() else shown
    numbers = shown.cast(pl.Float64, strict=False)
    whole = numbers.is_not_null() & (numbers == numbers.floor()) & (numbers >= 0)
    if not whole.all():
        wrong = shown.filter(~whole.fill_null(False))[0]
        raise LogError(
            f"{position_column} counts positions from 1 at the top; got {wrong!r}: is it the "
            "column of positions?"
        )
    positions = numbers.cast(pl.Int64).to_numpy()
    positions = positions - (0 if positions.min() == 0 else 1)
    lists = names.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
    lists = np.where(alone.to_numpy(), lists.max() + 1 + np.arange(len(lists)), lists)
    length = int(positions.max()) + 1
    if len(distinct(lists * length + positions)) < len(lists):
        _, first, counts = np.unique(
            lists * length + positions, return_index=True, return_counts=True
        )
        row = int(first[counts.argmax()])
        raise LogError(
            f"list {names[row]!r} has {counts.max()} rows at position {shown[row]}: every "
            f"position of a list has one row; is {list_column!r} a name of its own for each list?"
        )
    pairs = distinct(lists * log.n_users + log.users)
    shared = np.diff(pairs // log.n_users) == 0
    if shared.any():
        row = int((lists == pairs[shared.argmax()] // log.n_users).argmax())
        raise LogError(
            f"list {names[row]!r} has rows of several users: a list is shown to one user"
        )
    return replace(log, lists=lists, positions=positions)


class Lists(NamedTuple):
    """A log of lists, as a table of one row per list."""

    rewards: FloatArray  # (n_lists, length); NaN where there is no row
    list_ids: Any  # (n_lists,)

    @classmethod
    def of(cls, log: Log, list_column: str | None = None) -> Lists:
        assert log.lists is not None
        assert log.positions is not None
        numbers, first, row = np.unique(log.lists, return_index=True, return_inverse=True)
        rewards = np.full((len(numbers), int(log.positions.max()) + 1), np.nan)
        rewards[row, log.positions] = log.rewards
        named = list_column is not None and log.beside is not None
        ids = log.beside[list_column].gather(first) if named else numbers  # type: ignore[index]
        return cls(rewards, ids)

    @property
    def lengths(self) -> IntArray:
        """The last position of each list that has a row, counted from 1."""
        there = ~np.isnan(self.rewards)
        last: IntArray = there.shape[1] - there[:, ::-1].argmax(axis=1)
        return last

    def usual_length(self, cascade: bool) -> int:
        """The length of most lists; in a `cascade`, of most lists without a click."""
        whole = ~(self.rewards == 1).any(axis=1)
        lengths = self.lengths[whole] if cascade and whole.any() else self.lengths
        counts = np.bincount(lengths)
        return int(len(counts) - 1 - counts[::-1].argmax())

    @property
    def below_click(self) -> int:
        """The number of rows below the first click of their list."""
        observed = Cascade().react(self.rewards, self.rewards)
        return int((np.isnan(observed) & ~np.isnan(self.rewards)).sum())

    @property
    def cut_off(self) -> bool:
        """Whether lists with a click tend to end there: they are shorter than others."""
        clicked = (self.rewards == 1).any(axis=1)
        longest = self.rewards.shape[1]
        return bool((self.lengths[clicked] < longest).any() and (self.lengths == longest).any())

    def not_a_cascade(self) -> str | None:
        """Return why these cannot be lists of a cascade; None if they can."""
        clicks = (self.rewards == 1).sum(axis=1)
        if (clicks > 1).any():
            name = self.list_ids[int((clicks > 1).argmax())]
            return (
                "in a cascade the user stops at the first click, so a list has at most one; list "
                f"{str(name)!r} has {clicks.max()} ({int((clicks > 1).sum()):,} such lists): take "
                "--click-model each or positions"
            )
        gap = np.isnan(self.rewards[:, :-1]) & ~np.isnan(self.rewards[:, 1:])
        if gap.any():
            row, position = (int(i) for i in np.argwhere(gap)[0])
            name = self.list_ids[row]
            return (
                "in a cascade the user reads from the top, so every position above one that was "
                f"seen has a reward; position {position + 1} of list {str(name)!r} "
                "has none: take --click-model each or positions"
            )
        return None


def not_identified(log: Log) -> str | None:
    """Return why the log cannot tell how often positions are looked at; None if it can.

    Two positions are connected by an action that was shown often enough at both.
    """
    assert log.positions is not None
    length = int(log.positions.max()) + 1
    if length == 1:
        return "all rows are at the first position, so there is no examination to learn"
    counts = np.zeros((log.n_actions, length))
    np.add.at(counts, (log.actions, log.positions), 1)
    often = counts >= LEAST_MOVED
    reached: BoolArray = np.arange(length) == 0
    for _ in range(length):
        reached = reached | (often & (often & reached).any(axis=1, keepdims=True)).any(axis=0)
    if reached.all():
        return None
    apart = ", ".join(str(position + 1) for position in np.flatnonzero(~reached))
    return (
        f"no action was shown {LEAST_MOVED} times both at position {apart} and further up, so "
        "the log cannot tell a position that is rarely looked at from actions that are rarely "
        "clicked: show actions at changing positions (serve --explore), set the examination "
        "(--examination 1,0.6,0.4), or take --click-model each or cascade"
    )


class Examination(NamedTuple):
    """The examination of each position, with standard errors over resampled users."""

    values: FloatArray  # (length,)
    stderr: FloatArray | None  # (length,); None: not computed


def learn_examination(log: Log, n_states: int, seed: int, n_fits: int = 0) -> Examination:
    """Return the examination of every position, by EM together with `n_states` states.

    With C_l clicks at l and n_l[s, a] views without one, weighted by responsibility, it solves

        C_l / e_l = sum_{s, a} n_l[s, a] E[mu / (1 - e_l mu)].

    Standard errors come from `n_fits` Poisson bootstraps of the users.
    """
    assert log.positions is not None
    engine = engine_of(log)
    start = np.append(1.0, np.full(int(log.positions.max()), _FIRST))
    first = PositionClicks([[1.0]], [[1.0]], examination=start)
    problem = Problem.from_log(first, engine)
    mixture = best_of(problem, n_states, seed=seed).mixture
    found, mixture = _ascend(problem, first, mixture)
    if not n_fits:
        return Examination(found.examination, None)
    fits = []
    for i in range(n_fits):
        resampled = Problem.from_log(found, engine, n_replicates=1, seed=seed + 1 + i)
        fits.append(_ascend(resampled, found, mixture)[0].examination)
    return Examination(found.examination, np.std(fits, axis=0, ddof=1))


def _ascend(
    problem: Problem, family: PositionClicks, mixture: Mixture
) -> tuple[PositionClicks, Mixture]:
    """Repeat passes over the users, and update the examination, until it does not change."""
    for _ in range(MOST_UPDATES):
        # The pooled prior is centred at clicks per look, so that it depends on the examination.
        centre = family.centre(problem.totals.statistics.mean(axis=0))
        problem = problem._replace(family=family, centre=centre)
        for _ in range(_PASSES):
            sums = problem.sums(mixture)
            mixture = problem.step(mixture, sums)
        before = family.examination
        family = family.with_examination(_maximised(family, mixture, sums.statistics[0]))
        if np.abs(family.examination - before).max() < TOLERANCE:
            break
    return family, mixture


def _maximised(family: PositionClicks, mixture: Mixture, sums: FloatArray) -> FloatArray:
    """Return the examination that maximises the expected log likelihood given q, by Newton.

    An EM step on who looked would move by a share of about the click rate only.
    """
    length = len(family.examination)
    clicks, others = sums[..., :length].sum(axis=(0, 1)), sums[..., length:]
    posterior = family.posterior_of(mixture.phi[0])
    found = family.examination.copy()
    for i in range(1, length):
        if clicks[i] == 0:
            found[i] = _LEAST
            continue
        for _ in range(_NEWTON_STEPS):
            odds = np.exp(posterior.log_mu - log_not_clicked(posterior.log_rest, found[i]))
            slope = clicks[i] / found[i] - (others[..., i] * posterior.mean(odds)).sum()
            curvature = clicks[i] / found[i] ** 2 + (others[..., i] * posterior.mean(odds**2)).sum()
            lowest = max(found[i] / 2, _LEAST)
            found[i] = np.clip(found[i] + slope / curvature, lowest, 1 - _LEAST)
    return found


class ClickChoice(NamedTuple):
    """The click model of a log of lists, and the grounds of the choice."""

    model: ClickModel
    reason: str
    about: dict[str, Any]  # for the report

    @property
    def family(self) -> PositionClicks | None:
        """The reward family of clicks at positions; None for other click models."""
        if not isinstance(self.model, Positions):
            return None
        return PositionClicks([[1.0]], [[1.0]], examination=self.model.examination)

    @property
    def rounds(self) -> ListRounds:
        """The lists that rounds of replay show."""
        return ListRounds(self.about["length"], self.model)

    def report(self) -> dict[str, Any]:
        """Return plain data for report.json."""
        return {"name": self.model.name, "reason": self.reason, **self.about}


def choose_click_model(
    log: Log, options: FitOptions, progress: Progress
) -> tuple[Log, ClickChoice]:
    """Return the rows to learn from, and the click model: the given one, or the likeliest.

    "auto" compares the log evidence of held-out users, in nats. All their clicks count: in a
    cascade, rows below a click have probability 1.
    """
    lists = Lists.of(log, options.list)
    clicks = bool(np.isin(log.rewards, (0.0, 1.0)).all()) and log.rewards.max() == 1
    name: str = options.click_model
    check_one_of("click_model", name, get_args(ClickModelName))
    reason = "as asked for"
    candidates: dict[str, Any] = {}
    if options.examination is not None and name not in ("auto", "positions"):
        raise LogError(f"examination is for the click model positions, and this is {name}")
    if name == "auto" and options.examination is not None:
        name, reason = "positions", "its examination was given"
    elif name == "auto" and not clicks:
        name, reason = "each", "the rewards are not 0 and 1"
    elif name == "auto" and not lists.not_a_cascade() and not lists.below_click and lists.cut_off:
        name, reason = "cascade", "every list ends at its click"
    elif name == "auto":
        name, reason, candidates = _compare(log, lists, options, progress)
    if name != "each" and not clicks:
        raise LogError(
            f"the click model {name} is for rewards of 0 and 1, and these are from "
            f"{log.rewards.min():g} to {log.rewards.max():g}: take --click-model each"
        )
    rows = (~np.isnan(lists.rewards)).sum(axis=0)
    lengths, counts = np.unique(lists.lengths, return_counts=True)
    about: dict[str, Any] = {
        "lists": len(lists.rewards),
        "lengths": {int(length): int(n) for length, n in zip(lengths, counts, strict=True)},
        "length": lists.usual_length(name == "cascade"),
        "candidates": candidates,
        "not_observed": lists.below_click if name == "cascade" else 0,
        "rows": rows.tolist(),
        "reward": (np.nansum(lists.rewards, axis=0) / np.maximum(rows, 1)).tolist(),
    }
    if name == "each":
        return log, ClickChoice(Each(), reason, about)
    if name == "cascade":
        left = observed_rows(log, lists)
        about["observed"] = np.bincount(np.asarray(left.positions), minlength=len(rows)).tolist()
        return left, ClickChoice(Cascade(), reason, about)
    if options.examination is not None:
        model, stderr = Positions(options.examination), None
        _check_length(model, lists)
    else:
        _refuse(not_identified(log))
        n_states = _n_states(log, options, progress)
        values, stderr = learn_examination(log, n_states, options.seed, options.bootstrap)
        model = Positions(values)
    about["examination"] = list(model.examination)
    about["examination_stderr"] = None if stderr is None else stderr.tolist()
    return log, ClickChoice(model, reason, about)


def observed_rows(log: Log, lists: Lists) -> Log:
    """Return the rows down to the first click of each list; LogError if it is not a cascade."""
    _refuse(lists.not_a_cascade())
    observed = Cascade().react(lists.rewards, lists.rewards)
    number = np.unique(np.asarray(log.lists), return_inverse=True)[1]
    return log.of_events(~np.isnan(observed[number, np.asarray(log.positions)]))


def _compare(
    log: Log, lists: Lists, options: FitOptions, progress: Progress
) -> tuple[str, str, dict[str, Any]]:
    """Return the click model under which held-out users' clicks are likeliest, and all leads.

    `each` is kept unless another one is clearly better.
    """
    held = np.zeros(log.n_users, np.bool_)
    held[user_hash.sample(log.keys, max(log.n_users // 4, 1), options.seed)] = True
    scored = held[log.users] & (log.rounds < MOST_ROUNDS)
    kept, out = (log.of_events(mark) for mark in (~held[log.users], scored))
    kept, out = (part.of_users(distinct(part.users)) for part in (kept, out))
    bernoulli = make_family("bernoulli", np.array([0.0, 1.0]))
    split = Split(engine_of(kept), out, options.seed, progress)
    each = ArmsLearner(bernoulli).select(split, options.wanted_states)
    chosen = (each.chosen.n_states,)
    scores = {"each": each.judged.by_user()}
    candidates: dict[str, Any] = {"each": {"nats_per_user": 0.0, "stderr": 0.0}}
    for name in ("cascade", "positions"):
        why = lists.not_a_cascade() if name == "cascade" else not_identified(kept)
        if why is not None:
            candidates[name] = {"reason": why}
            continue
        if name == "cascade":
            seen, seen_out = (observed_rows(part, Lists.of(part)) for part in (kept, out))
            rows_seen = split._replace(kept=engine_of(seen), held_out=seen_out)
            other = ArmsLearner(bernoulli).select(rows_seen, chosen)
        else:
            found = learn_examination(kept, chosen[0], options.seed)
            family = PositionClicks([[1.0]], [[1.0]], examination=found.values)
            other = ArmsLearner(family).select(split, chosen)
        scores[name] = other.judged.by_user()
        lead = Estimate.from_values(scores[name] - scores["each"])
        candidates[name] = {"nats_per_user": lead.mean, "stderr": lead.stderr}
    best = max(scores, key=lambda one: scores[one].sum())
    if best == "each" or not clearly_below(scores["each"], scores[best]):
        return "each", "no other click model explains held-out users clearly better", candidates
    lead = Estimate.from_values(scores[best] - scores["each"])
    reason = f"it raises the log evidence of a held-out user by {lead:+} nats over each"
    return best, reason, candidates


def _n_states(log: Log, options: FitOptions, progress: Progress) -> int:
    """Return the given number of states, or the one preferred if every position were looked at."""
    if options.wanted_states is not None:
        return options.wanted_states[0]
    kept, out = log.split_users(0.25, np.random.default_rng(options.seed))
    learner = ArmsLearner(make_family("bernoulli", np.array([0.0, 1.0])))
    split = Split(engine_of(kept), out, options.seed, progress)
    return learner.select(split, None).chosen.n_states


def _check_length(model: Positions, lists: Lists) -> None:
    try:
        model.check_length(lists.rewards.shape[1])
    except ValueError as error:
        raise LogError(str(error)) from None


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise LogError(reason)

"""From a log to a model: choose, learn, judge on users held out, and say how wrong it may be."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from latentbandits.learning import report, user_hash
from latentbandits.learning.arms.families import REWARDS, Rewards
from latentbandits.learning.arms.learner import ArmsLearner, Method
from latentbandits.learning.cautions import cautions
from latentbandits.learning.formats import DETECTED, LogError, TextFormat
from latentbandits.learning.interactions import Interactions, read_interactions
from latentbandits.learning.learners import Learned, Learner
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs import Duplicates, Log
from latentbandits.learning.progress import Progress, Silent
from latentbandits.learning.selection import Candidate, Selection, judge
from latentbandits.learning.tables import TableSource
from latentbandits.learning.uncertainty import bootstrap as bootstrap_fits
from latentbandits.learning.verdict import judge_policies, unjudged
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.checks import positive_count

Kind = Literal["auto", "linear", "arms"]
Auto = Literal["auto"]

MOST_ARMS = 50
"""Actions up to which `auto` learns a model of arms."""

HELD_OUT = 0.2
MOST_HELD_OUT = 2_000
"""Share of users that choices and calibration are judged on, and how many are enough."""


@dataclass(frozen=True, eq=False)
class Fit:
    """What was learned: the model of all users, its catalogue, and the report on it."""

    model: Any  # BernoulliArms, GaussianArms, ..., LinearGaussian
    catalogue: Catalogue
    report: dict[str, Any]


def fit(
    log: Log | TableSource,
    *,
    user: str | None = None,
    action: str | None = None,
    reward: str | None = None,
    order: str | None = None,
    unrewarded: float | None = None,
    text_format: TextFormat = DETECTED,
    kind: Kind = "auto",
    rewards: Rewards | Auto = "auto",
    states: int | Auto = "auto",
    rank: int | Auto = "auto",
    reg: float | Auto = "auto",
    method: Method = "em",
    noise: float | None = None,
    bootstrap: int = 20,
    duplicates: Duplicates | Auto = "auto",
    names: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Learn a model with its own uncertainty from a table of past interactions.

    `kind` "arms" is a mixture over users of per-state action means; "linear" completes the user x
    action matrix at `rank` with regularisation `reg` and clusters the users' vectors (Section
    5.2); "auto" is arms up to 50 actions. `rewards` is the family of the rewards of arms. Settings
    that are "auto" are chosen by the evidence of held-out users. `bootstrap` fits to resampled
    users widen the prior by what they disagree on. `names` are the actions' names by id.
    Columns that are not named are found: user or session, action, reward. An export of the service
    is a log as it is, and `unrewarded` is the reward of its decisions that got none (None: they
    are dropped).

    >>> from latentbandits.learning.generate_arms import generate_arms
    >>> log = generate_arms(n_users=300, n_rounds=20, n_states=2, n_actions=3).log
    >>> fit(log, states="auto", bootstrap=5).model.n_states
    2
    """
    started = time.perf_counter()
    bar = Silent() if progress is None else progress
    if bootstrap:
        positive_count("bootstrap", bootstrap)
    bar.start("reading the log", 1)
    read = (
        Interactions(log)
        if isinstance(log, Log)
        else read_interactions(
            log,
            user=user,
            action=action,
            reward=reward,
            order=order,
            text_format=text_format,
            unrewarded=unrewarded,
        )
    )
    raw = read.log
    form = _kind(kind, raw)
    _check_options(form, method, reg, rewards)
    _check_sizes(form, states, rank, raw)
    merge = duplicates if duplicates != "auto" else "keep"
    log = raw.merged(merge)
    kept, held_out = split_users(log, seed)
    learner = _learner(form, log, rewards, method, noise, rank, reg)
    wanted = None if states == "auto" else (states,)
    selection = learner.select(kept, held_out, wanted, seed, bar)
    bar.start("learning from all users", 1)
    selection, learned = _learn_all(selection, log, kept, held_out, seed)
    disagreement = None
    if bootstrap:
        disagreement = bootstrap_fits(
            selection.learner, log, learned, selection.chosen, bootstrap, seed=seed, progress=bar
        )
        learned = selection.learner.widened(learned, disagreement)
    judgement = judge_policies(selection.learned, kept, held_out, seed=seed, progress=bar)
    catalogue = Catalogue(log.action_ids, _names(log, names), learned.features)
    asked = {"states": states, "rank": rank, "reg": reg, "kind": kind, "rewards": rewards}
    settings = {"kind": form, "states": learned.model.n_states, "rank": selection.chosen.rank}
    settings |= selection.learner.settings()
    settings |= {"bootstrap": bootstrap, "seed": seed, "asked": asked}
    content: dict[str, Any] = {
        "family": settings.get("rewards", "gaussian"),
        "settings": settings,
        "judgement": unjudged() if judgement is None else judgement.report(),
        "log": report.of_log(raw, merge) | report.of_unrewarded(read),
        "selection": report.of_selection(selection.rows, selection.chosen),
        "states": report.of_states(learned, catalogue),
        "held_out": report.of_held_out(selection.judged, kept, held_out),
        "uncertainty": report.of_uncertainty(learned, disagreement, bootstrap, seed),
    }
    content["warnings"] = [*selection.warnings, *cautions(raw, learned, content)]
    content["seconds"] = round(time.perf_counter() - started, 2)
    return Fit(learned.model, catalogue, content)


def split_users(log: Log, seed: int) -> tuple[Log, Log]:
    """Two logs: of the users that are kept, and of those held out; a hash of the id decides."""
    share = min(HELD_OUT, MOST_HELD_OUT / log.n_users)
    n_held_out = min(max(round(share * log.n_users), 1), log.n_users - 1)
    out = user_hash.held_out(user_hash.user_keys(log.user_ids), n_held_out, seed)
    return log.of_users(np.flatnonzero(~out)), log.of_users(np.flatnonzero(out))


def _learner(
    kind: Literal["linear", "arms"],
    log: Log,
    rewards: Rewards | Auto,
    method: Method,
    noise: float | None,
    rank: int | Auto,
    reg: float | Auto,
) -> Learner:
    family: Rewards = "gaussian" if rewards == "auto" else rewards
    if rewards == "auto" and np.isin(log.rewards, (0.0, 1.0)).all() and np.ptp(log.rewards) > 0:
        family = "bernoulli"
    if kind == "arms":
        return ArmsLearner(family, method=method, noise=noise)
    if family not in ("gaussian", "bernoulli"):
        raise LogError(f"a linear model has gaussian or bernoulli rewards, not {family}")
    if family == "bernoulli" and not np.isin(log.rewards, (0.0, 1.0)).all():
        outside = log.rewards[~np.isin(log.rewards, (0.0, 1.0))]
        raise LogError(
            f"bernoulli rewards are 0 or 1; {len(outside):,} of {log.n_events:,} are not, such as "
            f"{outside[0]:g}"
        )
    penalty = None if reg == "auto" else reg
    return LinearLearner(
        reg=penalty, rank=None if rank == "auto" else rank, noise=noise, rewards=family
    )


def _learn_all(
    selection: Selection, log: Log, kept: Log, held_out: Log, seed: int
) -> tuple[Selection, Learned]:
    """Learn the choice from all users; the next one where clusters of all come out too small."""
    first = selection.chosen
    while True:
        try:
            learned = selection.learner.learn(log, selection.chosen, seed)
            break
        except ValueError as error:
            chosen = selection.chosen
            failed = replace(chosen, evidence=None, rmse=None, reason=f"of all users: {error}")
            rows: tuple[Candidate, ...] = tuple(
                failed if row is chosen else row for row in selection.rows
            )
            if all(row.evidence is None for row in rows):
                raise
            selection = replace(selection, rows=rows, chosen=selection.learner.choose(rows))
    if selection.chosen is not first:
        kept_model = selection.learner.learn(kept, selection.chosen, seed)
        selection = replace(selection, learned=kept_model, judged=judge(kept_model, held_out))
    return selection, learned


def _kind(kind: Kind, log: Log) -> Literal["linear", "arms"]:
    if kind not in get_args(Kind):
        raise LogError(f"kind must be one of {', '.join(get_args(Kind))}; got {kind!r}")
    if kind == "auto":
        return "arms" if log.n_actions <= MOST_ARMS else "linear"
    return kind


def _check_options(
    kind: Literal["linear", "arms"], method: Method, reg: float | Auto, rewards: Rewards | Auto
) -> None:
    """An option of the other kind is a misunderstanding, not something to ignore."""
    if rewards != "auto" and rewards not in REWARDS:
        raise LogError(f"rewards must be one of auto, {', '.join(REWARDS)}; got {rewards!r}")
    if method not in get_args(Method):
        raise LogError(f"method must be one of {', '.join(get_args(Method))}; got {method!r}")
    if kind == "linear" and method != "em":
        raise LogError(f"method {method} is for models of --kind arms; this one is linear")
    if kind == "arms" and reg != "auto":
        raise LogError("reg is for models of --kind linear; a model of arms has none")


def _check_sizes(
    kind: Literal["linear", "arms"], states: int | Auto, rank: int | Auto, log: Log
) -> None:
    """What can be refused before any work."""
    if states != "auto" and positive_count("states", states) > log.n_users:
        raise LogError(
            f"{states} states are more than the log's {log.n_users:,} users: ask for fewer"
        )
    if rank == "auto":
        return
    if kind == "arms":
        raise LogError("rank is for models of --kind linear; a model of arms has none")
    most = min(log.n_users, log.n_actions)
    if positive_count("rank", rank) > most:
        raise LogError(
            f"rank {rank} is above what the data hold: {log.n_users:,} users x "
            f"{log.n_actions:,} actions have rank {most} at most"
        )


def _names(log: Log, names: Mapping[str, str] | None) -> list[str] | None:
    return None if names is None else [names.get(i, i) for i in log.action_ids]

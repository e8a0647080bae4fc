"""Learn a model from a log: select, fit, evaluate on held-out users, estimate the errors."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms.choose_family import FamilyChoice, choose_family
from latentbandits.learning.arms.families import Rewards, make_family
from latentbandits.learning.arms.learner import LARGE, ArmsLearner, Method
from latentbandits.learning.arms.starts import earlier_means
from latentbandits.learning.assess import report
from latentbandits.learning.assess.cautions import cautions
from latentbandits.learning.assess.verdict import judge_policies, unjudged
from latentbandits.learning.attributes import requests as side
from latentbandits.learning.attributes.attribute_gain import learn_gate
from latentbandits.learning.attributes.gated_states import choose_states
from latentbandits.learning.attributes.items import learn_items, read_items
from latentbandits.learning.attributes.row_learner import RowLearner
from latentbandits.learning.backends.backend import Engine, Merged
from latentbandits.learning.backends.memory import engine_of
from latentbandits.learning.backends.opening import EngineName, Opening, opened
from latentbandits.learning.fit_options import (
    Auto,
    Kind,
    check_kind,
    check_options,
    check_rewards,
    check_sizes,
    kind_of,
)
from latentbandits.learning.learners import Learned, Learner
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.formats import DETECTED, TextFormat
from latentbandits.learning.logs.interactions import OnEngine
from latentbandits.learning.logs.rows import Duplicates, Log, check_duplicates
from latentbandits.learning.logs.summary import RewardSummary
from latentbandits.learning.logs.tables import TableSource
from latentbandits.learning.selection import Candidate, Selection, judge
from latentbandits.learning.transforms import Transform, Transformed, TransformedLearner
from latentbandits.learning.uncertainty import bootstrap as bootstrap_fits
from latentbandits.learning.uncertainty import widened
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.checks import positive_count
from latentbandits.report.report import Progress, Silent

CHOSEN_ON = 2_000_000
"""Size of the sample of rewards for choices and bootstrap, if a log has more than LARGE."""

HELD_OUT = 0.2
MOST_HELD_OUT = 2_000
"""The share of users that are held out for choices and calibration, and their largest number."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the model of all users, its catalogue, and the report on it."""

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
    transform: Transform | None = None,
    states: int | Auto = "auto",
    rank: int | Auto = "auto",
    reg: float | Auto = "auto",
    method: Method = "em",
    noise: float | None = None,
    bootstrap: int = 20,
    duplicates: Duplicates | Auto = "auto",
    names: Mapping[str, str] | None = None,
    user_features: Sequence[str] = (),
    features: Sequence[str] = (),
    item_features: TableSource | None = None,
    earlier: tuple[Any, Catalogue | None] | None = None,
    seed: int = 0,
    engine: EngineName | Auto = "auto",
    scratch: str | os.PathLike[str] | None = None,
    partitions: str | os.PathLike[str] | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Learn a model with its own uncertainty from a table of past interactions.

    Settings that are "auto" are chosen by the evidence of held-out users. If there are more than
    10,000,000 rewards, choices are made on a sample of users, and the chosen model is learned from
    all.

    Args:
        log: a table of interactions (a path, folder, glob or list of these, or a frame), or a
            `Log`. An export of the service is one too.
        user: column of users; None: found ("user" or "session").
        action: column of actions; None: found.
        reward: column of rewards; None: found.
        order: column that orders a user's rows; None: the order of the table.
        unrewarded: reward of decisions of an export that got none; None: they are dropped.
        text_format: separator, encoding and columns of delimited text; detected by default.
        kind: "arms" is a mixture over users of per-state action means; "linear" completes the user
            x action matrix and clusters the users' vectors (Section 5.2); "auto" is arms up to 50
            actions.
        rewards: family of the rewards of arms.
        transform: "log1p" or "sqrt": model transformed rewards as Gaussian, and decide on original
            ones.
        states: number of latent states.
        rank: rank of the completed matrix, for "linear".
        reg: regularisation of the completion, for "linear".
        method: "em" or "spectral", for "arms".
        noise: standard deviation of Gaussian rewards; None: estimated.
        bootstrap: number of fits to resampled users; their variance is added to the prior.
        duplicates: rule for several rewards of one user for one action.
        names: the actions' names by id.
        user_features: columns with attributes of users: the model gets a gate P1(s | z), and
            `decide` takes these attributes by name.
        features: columns with features of each row (its context, or attributes of its action; `a*b`
            is an interaction): the model is a mixture of regressions on them, and requests send
            them by name.
        item_features: table with attributes of the actions, from which new ones are predicted
            (`POST /v1/actions`).
        earlier: a model and its catalogue, which are one of the starts of a fit of arms.
        seed: of all randomness.
        engine: where the log is summed: "memory"; "out_of_core", for a folder of Parquet larger
            than memory; "spark". "auto" depends on the size of the files. All engines learn the
            same model.
        scratch: folder for the partitions of "out_of_core".
        partitions: folder in which these partitions are kept for the next fit.
        master: address of the Spark cluster; a Spark DataFrame has its own.
        progress: counts the steps of the fit.

    >>> from latentbandits.learning.generate import generate_arms
    >>> log = generate_arms(n_users=300, n_rounds=20, n_states=2, n_actions=3).log
    >>> fit(log, states="auto", bootstrap=5).model.n_states
    2
    """
    started = time.perf_counter()
    bar = Silent() if progress is None else progress
    if bootstrap:
        positive_count("bootstrap", bootstrap)
    features = features or side.default_features(log, text_format)
    options = Options(
        kind, rewards, transform, states, rank, reg, method, noise, bootstrap, duplicates, names,
        user_features, features, action, earlier, seed, item_features,
    )  # fmt: skip
    more = side.columns(user_features, features, user, reward)
    if features:
        side.check_kind(kind, rank, transform, item_features)
    elif kind != "auto":
        check_options(check_kind(kind), method, reg, rewards, transform, noise)
    opening = Opening(
        engine=engine,
        user=user,
        action=action,
        reward=reward,
        order=order,
        unrewarded=unrewarded,
        more=more,
        text_format=text_format,
        scratch=scratch,
        partitions=partitions,
        master=master,
    )
    with opened(log, opening, bar) as opened_log:
        # Only a log that fits into memory is read again to name the row of a bad reward.
        source = log if opened_log.engine.name == "memory" else opened_log.engine
        check_rewards(opened_log.engine.summary, rewards, transform, source, reward, text_format)
        learned = _fit(opened_log, options, bar)
    learned.report["seconds"] = round(time.perf_counter() - started, 2)
    return learned


@dataclass(frozen=True, eq=False)
class Options:
    """The options of `fit`."""

    kind: Kind
    rewards: Rewards | Auto
    transform: Transform | None
    states: int | Auto
    rank: int | Auto
    reg: float | Auto
    method: Method
    noise: float | None
    bootstrap: int
    duplicates: Duplicates | Auto
    names: Mapping[str, str] | None
    user_features: Sequence[str]
    features: Sequence[str]
    action: str | None
    earlier: tuple[Any, Catalogue | None] | None
    seed: int
    item_features: TableSource | None = None


def _fit(opened_log: OnEngine, options: Options, bar: Progress) -> Fit:
    """Select, learn and evaluate a model on a log that is open."""
    seed, transform, rewards = options.seed, options.transform, options.rewards
    columns = options.user_features, options.features, options.action
    beside = side.learn_side(opened_log.engine, *columns)
    raw, attributes = beside.log, beside.users
    items = None
    if options.item_features is not None:
        items = read_items(options.item_features, options.action, raw.action_ids)
    form = kind_of(options.kind, raw)
    if beside.rows is not None:
        form = "linear"
    check_options(form, options.method, options.reg, rewards, transform, options.noise)
    check_sizes(form, options.states, options.rank, raw)
    merge: Duplicates = "keep" if options.duplicates == "auto" else options.duplicates
    everyone = raw if merge == "keep" else raw.mapped(Merged(check_duplicates(merge)))
    kept, held_out = everyone.split(held_out_count(everyone.n_users), seed)
    few = few_users(kept, seed)
    families = None
    if beside.rows is not None:
        clicks = rewards == "bernoulli" or (rewards == "auto" and _are_clicks(everyone, None))
        learner: Learner = RowLearner(beside.rows, clicks)
    elif form == "arms":
        families = _family(kept, held_out, rewards, transform, options.noise, seed, bar)
        family = make_family(families.rewards, _units(everyone, transform), options.noise)
        known = None
        if options.earlier is not None:
            known = earlier_means(*options.earlier, everyone.action_ids)
        learner = ArmsLearner(family, method=options.method, earlier=known)
    else:
        clicks = rewards == "bernoulli" or (rewards == "auto" and _are_clicks(everyone, transform))
        learner = LinearLearner(
            reg=None if options.reg == "auto" else options.reg,
            rank=None if options.rank == "auto" else options.rank,
            noise=options.noise,
            rewards="bernoulli" if clicks else "gaussian",
        )
    if transform is not None:
        learner = TransformedLearner(learner, transform)
    wanted = None if options.states == "auto" else (options.states,)
    selection = learner.select(few, held_out, wanted, seed, bar)
    if attributes is not None and wanted is None:
        selection = choose_states(learner, selection, few, held_out, seed, bar)
    if families is not None:
        selection = replace(selection, warnings=families.warnings + selection.warnings)
    bar.start("learning from all users", 1)
    selection, learned = _learn_all(selection, everyone, few, held_out, seed)
    disagreement = widening = None
    if options.bootstrap:
        whole = (everyone, learned) if few is kept else (few, selection.learned)
        disagreement = bootstrap_fits(
            selection.learner,
            *whole,
            selection.chosen,
            options.bootstrap,
            seed=seed,
            progress=bar,
        )
        if few is not kept:
            disagreement = disagreement.of_more_users(
                selection.learned, learned, few.n_users / everyone.n_users
            )
        learned, widening = widened(selection.learner, learned, disagreement, everyone.summary)
    doubts = report.doubts(selection.judged, kept.summary)
    judgement = judge_policies(
        selection.learned, kept, held_out, written=learned, doubts=doubts, seed=seed, progress=bar
    )
    if judgement:
        judged = judgement.report()
    else:
        judged = unjudged(learned, doubts=doubts, seed=seed, progress=bar)
    gate_report = None
    if attributes is not None:
        bar.start("learning what users' attributes say", 1)
        policy = judged["recommended_policy"]
        gated = learn_gate(
            attributes, selection.learned, learned, few, held_out, everyone, policy, seed
        )
        learned, gate_report = gated.learned, gated.report
    item_report = None
    if items is not None:
        bar.start("learning what items' attributes say", 1)
        learned, item_report = learn_items(selection.learned, learned, held_out, items, seed)
    names = _names(everyone.action_ids, options.names)
    vectors = learned.features if beside.rows is None else None  # else requests send them
    catalogue = Catalogue(everyone.action_ids, names, vectors)
    requested: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("states", "rank", "reg", "kind", "rewards", "transform")
    }
    form_name = form if beside.rows is None else "features"
    settings = {"kind": form_name, "states": learned.model.n_states, "rank": selection.chosen.rank}
    settings |= selection.learner.settings()
    settings |= {"bootstrap": options.bootstrap, "seed": seed, "asked": requested}
    content: dict[str, Any] = {
        "family": settings.get("rewards", "gaussian"),
        "settings": settings,
        "engine": opened_log.report() | {"users_chosen_on": few.n_users},
        "judgement": judged,
        "families": None if families is None else families.report(),
        "log": report.of_log(raw.summary, merge) | report.of_unrewarded(opened_log.read),
        "selection": report.of_selection(selection.rows, selection.chosen),
        "states": report.of_states(learned, catalogue),
        "held_out": report.of_held_out(selection.judged, kept.summary, held_out),
        "uncertainty": report.of_uncertainty(learned, disagreement, options.bootstrap, seed),
        "widening": widening,
        "user_features": gate_report,
        "item_features": item_report,
    }
    content["warnings"] = [*selection.warnings, *cautions(raw, learned, content)]
    return Fit(learned.model, catalogue, content)


def few_users(log: Engine, seed: int) -> Engine:
    """Return the users that choices are made on: all, or a sample if the log is large.

    The rule depends only on the numbers of users and rewards, so that all engines choose alike.
    """
    if log.n_events <= LARGE:
        return log
    size = max(round(CHOSEN_ON * log.n_users / log.n_events), 1)
    return engine_of(log.sample(size, seed))


def held_out_count(n_users: int) -> int:
    """Return how many of a log's users are held out."""
    share = min(HELD_OUT, MOST_HELD_OUT / n_users)
    return min(max(round(share * n_users), 1), n_users - 1)


def split_users(log: Log, seed: int) -> tuple[Log, Log]:
    """Return the log of kept users and that of held-out users, split by a hash of the id."""
    out = user_hash.held_out(log.keys, held_out_count(log.n_users), seed)
    return log.of_users(np.flatnonzero(~out)), log.of_users(np.flatnonzero(out))


def _family(
    kept: Engine,
    held_out: Log,
    rewards: Rewards | Auto,
    transform: Transform | None,
    noise: float | None,
    seed: int,
    progress: Progress,
) -> FamilyChoice:
    if transform is not None:
        return FamilyChoice("gaussian", f"the rewards are transformed by {transform}")
    if noise is not None:
        return FamilyChoice("gaussian", "the noise of gaussian rewards was given")
    requested = None if rewards == "auto" else rewards
    return choose_family(kept, held_out, requested=requested, seed=seed, progress=progress)


def _are_clicks(log: Engine, transform: Transform | None) -> bool:
    """Return whether the rewards are 0 and 1, both occur, and no transform changes them."""
    summary = log.summary.rewards
    binary = not summary.outside["bernoulli"].n and summary.least < summary.most
    return binary and transform is None


def _units(log: Engine, transform: Transform | None) -> RewardSummary:
    """Return the summary of the rewards, transformed if the learner transforms them."""
    seen = log if transform is None else log.mapped(Transformed(transform))
    return seen.summary.rewards


def _learn_all(
    selection: Selection, log: Engine, kept: Engine, held_out: Log, seed: int
) -> tuple[Selection, Learned]:
    """Learn the choice from all users; if a cluster is too small, learn the next best choice."""
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


def _names(ids: tuple[str, ...], names: Mapping[str, str] | None) -> list[str] | None:
    return None if names is None else [names.get(i, i) for i in ids]

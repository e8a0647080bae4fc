"""Read a log for a fit: number and sum its users, and hold some of them out.

Some users are held out: one half of them for choices, the other for the verdict. The kept users, or
a sample of many, are learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms.learner import LARGE
from latentbandits.learning.assess import report
from latentbandits.learning.assess.list_replay import ListRounds
from latentbandits.learning.assess.replay import Playing
from latentbandits.learning.attributes.encoding import EncodedLog, UserAttributes, encode_log
from latentbandits.learning.attributes.items import ItemTable, read_items
from latentbandits.learning.backends.backend import AnyLog, LogEngine, Without, engine_of
from latentbandits.learning.backends.opening import Interactions, opened
from latentbandits.learning.fit_options import (
    FitOptions,
    attribute_columns,
    check_kind,
    check_no_other_kind,
    check_rewards,
    default_features,
    first_row,
    kinds_of,
    with_lists,
)
from latentbandits.learning.learners import Learned, Split
from latentbandits.learning.lists import ClickChoice, choose_click_model, number_lists
from latentbandits.learning.logs.rows import Duplicates, Log, check_duplicates
from latentbandits.learning.logs.tables import LogError, TableSource, column_names, parts_of
from latentbandits.learning.rewards import without_outliers
from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.checks import positive_count
from latentbandits.models.protocol import with_defaults
from latentbandits.report.report import Progress

CHOSEN_ON = 2_000_000
"""Size of the sample of rewards for choices and bootstrap, if a log has more than LARGE."""

QUICK_ON = 100_000
"""Size of this sample for a quick fit, if a log has more."""

HELD_OUT = 0.3
MOST_HELD_OUT = 2_000
"""The share of users that are held out, and their largest number: half of them for choices, half
for the verdict."""


class Users(NamedTuple):
    """The users of a log, ready to be learned from; rewards of a pair are merged as requested."""

    everyone: LogEngine
    kept: LogEngine  # without the held-out users
    split: Split  # for choices: the kept users, or a sample of many, and half of the held-out ones
    judging: Log  # the other half of the held-out users, for the verdict
    attributes: UserAttributes | None  # of users
    rows: Encoder | None  # of the features of rows
    items: ItemTable | None
    confoundable: bool  # whether the log lacks propensities
    about: dict[str, Any]  # what the report says about the log
    shown: ClickChoice | None = None  # how users look at lists; None: actions are shown alone

    @property
    def lists(self) -> ListRounds | None:
        """The lists that rounds of replay show; None: single actions."""
        return None if self.shown is None else self.shown.rounds

    def playing(self, options: FitOptions, learned: Learned) -> Playing:
        """Return how users are played.

        A quick fit plays each user once if beliefs are particles, which take longer than all the
        rest.
        """
        once = options.quick and with_defaults(learned.model).is_sampled
        return Playing(self.lists, 1 if once else None, self.split.seed, self.split.progress)


@contextmanager
def read_users(log: Log | TableSource, options: FitOptions, bar: Progress) -> Iterator[Users]:
    """Read a log and hold users out; scratch files are removed afterwards."""
    if options.bootstrap:
        positive_count("bootstrap", options.bootstrap)
    options = with_lists(options, log)
    if not options.features:
        options = replace(options, features=default_features(log, options.text_format))
    if options.features:
        check_no_other_kind(options.kind, options.rank, options.transform, options.item_features)
    elif options.kind != "auto":
        options.check(check_kind(options.kind))
    more = attribute_columns(options.user_features, options.features, options.user, options.reward)
    with opened(log, replace(options, more=more), bar) as opened_log:
        # Only a log that fits into memory is read again to name the row of a bad reward.
        source = log if opened_log.engine.name == "memory" else opened_log.engine
        check_rewards(opened_log.engine.summary, source, options)
        engine, far, shown = opened_log.engine, None, None
        if options.list is not None and opened_log.read is not None:
            engine, shown = _in_lists(opened_log.read, options, bar)
        if _may_have_outliers(options, engine):
            engine, far = without_outliers(engine, options.seed)
        encoded = EncodedLog(engine)
        if options.user_features or options.features:
            encoded = encode_log(engine, options.user_features, options.features, options.action)
        raw = encoded.log
        items = None
        if options.item_features is not None:
            items = read_items(options.item_features, options.action, raw.action_ids)
        merge: Duplicates = "keep" if options.duplicates == "auto" else options.duplicates
        merged = partial(Log.merged, duplicates=check_duplicates(merge))
        everyone = raw if merge == "keep" else raw.mapped(merged)
        kept, held_out, *_ = split_users(everyone, options.seed)
        few = few_users(kept, options.seed, quick=options.quick)
        about: dict[str, Any] = {
            "engine": opened_log.report() | {"users_chosen_on": few.n_users},
            "log": report.of_log(raw.summary, merge) | report.of_unrewarded(opened_log.read),
            "lists": None if shown is None else shown.report(),
            "warnings": [],
        }
        if far is not None:
            about["warnings"] = [far.warning(first_row(source, options, far.outside))]
        choosing, judging = halves_of(held_out, kept, options.seed)
        split = Split(few, choosing, options.seed, bar)
        confoundable = not has_propensities(log)
        yield Users(
            everyone, kept, split, judging, encoded.users, encoded.rows, items, confoundable, about,
            shown,
        )  # fmt: skip


def _in_lists(
    read: Interactions, options: FitOptions, bar: Progress
) -> tuple[LogEngine, ClickChoice]:
    """Return the observed rows of a log of lists, and how its users look at lists."""
    assert options.list is not None
    assert options.position is not None
    log = number_lists(read.log, options.list, options.position)
    log, choice = choose_click_model(log, options, bar)
    if options.unrewarded is None:
        choice.about["not_observed"] += read.n_unrewarded
    if choice.family is not None:
        _check_positions(options)
    if not (options.features or options.user_features):
        log = replace(log, beside=None)
    return engine_of(log), choice


def _check_positions(options: FitOptions) -> None:
    """Refuse options that a model of clicks at positions does not have."""
    wrong = {
        "rewards": options.rewards not in ("auto", "bernoulli"),
        "kind": options.kind == "linear",
        "transform": options.transform is not None,
        "method": options.method != "em",
        "features": bool(options.features),
        "user_features": bool(options.user_features),
        "item_features": options.item_features is not None,
    }
    for name, refused in wrong.items():
        if refused:
            raise LogError(
                f"the click model positions learns bernoulli arms; {name} {getattr(options, name)} "
                "is not for it: leave it out, or take --click-model each or cascade"
            )


def _may_have_outliers(options: FitOptions, log: LogEngine) -> bool:
    """Return whether rewards may be modelled as Gaussian arms, whose noise is not given."""
    gaussian = options.rewards in ("auto", "gaussian") and options.transform is None
    arms = not options.features and "arms" in kinds_of(options.kind, log, options.check)
    return gaussian and arms and options.noise is None


def halves_of(held_out: Log, kept: LogEngine, seed: int) -> tuple[Log, Log]:
    """Return the held-out users for choices, and those for the verdict.

    If a half has no action in common with the kept users, both are all held-out users.
    """
    first = np.zeros(held_out.n_users, np.bool_)
    first[user_hash.sample(held_out.keys, held_out.n_users // 2, seed)] = True
    halves = tuple(held_out.of_users(np.flatnonzero(half)) for half in (first, ~first))
    known = kept.action_counts > 0
    if not all(known[half.actions].any() for half in halves):
        return held_out, held_out
    return halves[0], halves[1]


class Part(NamedTuple):
    """Further users for the verdict, and all other users, from whom their model is learned."""

    users: Log
    others: LogEngine


def further_parts(users: Users, options: FitOptions) -> tuple[Part, ...]:
    """Return two parts of the kept users that are judged too, if few users were held out.

    Each part is judged under a model learned without it, in the form that was chosen on other
    users. There are no parts in a quick fit, and none with attributes of users, rows or items: such
    models are judged by the held-out users alone.
    """
    attributes = (users.attributes, users.rows, users.items)
    wanted = min(users.kept.n_users, MOST_HELD_OUT // 2 - users.judging.n_users)
    if options.quick or wanted < 2 or any(part is not None for part in attributes):
        return ()
    rest, parts = users.kept, []
    for _ in range(2):
        rest, log = rest.split(wanted // 2, options.seed)
        parts.append(Part(log, users.everyone.mapped(Without(log.keys))))
    return tuple(parts)


def few_users(log: LogEngine, seed: int, *, quick: bool = False) -> LogEngine:
    """Return the users that choices are made on: all, or a sample if the log is large.

    The rule depends only on the numbers of users and rewards, so that all engines choose alike.
    """
    if log.n_events <= (QUICK_ON if quick else LARGE):
        return log
    wanted = QUICK_ON if quick else CHOSEN_ON
    size = max(round(wanted * log.n_users / log.n_events), 1)
    return engine_of(log.sample(size, seed))


def held_out_count(n_users: int) -> int:
    """Return how many of a log's users are held out."""
    share = min(HELD_OUT, MOST_HELD_OUT / n_users)
    return min(max(round(share * n_users), 1), n_users - 1)


def split_users(log: AnyLog, seed: int) -> Split:
    """Hold out some of the users, chosen by a hash of the id."""
    engine = engine_of(log)
    return Split(*engine.split(held_out_count(engine.n_users), seed), seed)


PROPENSITIES = ("propensity", "propensity_score", "probability", "pscore")
"""Columns of a log that hold the probability of the chosen action."""


def has_propensities(log: Log | TableSource) -> bool:
    """Return whether a table has a column of propensities.

    >>> has_propensities({"user": [1], "action": ["a"], "reward": [0], "propensity": [0.5]})
    True
    """
    if isinstance(log, Log):
        return False
    names = (name for part in parts_of(log) for name in column_names(part))
    return any(name.lower() in PROPENSITIES for name in names)

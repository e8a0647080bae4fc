"""Predict new items by ridge regression from attributes of items to their learned parameters.

The targets are the items' vectors (linear models) or their mean rewards in every state (arms). An
item with n rewards has weight n / (n + 10). The ridge minimises the leave-one-out error of expected
rewards, if that is clearly less than the error of the average item; else attributes are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from latentbandits.learning.assess.replay import PolicyPlayer, playable_rounds, replay
from latentbandits.learning.attributes.encoding import encode, learn_column
from latentbandits.learning.learners import CLEAR, Learned
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import (
    LogError,
    TableSource,
    as_text,
    column_names,
    read_table,
)
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.attributes.items import Items, add_predicted
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.checks import FloatArray
from latentbandits.models.growing import add_average
from latentbandits.models.protocol import with_defaults
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.report.report import Estimate

RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
ROUNDS = 20
"""Number of rounds of replay over which the reward of new items is averaged."""

_WORTH = 10.0  # rewards at which an item has weight 1/2
_HELD_OUT = 5  # one in this many items is held out for replay
_MOST_USERS = 500


class ItemTable(NamedTuple):
    """Attributes of items, encoded, in the order of the log's actions."""

    encoder: Encoder
    encoded: FloatArray  # (n_actions, len(encoder)); zeros for items that the table lacks
    known: Any  # (n_actions,): whether the table has the item
    left_out: list[str]  # columns that cannot be encoded


def read_items(source: TableSource, action: str | None, action_ids: Sequence[str]) -> ItemTable:
    """Read a table with one row for each item: the column of ids, and attributes in all others.

    The column of ids has the name of the log's column of actions, or is "action" or "id".
    """
    names = column_names(source)
    column = next((name for name in (action, "action", "id") if name in names), None)
    if column is None:
        raise LogError(
            f"--item-features needs a column of ids, named {action or 'action'} or id; its columns "
            f"are {', '.join(names)}"
        )
    others = [name for name in names if name != column]
    if not others:
        raise LogError(f"--item-features has no columns beside {column}: nothing is known of items")
    table = read_table(source, [column, *others], text=(column,)).frame
    ids = as_text(table[column])
    if ids.null_count():
        raise LogError(
            f"--item-features has no value of {column} in {ids.null_count():,} of its rows: give "
            "each item its id, or drop those rows"
        )
    repeated = ids.filter(ids.is_duplicated())
    if len(repeated):
        raise LogError(
            f"--item-features has {len(repeated.unique()):,} ids in several rows, for instance "
            f"{repeated[0]!r}: give one row for each item"
        )
    wanted = pl.DataFrame({"wanted": list(action_ids)})
    table = wanted.join(
        table.with_columns(ids.alias("wanted"), pl.lit(True).alias("is there")),
        on="wanted", how="left", maintain_order="left",
    )  # fmt: skip
    known = table["is there"].fill_null(False).to_numpy().astype(np.bool_)
    if known.sum() < 2:
        raise LogError(
            f"--item-features has {int(known.sum())} of the log's {len(action_ids):,} actions in "
            f"its column {column}: are these the same ids?"
        )
    columns, left_out, reasons = [], [], []
    for name in others:
        try:
            columns.append(learn_column(table.filter(pl.col("is there"))[name], name))
        except LogError as error:
            left_out.append(name)
            reasons.append(str(error))
    if not columns:
        raise LogError(f"no column of --item-features can be used: {reasons[0]}")
    encoder = Encoder(tuple(columns))
    encoded = np.zeros((len(action_ids), len(encoder)))
    encoded[known] = encode(encoder, table.filter(pl.col("is there")))
    return ItemTable(encoder, encoded, known, left_out)


class ItemFit(NamedTuple):
    """A regression and its leave-one-out error."""

    items: Items
    ridge: float  # infinite if attributes are not used
    explained: float  # share of the variance of expected rewards, for items left out


def targets(learned: Learned) -> tuple[FloatArray, FloatArray]:
    """Return the regression targets of every item, `(n_actions, d)`, and their metric `(d, d)`.

    A squared distance in this metric is a squared difference of expected rewards.
    """
    model = learned.model
    inner: Any = with_defaults(model).untransformed
    prior = np.exp(inner.log_state_prior[0])
    if learned.features is None:
        return inner.expected_rewards(None)[0].T, np.diag(prior)
    d = learned.features.shape[1]
    second = np.zeros((d, d))
    width = inner.weights.shape[1]
    for share, mean, covariance in zip(prior, inner.weights, inner.covariances, strict=True):
        second[:width, :width] += share * (np.outer(mean, mean) + covariance)
    if width < d:  # a known offset in log-odds
        second[width, width] = 1.0
    return learned.features, second


def fit_items(learned: Learned, table: ItemTable, rows: Any) -> ItemFit:
    """Return the regression from the items marked in `rows` (n_actions,)."""
    vectors, metric = targets(learned)
    used = rows & table.known & (learned.counts > 0)
    v, counts = vectors[used], learned.counts[used].astype(np.float64)
    f = np.concatenate([np.ones((len(v), 1)), table.encoded[used]], axis=1)
    weight = counts / (counts + _WORTH)

    def fitted(ridge: float) -> tuple[Items, FloatArray]:
        """Return the regression and the leave-one-out error of every item."""
        precision = np.zeros((f.shape[1], f.shape[1]))
        if ridge == np.inf:
            precision[0, 0] = 1 / weight.sum()
        else:
            penalty = np.diag([0.0] + [ridge] * (f.shape[1] - 1))
            precision = np.linalg.inv((f * weight[:, None]).T @ f + penalty)
        w = precision @ (f * weight[:, None]).T @ v
        leverage = weight * np.einsum("ni,ij,nj->n", f, precision, f)
        left = (v - f @ w) / np.maximum(1 - leverage, 1e-6)[:, None]
        covariance = (left * weight[:, None]).T @ left / weight.sum()
        errors: FloatArray = weight * np.einsum("ni,ij,nj->n", left, metric, left)
        return Items(table.encoder, w, covariance, precision), errors

    average, without = fitted(np.inf)
    tried = [(ridge, *fitted(ridge)) for ridge in RIDGES]
    ridge, items, errors = min(tried, key=lambda one: float(one[2].sum()))
    lead = Estimate.from_values(without - errors)
    if not lead.mean > CLEAR * lead.stderr:
        return ItemFit(average, np.inf, 0.0)
    return ItemFit(items, ridge, 1 - float(errors.sum() / without.sum()))


def learn_items(
    selected: Learned, learned: Learned, held_out: Log, table: ItemTable, seed: int
) -> tuple[Learned, dict[str, Any]]:
    """Return the model with its regression of items, and the report on it.

    `selected` is the model of the kept users; new items are evaluated by replay on the held-out
    users.
    """
    everything = np.ones(len(table.known), np.bool_)
    regression = fit_items(learned, table, everything)
    report = {
        "columns": list(table.encoder.names),
        "left_out_columns": table.left_out,
        "items": int(table.known.sum()),
        "items_without_attributes": int((~table.known).sum()),
        "ridge": None if regression.ridge == np.inf else regression.ridge,
        "explained": regression.explained,
        "replay": reward_of_new(selected, table, held_out, seed),
    }
    return replace(learned, model=with_parts(learned.model, items=regression.items)), report


def reward_of_new(
    learned: Learned, table: ItemTable, held_out: Log, seed: int
) -> list[dict[str, Any]]:
    """Replay held-out users on items that the regression did not see, as if they were new.

    A round offers rows of these items only. Each result is the reward of rounds 1-20 with learned
    vectors, predicted vectors, or the average item's; differences from learned ones are paired.
    """
    rng = np.random.default_rng(seed)
    usable = table.known & (learned.counts > 0)
    new = np.zeros(len(usable), np.bool_)
    places = rng.permutation(np.flatnonzero(usable))
    new[places[: max(len(places) // _HELD_OUT, 1)]] = True
    log = held_out.of_events(new[held_out.actions])
    log = log.of_users(np.arange(min(log.n_users, _MOST_USERS)))
    if int(usable.sum() - new.sum()) < 3 or not playable_rounds(log).any():
        return []
    items = fit_items(learned, table, ~new).items
    ids = [str(i) for i in range(len(new))]
    catalogue = Catalogue(ids, None, learned.features)
    names = [f"new {i}" for i in np.flatnonzero(new)]
    average = add_average(learned.model, catalogue, names)
    predicted = average
    if items.used:
        predicted = add_predicted(learned.model, catalogue, names, items, table.encoded[new])
    moved = np.arange(len(new))
    moved[new] = len(new) + np.arange(int(new.sum()))
    variants = {
        "learned": ((learned.model, catalogue), log),
        "predicted": (predicted, _as(log, moved, predicted[1])),
        "average": (average, _as(log, moved, average[1])),
    }
    rewards = {}
    for name, ((model, grown_catalogue), seen) in variants.items():
        player = PolicyPlayer(mmGreedy(model), len(grown_catalogue), grown_catalogue.features)
        played = replay({"mmGreedy": player}, seen, most_rounds=ROUNDS, seed=seed)
        rewards[name] = np.nanmean(played.rewards["mmGreedy"], axis=1)
    rows = []
    for name, values in rewards.items():
        lead = Estimate.from_values(values - rewards["learned"])
        whole = Estimate.from_values(values)
        rows.append(
            {
                "vectors": name, "reward": whole.mean, "stderr": whole.stderr,
                "over_learned": lead.mean, "over_learned_stderr": lead.stderr, "users": len(values),
            }
        )  # fmt: skip
    return rows


def _as(log: Log, moved: Any, catalogue: Catalogue) -> Log:
    """Return the log with new items numbered in the order in which the catalogue got them."""
    return replace(log, actions=moved[log.actions], action_ids=catalogue.ids)

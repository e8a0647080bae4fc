"""The report of a fit as plain data, for report.json, the page and the command line.

`cautions` are the warnings: conditions under which the report should not be taken at face value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from latentbandits.learning.assess.heldout import HeldOut
from latentbandits.learning.backends.backend import AnyLog, summary_of
from latentbandits.learning.backends.opening import Interactions
from latentbandits.learning.learners import DELTAS, Disagreement, Learned, prior_errors
from latentbandits.learning.logs.rows import DUPLICATES, Duplicates, Log, LogSummary
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import BoolArray, FloatArray, IntArray

LEVELS = (0.5, 0.8, 0.9, 0.95)
BINS = 20
CLEAR = 2.0
"""Standard errors beyond which a model predicts worse than the action's mean."""

FEWEST_COVERED = 0.8
"""Share of rewards that 95% intervals must hold for a model to be acted on."""

SHOWN = 5
"""Number of best and of worst actions that are listed for a state."""

_KNOWN_WELL = 0.8  # share of all rewards that the frequent actions hold
_FEW = 50  # this many actions count as frequent in any case


def of_log(log: LogSummary, duplicates: Duplicates) -> dict[str, Any]:
    return {
        "users": log.n_users,
        "actions": len(log.action_counts),
        "rewards": log.n_events,
        "rewards_per_user": {"least": int(log.lengths[0]), "median": log.median_length,
                             "most": int(log.lengths[-1])},
        "reward_mean": log.rewards.mean,
        "reward_sd": log.rewards.deviation,
        "reward_least": log.rewards.least,
        "reward_most": log.rewards.most,
        "repeated_pairs": log.n_duplicates,
        "repeated_pairs_are": DUPLICATES[duplicates],
        "repeated_rows": log.n_repeated_rows,
    }  # fmt: skip


def of_unrewarded(read: Interactions | None) -> dict[str, Any]:
    """Return how many decisions had no reward, and whether they were dropped or filled."""
    if read is None or not (read.n_unrewarded or read.n_replaced):
        return {}
    return {
        "unrewarded": read.n_unrewarded,
        "unrewarded_reward": read.filled_with,
        "replaced_rows": read.n_replaced,
    }


def of_held_out(
    scores: HeldOut, kept: LogSummary, held_out: Log, reasons: Sequence[str]
) -> dict[str, Any]:
    """Return held-out errors, the errors of the action's mean for comparison, and calibration.

    `reasons` are the doubts about the model's predictions.
    """
    counts = kept.action_counts
    baseline = np.sqrt(np.mean(_errors_of_action_means(scores, kept) ** 2))
    histogram = np.histogram(scores.uniform, BINS, (0.0, 1.0))[0] / len(scores.uniform)
    return {
        "users": len(np.unique(scores.user)),
        "rewards": len(scores.error),
        "rewards_of_unknown_actions": int((counts[held_out.actions] == 0).sum()),
        "evidence": scores.evidence,
        "rmse": scores.rmse,
        "rmse_of_action_means": float(baseline),
        "rmse_by_round": _by_round(scores),
        "coverage": [{"level": level, "covered": scores.coverage(level)} for level in LEVELS],
        "uniform_histogram": histogram.tolist(),
        "doubts": list(reasons),
    }


def doubts(scores: HeldOut, kept: LogSummary) -> tuple[str, ...]:
    """Return the reasons not to act on a model's predictions of held-out rewards; usually none.

    There are two: the model's squared error exceeds the error of the action's mean by more than two
    standard errors of the difference (over users), or the model's 95% intervals hold under 80% of
    the rewards. Clicks have no interval of 95%, so only the first condition applies.
    """
    reasons = []
    excess = scores.sums_by_user(scores.error**2 - _errors_of_action_means(scores, kept) ** 2)
    rows = scores.sums_by_user(np.ones(len(scores.error)))
    mean = excess.sum() / rows.sum()  # of a reward; its error is that of a ratio of sums
    stderr = np.sqrt(np.sum((excess - mean * rows) ** 2)) / rows.sum()
    if len(rows) > 1 and mean > CLEAR * stderr:
        rmse, baseline = (
            np.sqrt(np.mean(errors**2))
            for errors in (scores.error, _errors_of_action_means(scores, kept))
        )
        reasons.append(
            f"the model predicts held-out rewards clearly worse ({rmse:.4g}) than the action's "
            f"mean over all users does ({baseline:.4g})"
        )
    covered = scores.coverage(LEVELS[-1])
    clicks = not kept.rewards.outside["bernoulli"].n
    if not clicks and covered < FEWEST_COVERED:
        reasons.append(
            f"the model's {LEVELS[-1]:.0%} intervals hold only {covered:.1%} of held-out rewards"
        )
    return tuple(reasons)


def _errors_of_action_means(scores: HeldOut, kept: LogSummary) -> FloatArray:
    means = (kept.action_sums + kept.rewards.mean) / (kept.action_counts + 1)
    errors: FloatArray = scores.reward - means[scores.action]
    return errors


def of_states(learned: Learned, catalogue: Catalogue) -> list[dict[str, Any]]:
    """Return each state's share, and its best and worst actions, absolute and relative to others.

    Only frequent actions are listed: means of actions with few rewards are too noisy.
    """
    rewards = learned.rewards()
    among = np.flatnonzero(known_well(learned.counts))
    average = learned.model.state_prior @ rewards
    moves = learned.model.transition
    stays = None if moves is None else mean_stay(moves)
    described = []
    for s, row in enumerate(rewards):
        by_reward = among[np.argsort(-row[among], kind="stable")]
        lift = row - average
        by_lift = among[np.argsort(-lift[among], kind="stable")]
        more, less = by_lift[lift[by_lift] > 0], by_lift[::-1][lift[by_lift[::-1]] < 0]
        described.append(
            {
                "state": s,
                "share": float(learned.model.state_prior[s]),
                "lasts": None if stays is None else float(stays[s]),
                "mean_reward": float(np.average(row, weights=learned.counts)),
                "best": _actions(by_reward[:SHOWN], row, lift, catalogue),
                "worst": _actions(by_reward[::-1][:SHOWN], row, lift, catalogue),
                "more_than_others": _actions(more[:SHOWN], row, lift, catalogue),
                "less_than_others": _actions(less[:SHOWN], row, lift, catalogue),
            }
        )
    return described


def mean_stay(transition: FloatArray) -> FloatArray:
    """Return the mean number of rounds that each state lasts, `(n_states,)`.

    >>> mean_stay(np.array([[0.9, 0.1], [0.5, 0.5]])).round(6)
    array([10.,  2.])
    """
    return 1 / np.maximum(1 - np.diag(transition), 1e-12)


def of_uncertainty(
    learned: Learned, disagreement: Disagreement | None, n_fits: int, seed: int
) -> dict[str, Any]:
    """Return the noise, and epsilon for each delta, by bootstrap and by the model's own prior.

    Both are stated over all actions, and over the actions that hold most of the rewards.
    """
    masks = {"all": learned.counts > 0, "known_well": known_well(learned.counts)}
    errors = {name: prior_errors(learned, mask, seed=seed) for name, mask in masks.items()}
    table = []
    for delta in DELTAS:
        row: dict[str, Any] = {"delta": delta}
        for name, mask in masks.items():
            row[f"bootstrap_{name}"] = (
                None if disagreement is None else disagreement.epsilon(delta, mask)
            )
            row[f"prior_{name}"] = float(np.quantile(errors[name], 1 - delta, method="higher"))
        table.append(row)
    return {
        "noise": learned.model.noise,
        "bootstrap_fits": n_fits,
        "epsilon": table,
        "typical_error": None if disagreement is None else disagreement.typical(learned.counts),
        "share_error": None
        if disagreement is None
        else float(np.sqrt(np.mean(disagreement.shares**2))),
        "actions_known": int(masks["all"].sum()),
        "actions_known_well": int(masks["known_well"].sum()),
        "covariance_shrinkage": None if learned.shrinkage is None else learned.shrinkage.tolist(),
        **_parts(learned),
    }


def _parts(learned: Learned) -> dict[str, Any]:
    """Return both parts of the prior of arms: estimation error and variation within a state.

    These are typical standard deviations, and the rewards that the variation is worth (None: no
    variation).
    """
    fitted = learned.arms
    if fitted is None:
        return {"estimation": None, "within": None, "within_strength": None}
    weights = np.broadcast_to(learned.counts, fitted.estimation.shape)
    return {
        "estimation": float(np.sqrt(np.average(fitted.estimation, weights=weights))),
        "within": float(np.sqrt(np.average(fitted.within, weights=weights))),
        "within_strength": fitted.strength if np.isfinite(fitted.strength) else None,
    }


def known_well(counts: IntArray) -> BoolArray:
    """Mark the most frequent actions: the first 50, and as many as hold 4/5 of the rewards.

    >>> known_well(np.array([9] * 50 + [0, 900, 1]))[-3:]
    array([False,  True, False])
    """
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    chosen = np.zeros(len(counts), np.bool_)
    chosen[order[before < _KNOWN_WELL * counts.sum()]] = True
    chosen[order[:_FEW]] = True
    well: BoolArray = chosen & (counts > 0)
    return well


def _by_round(scores: HeldOut) -> list[dict[str, float]]:
    """Return the error by round, which falls as the model learns about the user."""
    edges = [0, 1, 2, 5, 10, 20, 50, 100, 200]
    rows = []
    for start, end in pairwise(edges):
        inside = (scores.round >= start) & (scores.round < end)
        if inside.any():
            rmse = float(np.sqrt(np.mean(scores.error[inside] ** 2)))
            rows.append({"from": start + 1, "to": end, "rmse": rmse})
    return rows


def _actions(
    chosen: IntArray, rewards: Any, lift: Any, catalogue: Catalogue
) -> list[dict[str, Any]]:
    return [
        {
            "action": catalogue.ids[a],
            "name": catalogue.names[a],
            "reward": float(rewards[a]),
            "lift": float(lift[a]),
        }
        for a in chosen
    ]


FAR_FROM_LEVEL = 0.07
"""Distance of an interval's coverage from its level that is worth a warning."""

ONE_ROW = 0.5
"""Share of users with a single row above which sessions are too short to identify a state."""

ALIKE = 0.05
"""Share of the variance between states that is not a constant, below which only levels differ."""


def cautions(log: AnyLog, learned: Learned, report: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a fit, one sentence each.

    Args:
        log: the log that was learned from.
        learned: the model.
        report: the report on it, as `fit` makes it.
    """
    summary = summary_of(log)
    if summary.rewards.least == summary.rewards.most:
        return _about_log(summary)  # other warnings would follow from this one
    return [
        *_about_log(summary),
        *_about_prediction(report["held_out"]),
        *_about_choice(report["selection"], report["settings"], min(log.n_users, log.n_actions)),
        *(() if report["settings"].get("features") else _about_states(learned)),
        *_about_verdict(report.get("judgement")),
        *attribute_notes(report),
    ]


def _about_log(log: LogSummary) -> list[str]:
    warnings = []
    if log.rewards.least == log.rewards.most:
        warnings.append(
            f"all {log.n_events:,} rewards are {log.rewards.least:g}: there is nothing to learn; "
            "is it the right column?"
        )
    single = float(log.users_of_length[log.lengths == 1].sum() / log.n_users)
    if single > ONE_ROW:
        warnings.append(
            f"{single:.0%} of the users have one row only: states can hardly be told apart; is it "
            "the right column of users?"
        )
    return warnings


def _about_prediction(held_out: Mapping[str, Any]) -> list[str]:
    """Warn of every doubt that the recommendation depends on, and of intervals far from level."""
    warnings = list(held_out["doubts"])
    worst = max(held_out["coverage"], key=lambda row: abs(row["covered"] - row["level"]))
    if abs(worst["covered"] - worst["level"]) > FAR_FROM_LEVEL:
        warnings.append(
            f"{worst['level']:.0%} intervals hold {worst['covered']:.1%} of the held-out rewards: "
            "the model is wrong about their distribution; try another --rewards or --transform"
        )
    return warnings


def _about_choice(
    rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], most_rank: int
) -> list[str]:
    """Warn about a choice at the end of its grid: a better one may lie beyond.

    Grids are extended while evidence rises, so that this is rare. The rank of a matrix is at most
    `most_rank`, and there is no better one beyond that.
    """
    warnings = []
    chosen = next(row for row in rows if row["chosen"])
    requested = settings.get("asked", {})
    for name, key, option in (
        ("number of states", "states", "--states"),
        ("rank", "rank", "--rank"),
    ):
        tried = sorted({row[key] for row in rows if row[key] is not None and row["evidence"]})
        if requested.get(key) == "auto" and len(tried) > 1 and chosen[key] == tried[-1]:
            failed = any(row["evidence"] is None for row in rows)
            possible = key == "states" or chosen[key] < most_rank
            if possible and not failed:
                warnings.append(
                    f"the chosen {name}, {chosen[key]}, is the largest that was tried: a larger "
                    f"one may be better ({option})"
                )
    return warnings


def _about_states(learned: Learned) -> list[str]:
    """Warn if states differ by a constant only: their best actions are then the same."""
    rewards = learned.rewards()
    if len(rewards) < 2:
        return []
    weights = learned.counts / learned.counts.sum()
    prior = np.exp(learned.model.log_state_prior[0])
    offsets = rewards - prior @ rewards
    level = offsets @ weights
    total = float(prior @ (offsets**2 @ weights))
    tastes = float(prior @ ((offsets - level[:, None]) ** 2 @ weights))
    if total == 0 or tastes < ALIKE * total:
        return [
            "the states differ by a constant only: their users like the same actions, and knowing "
            "the state changes no decision"
        ]
    return []


def _about_verdict(judgement: Mapping[str, Any] | None) -> list[str]:
    if judgement is None:
        return []
    length = judgement.get("length")
    one, best = ("round", "action") if length is None else ("list", f"{length} actions")
    if not judgement["replay"]:
        rows = "three rows or more" if length is None else "rows for two lists"
        return [f"fewer than two held-out users have {rows}: nothing could be replayed"]
    if judgement["verdict"] == "harms":
        return [f"the model harms: it earned less on held-out users than the best average {best}"]
    policy, horizon = judgement["recommended_policy"], judgement["horizon"]
    early = [
        row
        for row in judgement["replay"]
        if row["policy"] == policy
        and row["rounds"] < horizon
        and row["over_popularity"] < -2 * row["over_popularity_stderr"]
    ]
    return [
        f"{policy} starts below the best average {best}: {row['over_popularity']:+.4g} a {one} in "
        f"{one}s 1-{row['rounds']}"
        for row in early
    ]


def attribute_notes(report: Mapping[str, Any]) -> list[str]:
    """Return warnings about attributes of users and items, one sentence each."""
    notes = []
    users = report.get("user_features")
    if users and users["users_whose_attributes_change"]:
        notes.append(
            "attributes change between the rows of a user (number of such users: "
            f"{users['users_whose_attributes_change']:,}): the first value by time is taken"
        )
    if users and not users["used"]:
        notes.append(
            f"attributes of users ({', '.join(users['columns'])}) predicted nothing about users "
            "outside the fit: they are accepted, and change nothing"
        )
    items = report.get("item_features")
    if items and items["ridge"] is None:
        notes.append(
            f"attributes of items ({', '.join(items['columns'])}) predicted nothing about items "
            "left out: they are accepted, and a new item is the average one"
        )
    return notes

"""Answers of the service about sessions, models, the catalogue, and its own totals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from latentbandits.evaluation.intervals import Interval, compare_groups, sequence
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.models import ServedModel
from latentbandits.serving.engine.replay import decode_user
from latentbandits.serving.engine.sessions import Live
from latentbandits.serving.engine.statistics import (
    ROUNDING,
    STATISTICS,
    GroupTotals,
    RoundTotals,
    Statistics,
    Tally,
    combined,
    decode_totals,
)
from latentbandits.serving.engine.values import DecisionRequest
from latentbandits.serving.http.messages import (
    ActionEarned,
    ActionsEarned,
    Band,
    Calibration,
    CatalogueItem,
    CatalogueView,
    DayView,
    DifferenceView,
    Earned,
    Event,
    GroupView,
    Models,
    ModelView,
    Overview,
    RecentSession,
    Relearning,
    RoundView,
    SeriesView,
    SessionView,
    StateView,
    Swap,
)
from latentbandits.serving.log import event_fields
from latentbandits.serving.records import LoggedEvent, RewardedDecision, SessionRow, floats
from latentbandits.serving.settings import HOLDOUT, MAIN, TRIAL, TRIAL_SHARE

SHOWN = 20_000
"""Numbers of an array of a belief that are shown: it bounds the answer."""

MOST = 100
"""Actions that the catalogue shows."""

LATEST = 10_000
"""Events of the log, decisions and rewards, that the table of actions counts."""

_FEWEST = 10  # sessions of an action that has an interval: with fewer it says nothing
_EPOCH = date(1970, 1, 1)
_FAVOURED = 3
_RECENT = 20
_ALPHA = 0.05
_LAST_RUNS = 20
_MOST_RUN_BYTES = 64 * 2**10
NO_STATE = "None of these"  # the name of the state that `catch_all` adds


def describe(belief: Any) -> dict[str, Any]:
    """Return the arrays of a belief, by name, for its one session.

    An array of more than SHOWN numbers is not shown: {"shape": [...]} stands for it. A square root
    of a covariance is shown as that covariance: the root depends on the order of rewards, the
    covariance does not.
    """
    shown: dict[str, Any] = {}
    names = getattr(belief, "_fields", None) or [str(i) for i in range(len(belief))]
    for name, value in zip(names, belief, strict=True):
        if isinstance(value, tuple):
            shown[name] = describe(value)
        elif name == "factor":
            small = value[0].size <= SHOWN
            covariance = value[0] @ value[0].swapaxes(-1, -2) if small else value[0]
            shown["covariance"] = _finite(covariance)
        else:
            shown[name] = _finite(value[0])
    return shown


def _finite(values: Any) -> Any:
    """Return an array as JSON takes it; the log weight of an impossible state is null."""
    array = np.asarray(values)
    if array.size > SHOWN:
        return {"shape": list(array.shape)}
    if np.isfinite(array).all():
        return array.tolist()
    return np.where(np.isfinite(array), array, np.array(None)).tolist()


def events_of(decisions: Sequence[tuple[RewardedDecision, bool]]) -> list[Event]:
    """Return the decisions of a session as its history shows them."""
    return [
        Event(**fields)
        for one, is_new in decisions
        for fields in event_fields(one.decision, one.reward, is_new=is_new)
    ]


def view_with(live: Live, history: list[Event]) -> SessionView:
    """Return a session with this history."""
    row = live.row
    return SessionView(
        **_known(row),
        policy=live.policy.name,
        started=row.started / 1000,
        state_probabilities=live.probabilities,
        belief=describe(live.belief),
        history=history,
        user_features=decode_user(row.user_features),
    )


def _known(row: SessionRow) -> dict[str, Any]:
    """Return the fields that every view of a session has."""
    return {
        "session": row.name,
        "group": row.group,
        "model": row.model,
        "round": row.rounds,
        "rewards": row.rewards,
        "mean_reward": _mean(row),
        "seen": row.seen / 1000,
    }


def _mean(totals: SessionRow | Tally) -> float | None:
    return totals.reward_sum / totals.rewards if totals.rewards else None


def overview(engine: Engine) -> Overview:
    """Return totals, rates and the active model; called inside a transaction."""
    totals = statistics(engine)
    groups = group_views(engine, totals)
    compared = differences(totals, [view.group for view in groups])
    held_out = next((one for one in compared if one.group == HOLDOUT), None)
    difference = None if held_out is None else Band(held_out.mean, held_out.low, held_out.high)
    return Overview(
        time=engine.clock() / 1000,
        store=type(engine.store).__name__,
        counts=counts(totals),
        rates=engine.batch.rates.view(),
        groups=groups,
        difference=difference,
        differences=compared,
        states=states(engine, totals),
        series=[
            SeriesView(
                policy=name.rpartition(" ")[0],
                model=name.rpartition(" ")[2],
                decisions=tally.decisions,
                rewards=tally.rewards,
                mean_reward=_mean(tally),
                calibration=_calibration(tally),
            )
            for name, tally in totals.tallies.items()
        ],
        models=models(engine),
        recent=[_recent(row) for row in engine.store.open_since(_RECENT)],
    )


def _calibration(tally: Tally) -> Calibration | None:
    """Return the means of predicted rewards and of their predictions; None without any."""
    n = tally.predictions
    if n == 0:
        return None
    error = math.sqrt(tally.error_squares) / n
    return Calibration(n, tally.predicted_sum / n, tally.received_sum / n, error)


def activated(engine: Engine) -> float:
    """Return when the active model was activated, in seconds since 1970.

    Changes of its catalogue, which activate the same model with other actions, do not count.
    """
    activations = engine.library.activations
    whole = [row for row in activations if row.mode not in ("extended", "trial")]
    return (whole or activations)[-1].time / 1000


def statistics(engine: Engine) -> Statistics:
    """Return the totals of all processes that share the store."""
    if not engine.store.shared:
        return engine.statistics
    this_process = f"{STATISTICS}{engine.store.node}"
    kept = engine.store.notes(STATISTICS)
    others = [decode_totals(value) for name, value in kept.items() if name != this_process]
    return combined([engine.statistics, *others])


def _shares(engine: Engine) -> dict[str, float]:
    """Return the share of new sessions that every group gets, also of the trial."""
    shares = engine.settings.shares()
    if engine.library.trial is not None:
        shares[TRIAL] = shares[MAIN] * TRIAL_SHARE
        shares[MAIN] -= shares[TRIAL]
    return shares


def group_views(engine: Engine, totals: Statistics) -> list[GroupView]:
    """Return the main group and all groups that get or got sessions."""
    shares = _shares(engine)
    named = [*shares, *(name for name in totals.groups if name not in shares)]
    views = [_group_view(engine, name, shares.get(name, 0.0), totals) for name in named]
    return [one for one in views if one.group == MAIN or one.share > 0 or one.decisions > 0]


def differences(totals: Statistics, groups: list[str]) -> list[DifferenceView]:
    """Return the differences in mean reward: the main group minus every other group.

    The intervals hold for all groups and at every look together: each is a confidence sequence
    over the sessions of both groups, at the level 1 - .05 / (number of comparisons).
    """
    means = {name: totals.group(name).session_mean() for name in groups}
    compared = compare_groups(means, MAIN, 1 - _ALPHA)
    return [
        DifferenceView(name, MAIN, *msgspec.structs.astuple(_band(interval)))
        for name, interval in compared.items()
    ]


def counts(totals: Statistics) -> dict[str, int]:
    """Return the counts of sessions, decisions and rewards."""
    names = ("started", "expired", "restarted", "merged", "deleted", "decisions", "applied",
             "duplicate", "late", "replaced", "unexplained")  # fmt: skip
    known = {name: totals.counts.get(name, 0) for name in names}
    ended = known["expired"] + known["restarted"] + known["merged"] + known["deleted"]
    return {**known, "open": known["started"] - ended}


def _group_view(engine: Engine, group: str, share: float, totals: Statistics) -> GroupView:
    total, library = totals.group(group), engine.library
    activation = library.trial if group == TRIAL else None
    served = library.served((activation or library.active).model)
    return GroupView(
        group=group,
        policy=served.of_group(group).text,
        share=share,
        sessions=total.sessions,
        decisions=total.decisions,
        rewards=total.rewards,
        reward=_mean_band(total),
        rounds=[_round_view(number, one) for number, one in enumerate(total.rounds, 1)],
        days=[
            DayView(str(_EPOCH + timedelta(days=day)), one.sessions, one.rewards, _mean_band(one))
            for day, one in sorted(totals.days.get(group, {}).items())
            if one.rewards > 0  # none are left if its sessions were merged into others
        ],
    )


def states(engine: Engine, totals: Statistics) -> list[StateView]:
    """Return the states of the active model, and the one that `catch_all` adds to a policy's."""
    served = engine.library.served(engine.library.active.model)
    prior = _state_prior(served)
    if len(prior) == 1:  # policies keep no belief about a single state; its share is 1
        return [StateView(0, state_names(engine, served, 1)[0], 1.0, 1.0)]
    shares = totals.shares.get(served.id, [0.0] * len(prior))
    total = sum(shares)
    expected = dict(enumerate(prior))
    return [
        StateView(s, name, max(share, 0.0) / total if total > 1e-9 else 0.0, expected.get(s, 0.0))
        for s, (name, share) in enumerate(
            zip(state_names(engine, served, len(shares)), shares, strict=True)
        )
    ]


def _state_prior(served: ServedModel) -> list[float]:
    """Return P1(s) of a session of the main group, also of the state that `catch_all` adds."""
    prior: list[float] = np.exp(served.model.log_state_prior[0]).tolist()
    return list(served.of_group(MAIN).state_prior) or prior


def state_names(engine: Engine, served: ServedModel, n: int | None = None) -> list[str]:
    """Return the names of the first `n` states, by default of all of the main group's policy."""
    n = len(_state_prior(served)) if n is None else n
    called = [state_name(engine.settings.state_names, s) for s in range(n)]
    return [*called[: served.model.n_states], *[NO_STATE] * (n - served.model.n_states)]


def state_name(names: str, state: int) -> str:
    """Return the name of a state for people; a state without a name gets its number, from 1.

    >>> state_name("", 0), state_name("families, students", 1)
    ('State 1', 'students')
    """
    split = [name.strip() for name in names.split(",")] if names else []
    return split[state] if state < len(split) and split[state] else f"State {state + 1}"


def models(engine: Engine) -> Models:
    """Return all models of the store and their activations."""
    library = engine.library
    active = library.active.model
    return Models(
        active=active,
        models=[
            ModelView(model_id, name, active=model_id == active, **msgspec.structs.asdict(summary))
            for model_id, (name, summary) in library.summaries().items()
        ],
        swaps=[Swap(row.time / 1000, row.model, row.mode) for row in library.activations],
        trial=None if library.trial is None else library.trial.model,
    )


def band(mean: float, error: float, n: int, level: float = 1 - _ALPHA) -> Band:
    """Return an interval that is valid at every look: a confidence sequence over `n` sessions,
    the standard error of whose mean is `error`.
    """
    return _band(sequence(mean, error, n, level))


def _band(interval: Interval) -> Band:
    known = math.isfinite(interval.stderr)
    return Band(interval.value, interval.low if known else None, interval.high if known else None)


def _mean_band(total: GroupTotals) -> Band | None:
    mean = total.session_mean()
    return None if mean is None else band(*mean)


def _round_view(number: int, one: RoundTotals) -> RoundView:
    reward = None
    if one.rewards:
        n, mean = one.rewards, one.reward_sum / one.rewards
        variance = one.reward_squares / n - mean**2
        known = n > 1 and variance > ROUNDING * mean**2
        reward = band(mean, math.sqrt(variance / (n - 1)) if known else math.inf, n)
    return RoundView(
        round=number,
        decisions=one.decisions,
        entropy=one.entropy / one.identified if one.identified else None,
        rewards=one.rewards,
        reward=reward,
    )


def _recent(row: SessionRow) -> RecentSession:
    probabilities = floats(row.probabilities)
    state = max(range(len(probabilities)), key=probabilities.__getitem__, default=None)
    likeliest = None if state is None else probabilities[state]
    return RecentSession(**_known(row), state=state, state_probability=likeliest)


def catalogue(engine: Engine) -> CatalogueView:
    """Return the actions, sorted by the variance of the expected reward between states."""
    served = engine.library.served(engine.library.active.model)
    called, shown = state_names(engine, served), _state_prior(served)
    ids = served.space.names
    if ids is None:
        return CatalogueView(served.id, called, shown, 0.0, 0.0, [[] for _ in shown], [])
    prior = np.exp(served.model.log_state_prior[0])
    expected = expected_rewards(served)
    names = served.space.titles
    above = expected - prior @ expected
    best = np.argsort(-above, axis=1, kind="stable")[:, :_FAVOURED]
    return CatalogueView(
        model=served.id,
        states=called,
        prior=shown,
        low=float(expected.min()),
        high=float(expected.max()),
        favours=[
            [names[a] for a in best[s] if above[s, a] > 0] if s < len(best) else []
            for s in range(len(shown))
        ],
        items=[
            CatalogueItem(ids[a], names[a], expected[:, a].tolist())
            for a in telling(served, expected)
        ],
    )


class _ActionTotals:
    """Decisions for an action, and the sum and number of the rewards of each session."""

    def __init__(self) -> None:
        self.decisions = 0
        self.sessions: dict[int, tuple[float, int]] = {}

    def add(self, session: int, value: float) -> None:
        total, count = self.sessions.get(session, (0.0, 0))
        self.sessions[session] = (total + value, count + 1)

    def view(self) -> Earned:
        totals = GroupTotals()
        for total, count in self.sessions.values():
            totals.add_session(total, count)
        reward = _mean_band(totals)
        if reward is not None and totals.sessions < _FEWEST:
            reward = Band(reward.mean, None, None)
        return Earned(self.decisions, totals.rewards, reward)


def actions_earned(
    events: Iterable[LoggedEvent], model: str, states: list[str], names: Mapping[str, str]
) -> ActionsEarned:
    """Return what each action earned in these events of the log, in decisions by `model`.

    `names` are the actions' titles.
    """
    totals: dict[str, list[_ActionTotals]] = defaultdict(
        lambda: [_ActionTotals() for _ in range(1 + len(states))]  # of all sessions, and by state
    )
    since = None
    decided: set[int] = set()
    for event in events:
        row, reward = event.decision, event.reward
        if row.model != model or (reward is not None and row.order not in decided):
            continue
        probabilities = floats(row.probabilities)
        counted = totals[row.action][:1]
        if len(probabilities) == len(states) > 1:
            likeliest = max(range(len(states)), key=probabilities.__getitem__)
            counted.append(totals[row.action][1 + likeliest])
        if reward is None:
            since = row.time / 1000 if since is None else since
            decided.add(row.order)
            for one in counted:
                one.decisions += 1
        elif event.counts:
            for one in counted:
                one.add(row.session, reward.value)
    shown = sorted(totals.items(), key=lambda item: (-item[1][0].decisions, item[0]))[:MOST]
    actions = [
        ActionEarned(action, names.get(action, action), of_all.view(), [s.view() for s in by_state])
        for action, (of_all, *by_state) in shown
    ]
    return ActionsEarned(model, since, len(decided), states, actions)


def expected_rewards(served: ServedModel) -> FloatArray:
    """Return the expected reward of every action of a catalogue, `(n_states, n_actions)`."""
    context = served.space.ask(DecisionRequest("")).context
    expected: FloatArray = served.model.expected_rewards(context)[0]
    return expected


def telling(served: ServedModel, expected: FloatArray) -> IntArray:
    """Return the actions whose expected rewards vary most between states, the first 100."""
    prior = np.exp(served.model.log_state_prior[0])
    variance = prior @ (expected - prior @ expected) ** 2
    return np.argsort(-variance, kind="stable")[:MOST]


def relearnings(work: str | None) -> list[Relearning]:
    """Return the last runs in the work folder, the latest first; none where there is no folder.

    A file that is no record, or is larger than a record can be, is passed over.
    """
    if work is None:
        return []
    runs = []
    for path in sorted(Path(work, "runs").glob("*.json"), reverse=True)[:_LAST_RUNS]:
        with suppress(OSError, msgspec.MsgspecError):
            if path.stat().st_size <= _MOST_RUN_BYTES:
                runs.append(msgspec.json.decode(path.read_bytes(), type=Relearning))
    return runs

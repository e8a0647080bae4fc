"""Metrics for Prometheus: requests as they come, totals as the engine keeps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.statistics import CLICKED_AT, SHOWN_AT, Statistics
from latentbandits.serving.http import views

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ROUNDS = (1, 2, 3, 5, 10, 20, 50)


def totals_as_metrics(engine: Engine) -> list[Metric]:
    """Return the totals of the store as metrics; called inside a transaction."""
    totals = views.statistics(engine)
    groups = views.group_views(engine, totals)
    activated = {(engine.library.active.model,): views.activated(engine)}
    means = {(one.group, one.policy): one.reward.mean for one in groups if one.reward is not None}
    differences = {
        (one.group, bound): value
        for one in views.differences(totals, [group.group for group in groups])
        for bound, value in (("mean", one.mean), ("low", one.low), ("high", one.high))
        if value is not None
    }
    entropies = {
        (group.group, str(one.round)): one.entropy
        for group in groups
        for one in group.rounds
        if one.round in _ROUNDS and one.entropy is not None
    }
    gauge = GaugeMetricFamily
    return [
        *counts_as_metrics(totals),
        _metric(gauge, "model_activated_seconds", _ACTIVATED, ("model",), activated),
        _metric(gauge, "mean_reward", "mean reward by group", ("group", "policy"), means),
        _metric(gauge, "reward_difference", _DIFFERENCE, ("group", "bound"), differences),
        _metric(gauge, "belief_entropy_bits", _ENTROPY, ("group", "round"), entropies),
    ]


_ACTIVATED = "time at which the active model was activated, since 1970"
_DIFFERENCE = (
    "mean reward of the main group minus that of this one, and the ends of its interval, "
    "which is valid at every look"
)
_ENTROPY = "mean entropy of the state probabilities, by round of a session"


def counts_as_metrics(totals: Statistics) -> list[Metric]:
    """Return the metrics that are counts of sessions and lists, and tallies of policies."""
    counts = views.counts(totals)
    rewards = {(status,): counts[status] for status in ("applied", "duplicate", "late")}
    events = ("started", "expired", "restarted", "merged", "deleted")
    sessions = {(event,): counts[event] for event in events}
    unexplained = "sessions whose rewards no state explains; of a right model at most one in twenty"
    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    metrics = [
        _metric(counter, "rewards", "rewards by what became of them", ("status",), rewards),
        _metric(gauge, "sessions_open", "sessions under way", (), {(): counts["open"]}),
        _metric(counter, "sessions", "sessions by what became of them", ("event",), sessions),
        _metric(counter, "unexplained_sessions", unexplained, (), {(): counts["unexplained"]}),
        _metric(counter, "lists", "lists decided", (), {(): totals.counts.get("lists", 0)}),
        _by_position("list_positions", "actions shown in lists", SHOWN_AT, totals),
        _by_position("list_clicks", "actions in lists with a reward above 0", CLICKED_AT, totals),
    ]
    tallies = {tuple(name.rpartition(" ")[::2]): one for name, one in totals.tallies.items()}
    for kind, name, text, field in _TALLIES:
        values = {labels: getattr(one, field) for labels, one in tallies.items()}
        metrics.append(_metric(kind, name, text, ("policy", "model"), values))
    return metrics


_TALLIES = (
    (CounterMetricFamily, "decisions", "decisions", "decisions"),
    (CounterMetricFamily, "applied_rewards", "rewards", "rewards"),
    (GaugeMetricFamily, "reward_sum", "sum of rewards", "reward_sum"),
    (CounterMetricFamily, "predictions", "rewards that were predicted, a sample", "predictions"),
    (GaugeMetricFamily, "predicted_reward_sum", "sum of the predictions", "predicted_sum"),
    (GaugeMetricFamily, "received_reward_sum", "sum of the rewards predicted", "received_sum"),
    (CounterMetricFamily, "prediction_error_squares",
     "sum of the squares of reward minus prediction", "error_squares"),
)  # fmt: skip
"""The metrics of each policy on each model: their kinds, names, descriptions, fields of `Tally`."""


def _metric(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    values: Mapping[Any, float],
) -> Metric:
    """Return a metric with its value for each of these values of its labels."""
    family = kind(f"latentbandits_{name}", text, labels=labels)
    for names, value in values.items():
        family.add_metric(names, value)
    return family


def _by_position(name: str, text: str, prefix: str, totals: Statistics) -> Metric:
    counts = {
        (key.removeprefix(prefix),): n for key, n in totals.counts.items() if key.startswith(prefix)
    }
    return _metric(CounterMetricFamily, name, text, ("position",), counts)


def exposition(metrics: Sequence[Metric]) -> bytes:
    """Return metrics in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Given(metrics))
    text: bytes = generate_latest(registry)
    return text


class _Given(Collector):
    """Metrics that are complete."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class Metrics:
    """The metrics of one service; several services can live in one process."""

    def __init__(self) -> None:
        self.routes: defaultdict[str, RouteCounts] = defaultdict(RouteCounts)

    def collect(self, *, waiting: int, most_waiting: int, store_works: bool) -> list[Metric]:
        """Return the metrics of requests, and of the writer as it is now."""
        gauge = GaugeMetricFamily
        return [
            *self._requests(),
            _metric(gauge, "waiting", "requests that wait for the writer", (), {(): waiting}),
            _metric(gauge, "waiting_most", "the most that ever waited", (), {(): most_waiting}),
            _metric(gauge, "store_works", "1 while commits succeed", (), {(): store_works}),
        ]

    def _requests(self) -> Iterable[Metric]:
        asked = {route: counts for route, counts in self.routes.items() if counts.statuses}
        statuses = {
            (route, str(status)): number
            for route, counts in asked.items()
            for status, number in counts.statuses.items()
        }
        text = "requests by route and status"
        yield _metric(CounterMetricFamily, "requests", text, ("route", "status"), statuses)
        seconds = HistogramMetricFamily(
            "latentbandits_request_seconds", "time to the answer, commit included",
            labels=["route"],
        )  # fmt: skip
        bounds = [*map(str, BUCKETS), "+Inf"]
        for route, counts in asked.items():
            buckets = list(zip(bounds, accumulate(counts.within), strict=True))
            seconds.add_metric([route], buckets, counts.seconds)
        yield seconds


class RouteCounts:
    """Requests of one route by status, and by the bucket of their time; the last bucket is open."""

    __slots__ = ("seconds", "statuses", "within")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.within = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

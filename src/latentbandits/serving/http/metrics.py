"""Metrics for Prometheus: requests as they come, totals as the engine keeps them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
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

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ROUNDS = (1, 2, 3, 5, 10, 20, 50)


def totals_as_metrics(engine: Engine) -> list[Metric]:
    """Return the totals of the store as metrics; called inside a transaction."""
    totals = views.statistics(engine)
    groups = [
        views.group_view(engine, group, totals) for group in views.shown_groups(engine, totals)
    ]
    differences = views.differences(totals, [group.group for group in groups])
    active = engine.library.active.model
    return [
        *counts_as_metrics(totals),
        _metric(
            GaugeMetricFamily,
            "model_activated_seconds",
            "time at which the active model was activated, since 1970",
            ("model",),
            {(active,): views.activated(engine)},
        ),
        _metric(
            GaugeMetricFamily,
            "mean_reward",
            "mean reward by group",
            ("group", "policy"),
            {(one.group, one.policy): one.reward.mean for one in groups if one.reward is not None},
        ),
        _metric(
            GaugeMetricFamily,
            "reward_difference",
            "mean reward of the main group minus that of this one, and the ends of its interval, "
            "which is valid at every look",
            ("group", "bound"),
            {
                (one.group, bound): value
                for one in differences
                for bound, value in (("mean", one.mean), ("low", one.low), ("high", one.high))
                if value is not None
            },
        ),
        _metric(
            GaugeMetricFamily,
            "belief_entropy_bits",
            "mean entropy of the state probabilities, by round of a session",
            ("group", "round"),
            {
                (group.group, str(one.round)): one.entropy
                for group in groups
                for one in group.rounds
                if one.round in _ROUNDS and one.entropy is not None
            },
        ),
    ]


def counts_as_metrics(totals: Statistics) -> list[Metric]:
    """Return the metrics that are counts of sessions and lists, and tallies of policies."""
    counts = views.counts(totals)
    rewards = {(status,): counts[status] for status in ("applied", "duplicate", "late")}
    events = ("started", "expired", "restarted", "merged", "deleted")
    unexplained = "sessions whose rewards no state explains; of a right model at most one in twenty"
    tallies = {tuple(name.rpartition(" ")[::2]): one for name, one in totals.tallies.items()}
    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    return [
        _metric(counter, "rewards", "rewards by what became of them", ("status",), rewards),
        _metric(gauge, "sessions_open", "sessions under way", (), {(): counts["open"]}),
        _metric(
            counter,
            "sessions",
            "sessions by what became of them",
            ("event",),
            {(event,): counts[event] for event in events},
        ),
        _metric(counter, "unexplained_sessions", unexplained, (), {(): counts["unexplained"]}),
        _metric(counter, "lists", "lists decided", (), {(): totals.counts.get("lists", 0)}),
        _by_position("list_positions", "actions shown in lists", SHOWN_AT, totals),
        _by_position("list_clicks", "actions in lists with a reward above 0", CLICKED_AT, totals),
        *(
            _metric(
                kind,
                name,
                text,
                ("policy", "model"),
                {labels: getattr(one, field) for labels, one in tallies.items()},
            )
            for kind, name, text, field in _TALLIES
        ),
    ]


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


class _Totals(Collector):
    """Metrics that are complete."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class Metrics:
    """A registry of its own, so that several services can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, _Latencies] = {}
        self.registry.register(_Requests(self._requests, self._latencies))
        self.waiting = Gauge(
            "latentbandits_waiting", "requests that wait for the writer", registry=self.registry
        )
        self.most_waiting = Gauge(
            "latentbandits_waiting_most", "the most that ever waited", registry=self.registry
        )
        self.store_works = Gauge(
            "latentbandits_store_works", "1 while commits succeed", registry=self.registry
        )

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request and its time. Called by the event loop alone: it takes no lock."""
        self._requests[route, status] = self._requests.get((route, status), 0) + 1
        known = self._latencies.get(route)
        if known is None:
            known = self._latencies[route] = _Latencies()
        known.counts[bisect_left(_SECONDS, seconds)] += 1
        known.total += seconds

    def exposition(self, totals: Sequence[Metric]) -> bytes:
        """Return all metrics, the totals among them, in the text format of Prometheus."""
        registry = CollectorRegistry()
        registry.register(_Totals(totals))
        text: bytes = generate_latest(self.registry) + generate_latest(registry)
        return text


class _Latencies:
    """Requests by the bucket of their time; the last bucket has no end."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total = 0.0


class _Requests(Collector):
    def __init__(
        self, requests: dict[tuple[str, int], int], latencies: dict[str, _Latencies]
    ) -> None:
        self._requests = requests
        self._latencies = latencies

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "latentbandits_requests", "requests by route and status", labels=["route", "status"]
        )
        for (route, status), count in self._requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        seconds = HistogramMetricFamily(
            "latentbandits_request_seconds", "time to the answer, commit included",
            labels=["route"],
        )  # fmt: skip
        bounds = [*map(str, _SECONDS), "+Inf"]
        for route, known in self._latencies.items():
            buckets = list(zip(bounds, accumulate(known.counts), strict=True))
            seconds.add_metric([route], buckets, known.total)
        yield seconds

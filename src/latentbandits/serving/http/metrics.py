"""Metrics for Prometheus: requests as they come, totals as the engine keeps them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from copy import copy
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.statistics import CLICKED_AT, SHOWN_AT, Statistics, Tally
from latentbandits.serving.http import views
from latentbandits.serving.http.messages import DifferenceView

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ROUNDS = (1, 2, 3, 5, 10, 20, 50)


class Snapshot(NamedTuple):
    """The totals at one moment, copied from the engine for the metrics."""

    counts: dict[str, int]
    tallies: list[tuple[str, str, Tally]]  # policy, model, totals
    groups: list[tuple[str, str, int, float]]  # group, policy, rewards, mean
    entropies: list[tuple[str, int, float]]  # group, round, bits
    differences: list[DifferenceView]
    lists: dict[str, int]  # counts of lists and of their positions
    active: str
    activated: float


def snapshot(engine: Engine) -> Snapshot:
    """Return the totals that the metrics show; called inside a transaction."""
    totals: Statistics = views.statistics(engine)
    groups = [
        views.group_view(engine, group, totals) for group in views.shown_groups(engine, totals)
    ]
    return Snapshot(
        views.counts(totals),
        [(*_split(name), copy(tally)) for name, tally in totals.tallies.items()],
        [(a.group, a.policy, a.rewards, a.reward.mean) for a in groups if a.reward is not None],
        [
            (group.group, one.round, one.entropy)
            for group in groups
            for one in group.rounds
            if one.round in _ROUNDS and one.entropy is not None
        ],
        views.differences(totals, [group.group for group in groups]),
        {name: n for name, n in totals.counts.items() if name.startswith("list")},
        engine.library.active.model,
        views.activated(engine),
    )


def _split(name: str) -> tuple[str, str]:
    policy, _, model = name.rpartition(" ")
    return policy, model


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

    def exposition(self, totals: Snapshot | None) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        text: bytes = generate_latest(self.registry)
        if totals is not None:
            registry = CollectorRegistry()
            registry.register(TotalsCollector(totals))
            text += generate_latest(registry)
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


class TotalsCollector(Collector):
    """The totals of the store as metrics."""

    def __init__(self, totals: Snapshot) -> None:
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        totals = self._totals
        rewards = CounterMetricFamily(
            "latentbandits_rewards", "rewards by what became of them", labels=["status"]
        )
        for status in ("applied", "duplicate", "late"):
            rewards.add_metric([status], totals.counts[status])
        yield rewards
        yield GaugeMetricFamily(
            "latentbandits_sessions_open", "sessions under way", totals.counts["open"]
        )
        ended = CounterMetricFamily(
            "latentbandits_sessions", "sessions by what became of them", labels=["event"]
        )
        for event in ("started", "expired", "restarted", "merged", "deleted"):
            ended.add_metric([event], totals.counts[event])
        yield ended
        yield CounterMetricFamily(
            "latentbandits_unexplained_sessions",
            "sessions whose rewards no state explains; of a right model at most one in twenty",
            totals.counts["unexplained"],
        )
        yield CounterMetricFamily(
            "latentbandits_lists", "lists decided", totals.lists.get("lists", 0)
        )
        yield _by_position(
            "latentbandits_list_positions", "actions shown in lists", SHOWN_AT, totals.lists
        )
        yield _by_position(
            "latentbandits_list_clicks",
            "actions in lists with a reward above 0",
            CLICKED_AT,
            totals.lists,
        )
        activated = GaugeMetricFamily(
            "latentbandits_model_activated_seconds",
            "time at which the active model was activated, since 1970",
            labels=["model"],
        )
        activated.add_metric([totals.active], totals.activated)
        yield activated
        labels = ["policy", "model"]
        decisions = CounterMetricFamily("latentbandits_decisions", "decisions", labels=labels)
        applied = CounterMetricFamily("latentbandits_applied_rewards", "rewards", labels=labels)
        sums = GaugeMetricFamily("latentbandits_reward_sum", "sum of rewards", labels=labels)
        predictions = CounterMetricFamily(
            "latentbandits_predictions", "rewards that were predicted, a sample", labels=labels
        )
        predicted = GaugeMetricFamily(
            "latentbandits_predicted_reward_sum", "sum of the predictions", labels=labels
        )
        received = GaugeMetricFamily(
            "latentbandits_received_reward_sum", "sum of the rewards predicted", labels=labels
        )
        squares = CounterMetricFamily(
            "latentbandits_prediction_error_squares",
            "sum of the squares of reward minus prediction",
            labels=labels,
        )
        for policy, model, tally in totals.tallies:
            decisions.add_metric([policy, model], tally.decisions)
            applied.add_metric([policy, model], tally.rewards)
            sums.add_metric([policy, model], tally.reward_sum)
            predictions.add_metric([policy, model], tally.predictions)
            predicted.add_metric([policy, model], tally.predicted_sum)
            received.add_metric([policy, model], tally.received_sum)
            squares.add_metric([policy, model], tally.error_squares)
        yield from (decisions, applied, sums, predictions, predicted, received, squares)
        means = GaugeMetricFamily(
            "latentbandits_mean_reward", "mean reward by group", labels=["group", "policy"]
        )
        for group, policy, _, mean in totals.groups:
            means.add_metric([group, policy], mean)
        yield means
        above = GaugeMetricFamily(
            "latentbandits_reward_difference",
            "mean reward of the main group minus that of this one, and the ends of its interval, "
            "which is valid at every look",
            labels=["group", "bound"],
        )
        for one in totals.differences:
            above.add_metric([one.group, "mean"], one.mean)
            if one.low is not None and one.high is not None:
                above.add_metric([one.group, "low"], one.low)
                above.add_metric([one.group, "high"], one.high)
        yield above
        entropy = GaugeMetricFamily(
            "latentbandits_belief_entropy_bits",
            "mean entropy of the state probabilities, by round of a session",
            labels=["group", "round"],
        )
        for group, round_, bits in totals.entropies:
            entropy.add_metric([group, str(round_)], bits)
        yield entropy


def _by_position(name: str, text: str, prefix: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["position"])
    for key, n in counts.items():
        if key.startswith(prefix):
            family.add_metric([key.removeprefix(prefix)], n)
    return family

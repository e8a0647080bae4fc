"""The protocol of an experiment: one folder of `experiments/`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from latentbandits.report.report import Claim, Estimate, Progress, Report, all_positive
from latentbandits.simulation.results import Metric, Results


class Experiment(Protocol):
    """An experiment that `latentbandits reproduce NAME` runs."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def help(self) -> str:
        """The line that `reproduce --help` shows."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this experiment to its parser."""

    def check(self, arguments: argparse.Namespace) -> None:
        """Raise ValueError for options that cannot be run, before any work."""

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        """Run the experiment and return its report; `executor` runs parts in other processes."""


# Claims as data: an order of policies, a bound on a share of regret, or near equality.
#
# Each claim has a `check`. Policies are compared by paired differences, with the same problems and
# noise for both. An order holds if every difference has the right sign by two standard errors.

BySetting = Mapping[str, Results]

_WORDS: Mapping[Metric, str] = {
    "regret": "regret",
    "reward": "reward",
    "worst_decile_reward": "reward of the worst 10%",
    "first_rounds_reward": "reward of the first {} rounds",
    "last_rounds_reward": "reward of the last {} rounds",
}


class Checkable(Protocol):
    """A claim that results can support or contradict."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that must be played for the claim to be checked."""

    def check(self, results: BySetting) -> Claim:
        """Compare the claim with results."""


def check_all(claims: Iterable[Checkable], results: BySetting) -> list[Claim]:
    """Check every claim whose policies were played."""
    if not results:
        return []
    played = set.intersection(*(set(result) for result in results.values()))
    return [claim.check(results) for claim in claims if played.issuperset(claim.policies)]


@dataclass(frozen=True)
class Order:
    """A claim that each of `better` beats each of `worse` in `setting`."""

    id: str
    claim: str
    setting: str
    metric: Metric
    better: tuple[str, ...]
    worse: tuple[str, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        return self.better + self.worse

    def check(self, results: BySetting) -> Claim:
        result = results[self.setting]
        sign = -1 if self.metric == "regret" else 1
        leads = {
            (good, bad): _scaled(sign, result.difference(good, bad, self.metric))
            for good in self.better
            for bad in self.worse
        }
        (good, bad), smallest = min(leads.items(), key=lambda item: item[1].mean)
        names = f"{', '.join(self.better)} {'<' if sign < 0 else '>'} {', '.join(self.worse)}"
        measured = f"smallest lead {smallest} ({good} over {bad})"
        windows = result[good].windows
        width = windows.first if self.metric == "first_rounds_reward" else windows.last
        predicted = f"{_WORDS[self.metric].format(width)} {names}, {self.setting}"
        return Claim(self.id, self.claim, predicted, measured, all_positive(leads.values()))


@dataclass(frozen=True)
class Share:
    """A claim that `policy` has at most `share` of the regret of `other` in `setting`."""

    id: str
    claim: str
    setting: str
    policy: str
    other: str
    share: float

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.other

    def check(self, results: BySetting) -> Claim:
        """Check the ratio of two paired means, with the error of its linear expansion."""
        result = results[self.setting]
        mine, others = result[self.policy].regrets, result[self.other].regrets
        ratio = float(mine.mean() / others.mean())
        stderr = Estimate.from_values(mine - ratio * others).stderr / float(others.mean())
        predicted = f"regret {self.policy} <= {self.share:g} x {self.other}, {self.setting}"
        measured = f"{Estimate(ratio, stderr)} x"
        return Claim(self.id, self.claim, predicted, measured, ratio <= self.share)


@dataclass(frozen=True)
class Degrades:
    """A claim that each of `policies` has more regret in setting `worse` than in `better`."""

    id: str
    claim: str
    better: str
    worse: str
    policies: tuple[str, ...]

    def check(self, results: BySetting) -> Claim:
        leads = {
            name: _independent(results[self.worse][name].regret, results[self.better][name].regret)
            for name in self.policies
        }
        measured = ", ".join(f"{name} +{lead}" for name, lead in leads.items())
        predicted = f"regret at {self.worse} > at {self.better}"
        return Claim(self.id, self.claim, predicted, measured, all_positive(leads.values()))


@dataclass(frozen=True)
class Alike:
    """A claim that two policies earn the same per round within `tolerance` in every setting."""

    id: str
    claim: str
    policy: str
    other: str
    tolerance: float

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.other

    def check(self, results: BySetting) -> Claim:
        gaps = {
            setting: result.difference(self.policy, self.other, "reward")
            for setting, result in results.items()
        }
        measured = ", ".join(f"{gap} at {setting}" for setting, gap in gaps.items())
        predicted = f"|reward {self.policy} - {self.other}| < {self.tolerance:g} per round"
        holds = all(abs(gap.mean) < self.tolerance for gap in gaps.values())
        return Claim(self.id, self.claim, predicted, measured, holds)


def _scaled(factor: float, estimate: Estimate) -> Estimate:
    return Estimate(factor * estimate.mean, estimate.stderr)


def _independent(a: Estimate, b: Estimate) -> Estimate:
    """Return the difference of two independent estimates."""
    return Estimate(a.mean - b.mean, math.hypot(a.stderr, b.stderr))

"""The frame of every experiment: options, measurement, claims, tables, figures, report."""

from __future__ import annotations

import argparse
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice, starmap
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from latentbandits.environments.protocol import Environment
from latentbandits.options import Option, choose
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.report import Claim, Estimate, Progress, Report, Table, all_positive
from latentbandits.simulation import simulate
from latentbandits.simulation.simulate import Metric, PolicyMaker, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = Mapping[str, "Figure"]
"""Figures by name, as a report has them."""

Policies = Mapping[str, AnyPolicy | PolicyMaker]
K = TypeVar("K")
R = TypeVar("R")
Job = tuple[Any, ...]
"""The arguments of one measurement."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with a name, and the policies that are played on it."""

    name: str
    environment: Environment
    policies: Policies


@dataclass(frozen=True, eq=False)
class Work:
    """The means of an experiment: its options, its processes, and the progress that it shows."""

    options: argparse.Namespace
    executor: Executor | None
    progress: Progress

    def map(self, description: str, measure: Callable[..., R], jobs: Sequence[Job]) -> list[R]:
        """Return `measure(*job)` of every job, in their order; each is a step of the progress."""
        self.progress.start(description, len(jobs))
        found: Iterable[R] = starmap(measure, jobs)
        if self.executor is not None:
            found = self.executor.map(measure, *zip(*jobs, strict=True))
        results = []
        for result in found:
            results.append(result)
            self.progress.advance(1)
        return results

    def map_groups(
        self, description: str, measure: Callable[..., R], jobs: Mapping[K, Sequence[Job]]
    ) -> dict[K, list[R]]:
        """Return `measure(*job)` of every job, by the group of the job."""
        results = iter(
            self.map(description, measure, [job for some in jobs.values() for job in some])
        )
        return {key: list(islice(results, len(some))) for key, some in jobs.items()}

    def play(self, description: str, setting: Setting, **changes: Any) -> Results:
        """Play a setting with the options' runs, horizon, seed and windows, or with `changes`."""
        options = vars(self.options)
        names = ("horizon", "seed", "first_rounds", "last_rounds")
        amounts = {name: options[name] for name in names if name in options}
        amounts = amounts | {"n_runs": options.get("runs")} | changes
        self.progress.start(f"{description}, {setting.name}", amounts["n_runs"])
        return simulate(
            setting.policies,
            setting.environment,
            **amounts,
            executor=self.executor,
            progress=self.progress.advance,
        )

    def play_all(
        self, description: str, settings: Iterable[Setting], chosen: Sequence[str], **changes: Any
    ) -> dict[str, Results]:
        """Play the chosen policies in every setting that has any of them."""
        results = {}
        for setting in settings:
            policies = {name: setting.policies[name] for name in chosen if name in setting.policies}
            if policies:
                some = replace(setting, policies=policies)
                results[setting.name] = self.play(description, some, **changes)
        return results


class Experiment(ABC):
    """An experiment that `reproduce NAME` or `python -m evidence NAME` runs.

    A subclass states the experiment's name, help and options, and measures. `draw` makes figures
    from the content of results.json alone, so that they can be drawn again (`python -m
    tools.figures`).
    """

    name: str
    help: str
    options: tuple[Option, ...] = ()

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        """Return the names that each option with several values accepts; not given, it means all.

        A key of the mapping is the option's key.
        """
        return {}

    def check(self, arguments: argparse.Namespace) -> None:
        """Raise ValueError for options that cannot be run, before any work."""
        self._chosen(arguments)

    def _chosen(self, arguments: argparse.Namespace) -> argparse.Namespace:
        """Return the options with the chosen names, all names where none was given."""
        kinds = {option.key: (option.metavar or option.key).lower() for option in self.options}
        chosen = {
            key: choose(kinds[key], getattr(arguments, key), known)
            for key, known in self.choices(arguments).items()
        }
        return argparse.Namespace(**{**vars(arguments), **chosen})

    @abstractmethod
    def measure(self, work: Work) -> Report:
        """Return rows, claims, tables, and the settings that are not options."""

    def draw(self, results: Mapping[str, Any]) -> Figures:
        """Return figures by name, of the content of results.json."""
        return {}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this experiment to its parser."""
        for option in self.options:
            option.add(parser)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        """Run the experiment and return its report; `executor` runs parts in other processes."""
        started, arguments = time.perf_counter(), self._chosen(arguments)
        report = self.measure(Work(arguments, executor, progress))
        settings = {o.key: getattr(arguments, o.key) for o in self.options if o.recorded}
        settings |= {"seed": arguments.seed, **report.settings}
        drawn = self.draw({"settings": settings, "policies": report.policies})
        return replace(
            report,
            experiment=self.name,
            settings=settings,
            seconds=time.perf_counter() - started,
            figures={**report.figures, **drawn},
        )


def policy_rows(results: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Return the rows of results.json: one per policy and setting."""
    return [
        policy.row() | {"setting": name}
        for name, result in results.items()
        for policy in result.values()
    ]


def metric_table(title: str, results: Mapping[str, Results], metric: Metric) -> Table:
    """Return a table with a policy in each row and a setting in each column."""
    policies = list(dict.fromkeys(name for result in results.values() for name in result))

    def cell(result: Results, name: str) -> str:
        return str(getattr(result[name], metric)) if name in result else ""

    body = [(name, *(cell(result, name) for result in results.values())) for name in policies]
    return Table(title, ("policy", *results), body)


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


Judgement = Callable[[BySetting], tuple[str, str, bool | None]]
"""A function of results that returns what is predicted, what was measured, and whether it holds."""


@dataclass(frozen=True)
class Judged:
    """A claim about `policies` that a function of the results judges."""

    id: str
    claim: str
    policies: tuple[str, ...]
    judge: Judgement

    def check(self, results: BySetting) -> Claim:
        return Claim(self.id, self.claim, *self.judge(results))


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

"""Runs of the same policies in several settings, for drift, misspecification and families."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from latentbandits.environments.protocol import Environment
from latentbandits.options import windows
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.report import Progress, Table
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.results import Metric
from latentbandits.simulation.simulate import PolicyMaker

Policies = Mapping[str, AnyPolicy | PolicyMaker]


@dataclass(frozen=True, eq=False)
class Setting:
    """One point of a sweep."""

    name: str
    environment: Environment
    policies: Policies


def play(
    experiment: str,
    settings: list[Setting],
    chosen: list[str],
    arguments: argparse.Namespace,
    executor: Executor | None,
    progress: Progress,
) -> dict[str, Results]:
    """Play the chosen policies in every setting that has any of them."""
    results = {}
    for setting in settings:
        policies = {name: setting.policies[name] for name in chosen if name in setting.policies}
        if not policies:
            continue
        progress.start(f"{experiment}, {setting.name}", arguments.runs)
        results[setting.name] = simulate(
            policies,
            setting.environment,
            n_runs=arguments.runs,
            horizon=arguments.horizon,
            seed=arguments.seed,
            **windows(arguments),
            executor=executor,
            progress=progress.advance,
        )
    return results


def rows(results: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Return the rows of results.json: one per policy and setting."""
    return [
        policy.row() | {"setting": name}
        for name, result in results.items()
        for policy in result.values()
    ]


def metric_table(title: str, results: Mapping[str, Results], metric: Metric) -> Table:
    """Return a table with a policy in each row and a setting in each column."""
    policies = list(dict.fromkeys(name for result in results.values() for name in result))
    body = [
        (name, *(_cell(result, name, metric) for result in results.values())) for name in policies
    ]
    return Table(title, ("policy", *results), body)


def _cell(result: Results, policy: str, metric: Metric) -> str:
    return str(getattr(result[policy], metric)) if policy in result else ""

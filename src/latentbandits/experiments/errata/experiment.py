"""The printed algorithms, and each of their errors alone, compared with the exact algorithm."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import Executor

from latentbandits.environments import Environment, GroupedRatings
from latentbandits.experiments.claims import check_all
from latentbandits.experiments.errata.variants import ARMS, ARMS_CLAIMS, LINEAR, LINEAR_CLAIMS
from latentbandits.experiments.movielens.data import given_folder
from latentbandits.experiments.movielens.settings import SETTING as MOVIELENS
from latentbandits.experiments.synthetic.settings import HORIZON, RUNS, SETTINGS
from latentbandits.options import positive
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.progress import Progress
from latentbandits.report.report import Report, Table
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.simulate import PolicyMaker

USERS = 200


class ErrataExperiment:
    """Measure regret on the synthetic problem and, if its data are given, reward on MovieLens."""

    name = "errata"
    help = "mmTS exactly as the paper's appendix prints it, beside the exact one"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--runs", type=positive, default=RUNS, help=f"runs (default {RUNS})")
        parser.add_argument(
            "--horizon", type=positive, default=HORIZON, help=f"rounds (default {HORIZON})"
        )
        parser.add_argument(
            "--data",
            metavar="DIR",
            help="a MovieLens 1M folder: the errata of the linear algorithm too",
        )
        parser.add_argument(
            "--users", type=positive, default=USERS, help=f"of MovieLens (default {USERS})"
        )

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.data:
            given_folder(arguments.data)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        started = time.perf_counter()

        def play(
            name: str,
            variants: Mapping[str, AnyPolicy | PolicyMaker],
            environment: Environment,
            n_runs: int,
        ) -> Results:
            progress.start(f"errata, {name}", n_runs)
            return simulate(
                variants,
                environment,
                n_runs=n_runs,
                horizon=arguments.horizon,
                seed=arguments.seed,
                executor=executor,
                progress=progress.advance,
            )

        arms = {s.name: play(s.name, ARMS, s.environment, arguments.runs) for s in SETTINGS}
        claims = check_all(ARMS_CLAIMS, arms)
        tables = [_arms_table(arms, arguments.runs)]
        linear: dict[str, Results] = {}
        if arguments.data:
            environment = _movielens(arguments.data, arguments.seed)
            linear = {MOVIELENS: play(MOVIELENS, LINEAR, environment, arguments.users)}
            claims += check_all(LINEAR_CLAIMS, linear)
            tables.append(_linear_table(linear[MOVIELENS], arguments.users))
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": arguments.horizon,
                "seed": arguments.seed,
                "users": arguments.users if arguments.data else 0,
            },
            seconds=time.perf_counter() - started,
            policies=[
                policy.row() | {"setting": name}
                for name, result in (arms | linear).items()
                for policy in result.values()
            ],
            claims=claims,
            tables=tables,
        )


def _movielens(folder: str, seed: int) -> GroupedRatings:
    from latentbandits.experiments.movielens.data import find_folder, load
    from latentbandits.experiments.movielens.filtering import keep_active
    from latentbandits.experiments.movielens.settings import Settings
    from latentbandits.experiments.movielens.split import learn

    settings = Settings(seed=seed)
    return learn(
        keep_active(load(find_folder(folder)), settings.more_than), settings, 0
    ).environment


def _arms_table(results: Mapping[str, Results], runs: int) -> Table:
    columns = ("variant", *(f"regret, {name}" for name in results))
    rows: list[tuple[str, ...]] = [
        (name, *(str(result[name].regret) for result in results.values())) for name in ARMS
    ]
    return Table(f"Algorithm 4 as printed, synthetic problem, {runs} runs", columns, rows)


def _linear_table(results: Results, users: int) -> Table:
    exact = next(iter(LINEAR))
    rows: list[tuple[str, ...]] = [
        (
            name,
            str(results[name].reward),
            "" if name == exact else str(results.difference(name, exact, "reward")),
        )
        for name in LINEAR
    ]
    columns = ("variant", "mean rating", "difference from exact (paired)")
    return Table(f"Algorithm 5 as printed, MovieLens 1M, {users} users", columns, rows)

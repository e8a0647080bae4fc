"""The cost of the errors in the paper's appendix: `latentbandits reproduce errata`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from latentbandits.environments import Environment, GroupedRatings
from latentbandits.experiments.errata_printed import PrintedLinearThompson, PrintedThompson
from latentbandits.experiments.experiment import Checkable, Order, check_all
from latentbandits.experiments.movielens import SETTING as MOVIELENS
from latentbandits.experiments.movielens_data import given_folder
from latentbandits.experiments.synthetic import HORIZON, RUNS, SETTINGS
from latentbandits.options import positive
from latentbandits.policies import TS, mmTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.report import Progress, Report, Table
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.simulate import PolicyMaker

__all__ = ["ErrataExperiment"]


# The compared variants of mmTS: each error of the appendix alone, and all of them.

EXACT, PRINTED, E1, E2, NO_MODEL = (
    "mmTS, exact",
    "as printed",
    "E1 only",
    "E2 only",
    "TS, no model",
)
E2_WITH_INDICATOR = "E2, and the indicator in the parameters"

ARMS: Mapping[str, AnyPolicy | PolicyMaker] = {
    EXACT: mmTS,
    PRINTED: PrintedThompson,
    E1: partial(PrintedThompson, prior_predictive=False),
    E2_WITH_INDICATOR: partial(PrintedThompson, marginal_indicator=False),
    E2: partial(PrintedThompson, marginal_indicator=False, parameter_indicator=False),
    NO_MODEL: TS(10, 0.5, prior_mean=0.5, prior_spread=(1 / 12) ** 0.5),
}


def _only(erratum: int) -> PolicyMaker:
    """Return Algorithm 5 with one of its errors, E1 to E4, and without the others."""
    return partial(
        PrintedLinearThompson,
        indicator=erratum == 1,
        prior_predictive=erratum == 2,
        inverse=erratum == 3,
        repeated=erratum == 4,
    )


LINEAR: Mapping[str, AnyPolicy | PolicyMaker] = {
    EXACT: mmTS,
    PRINTED: PrintedLinearThompson,
    **{f"E{erratum} only": _only(erratum) for erratum in (1, 2, 3, 4)},
}

ARMS_CLAIMS: tuple[Checkable, ...] = (
    *(
        Order(
            f"E1 {setting.sigma0:g}",
            "the indicator makes mmTS worse than having no model",
            setting.name,
            "regret",
            better=(NO_MODEL,),
            worse=(PRINTED, E1),
        )
        for setting in SETTINGS
    ),
    Order(
        "E2",
        "prior predictives cost regret while the indicator stays in the parameters",
        SETTINGS[-1].name,
        "regret",
        better=(EXACT,),
        worse=(E2_WITH_INDICATOR,),
    ),
)

LINEAR_CLAIMS: tuple[Checkable, ...] = (
    Order(
        "E1 linear",
        "with features too, the indicator and all errors together cost reward",
        MOVIELENS,
        "reward",
        better=(EXACT,),
        worse=(PRINTED, E1),
    ),
)


# The printed algorithms, and each of their errors alone, compared with the exact algorithm.

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
    from latentbandits.experiments.movielens import Settings
    from latentbandits.experiments.movielens_data import find_folder, keep_active, load
    from latentbandits.experiments.movielens_split import learn

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

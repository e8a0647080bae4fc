"""The cost of the errors in the paper's appendix: `latentbandits reproduce errata`."""

from __future__ import annotations

import argparse
from functools import partial

from latentbandits.experiments import experiment as frame
from latentbandits.experiments.errata_printed import PrintedLinearThompson, PrintedThompson
from latentbandits.experiments.experiment import Order
from latentbandits.experiments.movielens import SETTING as MOVIELENS
from latentbandits.experiments.movielens_data import given_folder
from latentbandits.experiments.movielens_split import first_split
from latentbandits.experiments.synthetic import BAD, HORIZON, RUNS, SETTINGS
from latentbandits.options import Option, positive
from latentbandits.policies import TS, mmTS
from latentbandits.report.report import Report, Table
from latentbandits.simulation import Results
from latentbandits.simulation.simulate import PolicyMaker

__all__ = ["ErrataExperiment"]


# The compared variants of mmTS: each error of the appendix alone, and all of them.

EXACT, PRINTED, NO_MODEL = "mmTS, exact", "as printed", "TS, no model"
E1, E2 = "E1 only", "E2 only"
E2_WITH_INDICATOR = "E2, and the indicator in the parameters"

ARMS: frame.Policies = {
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


LINEAR: frame.Policies = {
    EXACT: mmTS,
    PRINTED: PrintedLinearThompson,
    **{f"E{erratum} only": _only(erratum) for erratum in (1, 2, 3, 4)},
}

ARMS_CLAIMS: tuple[frame.Checkable, ...] = (
    *(
        Order(f"E1 {environment.model_noise:g}",
              "the indicator makes mmTS worse than having no model",
              setting, "regret", better=(NO_MODEL,), worse=(PRINTED, E1))
        for setting, environment in SETTINGS.items()
    ),
    Order("E2", "prior predictives cost regret while the indicator stays in the parameters",
          BAD, "regret", better=(EXACT,), worse=(E2_WITH_INDICATOR,)),
)  # fmt: skip

LINEAR_CLAIMS: tuple[frame.Checkable, ...] = (
    Order("E1 linear", "with features too, the indicator and all errors together cost reward",
          MOVIELENS, "reward", better=(EXACT,), worse=(PRINTED, E1)),
)  # fmt: skip


# The printed algorithms, and each of their errors alone, compared with the exact algorithm.

USERS = 200


class ErrataExperiment(frame.Experiment):
    """Measure regret on the synthetic problem and, if its data are given, reward on MovieLens."""

    name = "errata"
    help = "mmTS exactly as the paper's appendix prints it, beside the exact one"
    options = (
        Option("runs", "runs", RUNS, positive),
        Option("horizon", "rounds", HORIZON, positive),
        Option("data", "a MovieLens 1M folder: the errata of the linear algorithm too",
               metavar="DIR", recorded=False),
        Option("users", "of MovieLens", USERS, positive),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.data:
            given_folder(arguments.data)

    def measure(self, work: frame.Work) -> Report:
        options = work.options
        arms = {
            name: work.play(self.name, frame.Setting(name, environment, ARMS))
            for name, environment in SETTINGS.items()
        }
        claims = frame.check_all(ARMS_CLAIMS, arms)
        title = f"Algorithm 4 as printed, synthetic problem: regret, {options.runs} runs"
        tables = [frame.metric_table(title, arms, "regret")]
        linear: dict[str, Results] = {}
        if options.data:
            movielens = frame.Setting(MOVIELENS, first_split(options.data, options.seed), LINEAR)
            linear = {MOVIELENS: work.play(self.name, movielens, n_runs=options.users)}
            claims += frame.check_all(LINEAR_CLAIMS, linear)
            tables.append(_linear_table(linear[MOVIELENS], options.users))
        return Report(
            settings={"users": options.users if options.data else 0},
            policies=frame.policy_rows(arms | linear),
            claims=claims,
            tables=tables,
        )


def _linear_table(results: Results, users: int) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            name,
            str(results[name].reward),
            "" if name == EXACT else str(results.difference(name, EXACT, "reward")),
        )
        for name in LINEAR
    ]
    columns = ("variant", "mean rating", "difference from exact (paired)")
    return Table(f"Algorithm 5 as printed, MovieLens 1M, {users} users", columns, rows)

"""The printed algorithm and each of its errors beside the exact one, on the synthetic problem."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from latentbandits.experiments.claims import Checkable, Order, check_all
from latentbandits.experiments.errata.printed import PrintedThompson
from latentbandits.experiments.experiment import ProgressBar, Report, Table
from latentbandits.experiments.options import add_simulation_options, choose
from latentbandits.experiments.synthetic.settings import HORIZON, RUNS, SETTINGS
from latentbandits.policies import TS, mmTS
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.simulate import PolicyMaker

EXACT, PRINTED, E1, E2_WITH_INDICATOR, E2 = (
    "mmTS, exact",
    "as printed (E1 and E2)",
    "E1 only",
    "E2, and the indicator in the parameters",
    "E2 only",
)
NO_MODEL = "TS, no model"

POLICIES: Mapping[str, AnyPolicy | PolicyMaker] = {
    EXACT: mmTS,
    PRINTED: PrintedThompson,
    E1: partial(PrintedThompson, prior_predictive=False),
    E2_WITH_INDICATOR: partial(PrintedThompson, marginal_indicator=False),
    E2: partial(PrintedThompson, marginal_indicator=False, parameter_indicator=False),
    NO_MODEL: TS(10, 0.5, prior_mean=0.5, prior_spread=(1 / 12) ** 0.5),
}

CLAIMS: tuple[Checkable, ...] = (
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


class ErrataExperiment:
    """Regret of each variant at both noise levels."""

    name = "errata"
    help = "mmTS exactly as the paper's appendix prints it, beside the exact one"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        choose("variant", arguments.policies, POLICIES)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: ProgressBar
    ) -> Report:
        started = time.perf_counter()
        chosen = {name: POLICIES[name] for name in choose("variant", arguments.policies, POLICIES)}
        results: dict[str, Results] = {}
        for setting in SETTINGS:
            progress.start(f"errata, {setting.name}", arguments.runs)
            results[setting.name] = simulate(
                chosen,
                setting.environment,
                n_runs=arguments.runs,
                horizon=arguments.horizon,
                seed=arguments.seed,
                executor=executor,
                progress=progress.advance,
            )
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": arguments.horizon,
                "seed": arguments.seed,
            },
            seconds=time.perf_counter() - started,
            policies=[
                policy.row() | {"setting": name}
                for name, result in results.items()
                for policy in result.values()
            ],
            claims=check_all(CLAIMS, results),
            tables=[_table(results, arguments.runs)],
        )


def _table(results: Mapping[str, Results], runs: int) -> Table:
    columns = ("variant", *(f"regret, {name}" for name in results))
    variants = list(next(iter(results.values())))
    rows = [(name, *(str(result[name].regret) for result in results.values())) for name in variants]
    return Table(f"The appendix as printed, {runs} runs", columns, rows)

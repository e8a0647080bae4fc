"""`latentbandits tune MODEL`: the best policy for a model, on users drawn from its own prior."""

from __future__ import annotations

import argparse

from latentbandits.options import above_zero, add_common, positive


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits tune`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a folder that fit or save wrote")
    add("--horizon", type=positive, default=200, help="rounds that a user stays (default 200)")
    offered = "actions of a round, drawn from the catalogue of a linear model (default 20)"
    add("--offered", type=positive, default=20, help=offered)
    add("--policies", nargs="+", metavar="POLICY", help="candidates (default: greedy, quantiles, "
        "IDS, Thompson sampling, and planning policies for small models)")  # fmt: skip
    effort = "factor on the number of users, and so on the cost (default 1)"
    add("--effort", type=above_zero, default=1.0, help=effort)
    add_common(parser, out="out/tune")


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits tune`; returns the exit code."""
    from latentbandits.cli.console import OutputFolder, Progress, warn_of_harm
    from latentbandits.cli.console import executor as processes
    from latentbandits.models import load, load_catalogue
    from latentbandits.report.report import Report, Table
    from latentbandits.simulation.tune import tune

    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    warnings = warn_of_harm(arguments.model)
    features = None if catalogue is None or model.n_features is None else catalogue.features
    folder = OutputFolder(arguments.out)
    with processes(arguments.jobs) as executor, Progress("tune") as progress:
        tuning = tune(
            model,
            arguments.horizon,
            features,
            arguments.policies,
            seed=arguments.seed,
            offered=arguments.offered,
            effort=arguments.effort,
            executor=executor,
            progress=progress,
        )
    names = ("model", "horizon", "offered", "policies", "effort", "seed")
    table = Table(
        f"Regret over {tuning.horizon} rounds on users drawn from {arguments.model}",
        ("policy", "regret", "behind the best", "users"),
        [(row.policy, str(row.regret), str(row.behind), str(row.users)) for row in tuning.table],
    )
    report = Report(
        command="tune",
        settings={name: getattr(arguments, name) for name in names},
        seconds=tuning.seconds,
        warnings=warnings,
        tables=[table],
        results=tuning.as_dict(),
        summary=tuning.summary,
    )
    folder.keep(report)
    return 0

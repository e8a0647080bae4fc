"""`latentbandits simulate MODEL`: play policies against users of a model, or of a held-out log."""

from __future__ import annotations

import argparse
from typing import Any

from latentbandits.cli import log_options, options
from latentbandits.experiments.options import add_simulation_options, choose, positive


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("simulate", help=__doc__.split(": ", 1)[1], description=__doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="a folder that fit or save wrote")
    add("--users", metavar="LOG", help="play the users of this log (default: drawn from the model)")
    log_options.add_columns(parser, required=False)
    log_options.add_text_format(parser)
    offered = "actions of a round, drawn from the catalogue of a linear model (default 20)"
    add("--offered", type=positive, default=20, help=offered)
    add_simulation_options(parser, runs=1000, horizon=200)
    options.add_common(parser, out="out/simulate")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from latentbandits.cli.output import OutputFolder
    from latentbandits.cli.progress import Progress
    from latentbandits.experiments.fitted import POLICIES, Settings, play
    from latentbandits.experiments.fitted.users import from_log, from_model
    from latentbandits.learning.logs import read_log
    from latentbandits.learning.save import load_report
    from latentbandits.models import GaussianArms, LinearGaussian, load, load_catalogue
    from latentbandits.report.files import write
    from latentbandits.report.terminal import show

    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    if not isinstance(model, (GaussianArms, LinearGaussian)) or model.n_sessions is not None:
        each = "" if model.n_sessions is None else " with an instance for each session"
        raise ValueError(
            f"simulate plays the models that fit makes, GaussianArms and LinearGaussian; "
            f"{arguments.model} holds a {type(model).__name__}{each}: use latentbandits.simulate"
        )
    policies = choose("policy", arguments.policies, POLICIES[type(model).__name__])
    report = load_report(arguments.model) or {}
    if arguments.users is None:
        users = from_model(model, catalogue, arguments.offered, arguments.seed)
    else:
        columns = arguments.user, arguments.action, arguments.reward
        if None in columns:
            raise ValueError("--users needs --user, --action and --reward: the log's columns")
        log = read_log(arguments.users, *columns, text_format=log_options.text_format(arguments))
        fitted = report.get("settings", {})
        users = from_log(model, catalogue, log, arguments.offered, fitted, arguments.seed)
    folder = OutputFolder(arguments.out)
    settings = Settings(
        model=arguments.model,
        users=arguments.users,
        runs=arguments.runs,
        horizon=arguments.horizon,
        offered=arguments.offered,
        seed=arguments.seed,
    )
    reward_range = _reward_range(report, users.model)
    with options.executor(arguments.jobs) as executor, Progress("simulate") as progress:
        found = play(users, settings, policies, reward_range, executor, progress)
    with folder.replacing() as scratch:
        write(found, scratch)
    show(found, folder.path)
    return 0


def _reward_range(report: dict[str, Any], model: Any) -> tuple[float, float]:
    """The log's own; of a model without a report, that of means within two noises."""
    if "log" in report:
        return report["log"]["reward_least"], report["log"]["reward_most"]
    means = getattr(model, "means", None)
    if means is None:
        raise ValueError("this model has no report, so that the range of its rewards is not known")
    return float(means.min() - 2 * model.noise), float(means.max() + 2 * model.noise)

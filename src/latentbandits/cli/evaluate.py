"""`latentbandits evaluate LOG --model M`: estimate from a log what policies would have earned."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from typing import Any

from latentbandits.options import add_common, positive


def add_parser(subparsers: Any) -> None:
    """Add `latentbandits evaluate` and its options."""
    parser = subparsers.add_parser("evaluate", help=__doc__.split(": ", 1)[1], description=__doc__)
    add = parser.add_argument
    add("log", metavar="LOG", nargs="+", help="logged decisions: what export wrote, or any table")
    add("--model", metavar="DIR", help="the candidates' model: a folder that fit or save wrote")
    add("--policies", nargs="+", metavar="POLICY", help="candidates (default: the recommended one)")
    add("--against", metavar="POLICY", help="'logged' or a candidate: show paired differences")
    add("--estimators", nargs="+", metavar="NAME", help="IPS SNIPS DR SNDR DM replay queue")
    add("--horizon", type=positive, metavar="H", help="rounds 1..H (default: while ESS >= 100)")
    add("--unrewarded", type=float, metavar="VALUE", help="the reward of decisions that got none")
    draws = "posterior draws that Thompson sampling counts for its chances (default 100)"
    add("--draws", type=positive, default=100, metavar="N", help=draws)
    for name in ("session", "round", "action", "reward", "propensity", "eligible", "features"):
        add(f"--{name}", metavar="COL", help=f"the log's column of that (default {name})")
    add_common(parser, out="out/evaluate")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits evaluate`; returns the exit code."""
    from latentbandits.cli.console import OutputFolder, Progress, recommended_policy
    from latentbandits.evaluation import evaluate
    from latentbandits.evaluation.log import Columns
    from latentbandits.evaluation.model_based import simulator
    from latentbandits.evaluation.reading import read_decisions
    from latentbandits.evaluation.tables import figure, tables
    from latentbandits.models import load, load_catalogue
    from latentbandits.policies.registry import Inputs, build
    from latentbandits.report.files import envelope, write_results
    from latentbandits.report.terminal import show_tables

    if arguments.model is None:
        raise ValueError("--model is needed: the folder of the candidates' model")
    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    if model.n_sessions is not None:
        raise ValueError(f"{arguments.model} has an instance for each session: it judges no others")
    names = {
        field.name: value
        for field in fields(Columns)
        if (value := getattr(arguments, field.name, None)) is not None
    }
    source = arguments.log[0] if len(arguments.log) == 1 else arguments.log
    read = read_decisions(
        source,
        model=model,
        catalogue=catalogue,
        columns=Columns(**names),
        unrewarded=arguments.unrewarded,
    )
    log = read.log
    inputs = Inputs(
        model=model,
        horizon=arguments.horizon or log.n_rounds,
        items=None if catalogue is None else catalogue.features,
    )
    texts = arguments.policies or [recommended_policy(arguments.model, "mmTS")]
    policies = {text: build(text, inputs) for text in texts}
    folder = OutputFolder(arguments.out)
    with Progress("evaluate") as progress:
        progress.start("evaluate", log.n_sessions)
        evaluation = evaluate(
            policies,
            log,
            model=model,
            against=arguments.against,
            estimators=arguments.estimators,
            horizon=arguments.horizon,
            draws=arguments.draws,
            seed=arguments.seed,
            simulated=simulator(model, log, arguments.seed),
            progress=progress.advance,
        )
    warnings = [*read.warnings, *evaluation.warnings]
    settings = {
        name: value for name, value in vars(arguments).items() if name not in ("run", "jobs")
    }
    results = envelope("evaluate", settings, evaluation.seconds, warnings) | {
        "n_sessions": evaluation.n_sessions,
        "n_decisions": evaluation.n_decisions,
        "n_unrewarded": read.n_unrewarded,
        "missing_by_action": read.missing_by_action if read.n_unrewarded else {},
        "horizon": evaluation.horizon,
        "horizon_reason": evaluation.horizon_reason,
        "estimates": evaluation.estimates,
        "differences": evaluation.differences,
        "rounds": evaluation.rounds,
    }
    with folder.replacing() as scratch:
        write_results(results, scratch)
        drawn = figure(evaluation)
        drawn.savefig(scratch / "evaluate.png", dpi=160)
        drawn.savefig(scratch / "evaluate.svg", metadata={"Date": None})
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    console = show_tables(tables(evaluation))
    console.print(
        f"{evaluation.n_decisions} decisions; {evaluation.seconds:.0f} s; results in {folder.path}"
    )
    return 0

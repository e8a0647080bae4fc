"""`latentbandits evaluate LOG --model M`: estimate from a log what policies would have earned."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from typing import Any

from latentbandits.options import add_common, add_json, positive


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits evaluate`."""
    parser.usage = "%(prog)s LOG [LOG ...] [--model DIR] [options]"
    logs = "logged decisions: what export wrote, or any table"
    parser.add_argument("log", metavar="LOG", nargs="+", help=logs)
    add = parser.add_argument_group("candidates").add_argument
    add("--model", metavar="DIR", help="the candidates' model: a folder that fit or save wrote")
    add("--policies", nargs="+", metavar="POLICY", help="candidates (default: the recommended one)")
    add(
        "--distribution", metavar="CSV", help="a candidate: columns action, probability, (position)"
    )
    target = "a candidate: the policy that made this log, whose own rewards are shown beside it"
    add("--target-log", nargs="+", metavar="LOG2", help=target)
    add("--against", metavar="POLICY", help="'logged' or a candidate: show paired differences")
    add = parser.add_argument_group("estimates").add_argument
    add("--estimators", nargs="+", metavar="NAME", help="IPS SNIPS DR SNDR DM replay queue")
    add("--horizon", type=positive, metavar="H", help="rounds 1..H (default: while ESS >= 100)")
    add("--unrewarded", type=float, metavar="VALUE", help="the reward of decisions that got none")
    draws = "posterior draws that Thompson sampling counts for its chances (default 100)"
    add("--draws", type=positive, default=100, metavar="N", help=draws)
    add = parser.add_argument_group("columns of the log").add_argument
    for name, held in _COLUMNS.items():
        add(f"--{name}", metavar="COL", help=f"column with {held} (default: {name})")
    add("--list", metavar="COL", help="column with the list (default: list_id, of an export)")
    looks = "how users look at lists: each, cascade, or positions(1, 0.6) (default: the model's)"
    add("--click-model", metavar="MODEL", help=looks)
    position = "column with the position in a list, or where --distribution or --target-log has it"
    add("--position", metavar="COL", help=position)
    group = parser.add_argument_group("output")
    add_json(group)
    add_common(group, out="out/evaluate")


_COLUMNS = {
    "session": "the session's id",
    "round": "the number of the decision in its session",
    "action": "the action that was chosen",
    "reward": "the reward of the decision",
    "propensity": "the probability with which the action was chosen",
    "eligible": "the actions that could be chosen",
    "features": "the features of the actions",
}


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits evaluate`; returns the exit code."""
    from latentbandits.cli.console import OutputFolder, Progress
    from latentbandits.evaluation import evaluate
    from latentbandits.evaluation.distribution import against_own_rewards
    from latentbandits.evaluation.follow import simulator
    from latentbandits.evaluation.report_tables import figure, tables, target_table
    from latentbandits.report.report import Report

    read, policies, model, target = _candidates(arguments)
    log = read.log
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
            simulated=None if model is None else simulator(model, log, arguments.seed),
            progress=progress.advance,
        )
    warnings = [*read.warnings, *evaluation.warnings]
    settings = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("run", "jobs", "json")
    }
    results = {
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
    shown = tables(evaluation)
    if target is not None:
        rows = against_own_rewards(evaluation, target)
        results["target_log"] = rows
        shown.append(target_table(rows))
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    report = Report(
        command="evaluate",
        settings=settings,
        seconds=evaluation.seconds,
        warnings=warnings,
        tables=shown,
        figures={"evaluate": figure(evaluation)},
        results=results,
        summary=f"{evaluation.n_decisions} decisions; {evaluation.seconds:.0f} s",
    )
    folder.keep(report, json=arguments.json)
    return 0


def _candidates(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any], Any, Any]:
    """Return the log as it was read, the policies by name, the model and the log of the target."""
    from latentbandits.evaluation.distribution import read_fixed
    from latentbandits.evaluation.log import Columns
    from latentbandits.evaluation.reading import read_decisions
    from latentbandits.models import load, load_catalogue
    from latentbandits.models.artefacts import Catalogue, recommended_policy
    from latentbandits.policies.registry import build, find, inputs_of, parse

    fixed = arguments.distribution is not None or arguments.target_log is not None
    if arguments.model is None and not fixed and not arguments.policies:
        raise ValueError(
            "--model is needed: the folder of the candidates' model (not for --distribution, "
            "--target-log and --policies that need none, such as uniform)"
        )
    if arguments.model is not None and arguments.position is not None and arguments.list is None:
        raise ValueError(
            "--position goes without --model: a model's actions have no positions, unless they "
            "are shown in lists (--list)"
        )
    model = catalogue = None
    if arguments.model is not None:
        model, catalogue = load(arguments.model), load_catalogue(arguments.model)
        if model.n_sessions is not None:
            raise ValueError(
                f"{arguments.model} has an instance for each session: it judges no others"
            )
    names = {
        field.name: value
        for field in fields(Columns)
        if (value := getattr(arguments, field.name, None)) is not None
    }
    if arguments.list is not None:
        names |= {"list_id": arguments.list}
        names |= {} if arguments.position is None else {"list_position": arguments.position}
    columns = Columns(**names)
    source = arguments.log[0] if len(arguments.log) == 1 else arguments.log
    given, target, warnings = None, None, []
    if fixed:
        given = read_fixed(
            source, columns, arguments.position, arguments.distribution, arguments.target_log
        )
        source, warnings = given.decisions, given.warnings
        catalogue = catalogue or Catalogue(given.actions)
    read = read_decisions(
        source, model=model, catalogue=catalogue, columns=columns, unrewarded=arguments.unrewarded,
        click_model=arguments.click_model or _learned_click_model(arguments.model),
    )  # fmt: skip
    policies: dict[str, Any] = {}
    if given is not None:
        assert catalogue is not None
        policies |= given.policies(catalogue.ids, read.log)
        if given.target is not None:
            target = read_decisions(
                given.target, catalogue=catalogue, columns=columns, unrewarded=arguments.unrewarded
            ).log
    if arguments.policies or not fixed:
        inputs = inputs_of(
            model,
            catalogue,
            n_actions=None if model is not None else read.log.n_actions,
            horizon=arguments.horizon or read.log.n_rounds,
        )
        texts = arguments.policies or [recommended_policy(arguments.model, "mmTS")]
        for text in texts:
            if model is None and "model" in find(parse(text).name).needs:
                raise ValueError(f"{text} needs a model: name its folder, --model DIR")
            policies[text] = build(text, inputs)
    read = replace(read, warnings=[*read.warnings, *warnings])
    return read, policies, model, target


def _learned_click_model(folder: str | None) -> Any:
    """Return the click model that was learned with the model, or "each"."""
    from latentbandits.models.artefacts import load_click_model

    learned = None if folder is None else load_click_model(folder)
    return "each" if learned is None else learned

"""`latentbandits simulate MODEL`: play policies against users of a model, or of a held-out log."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentbandits.cli import log_options
from latentbandits.options import add_common, positive, simulation_options

_RANDOM_ITEMS = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits simulate`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a folder that fit or save wrote")
    add("--users", metavar="LOG", help="play the users of this log (default: drawn from the model)")
    real = "play them on their real rewards: a round offers some of the user's own rows"
    add("--replay", action="store_true", help=real)
    log_options.add_columns(parser)
    log_options.add_text_format(parser)
    offered = "actions of a round: of a linear model's catalogue (default 20), or rows (default 10)"
    add("--offered", type=positive, help=offered)
    for option in simulation_options(runs=1000, horizon=200):
        option.add(parser)
    add_common(parser, out="out/simulate")


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits simulate`; returns the exit code."""
    from latentbandits.cli.console import OutputFolder, Progress, print_warnings, warn_of_harm
    from latentbandits.cli.console import executor as processes
    from latentbandits.models import load, load_catalogue
    from latentbandits.report.report import Report, policy_table
    from latentbandits.simulation import simulate
    from latentbandits.simulation.plots import draw_results
    from latentbandits.simulation.simulate import makers

    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    if model.n_sessions is not None:
        raise ValueError(
            f"{arguments.model} holds a {type(model).__name__} with an instance for each of "
            f"{model.n_sessions} sessions: simulate plays one model that all users share"
        )
    if arguments.replay and arguments.users is None:
        raise ValueError("--replay needs --users: the log whose rewards are real")
    if arguments.offered is None:
        arguments.offered = 10 if arguments.replay else 20
    items = None if catalogue is None else catalogue.features
    averages = None if catalogue is None else catalogue.averages
    texts = policy_texts(arguments.policies, arguments.model, model, items)
    if arguments.replay:
        return _replay(arguments, model, catalogue, texts)
    users, warnings = _users(arguments, model, catalogue)
    folder = OutputFolder(arguments.out)
    print_warnings(warnings)
    warnings = [*warn_of_harm(arguments.model), *warnings]
    started = time.perf_counter()
    with processes(arguments.jobs) as executor, Progress("simulate") as progress:
        progress.start("simulate", arguments.runs)
        results = simulate(
            makers(
                {text: text for text in texts},
                horizon=arguments.horizon,
                items=items,
                averages=averages,
            ),
            users,
            n_runs=arguments.runs,
            horizon=arguments.horizon,
            seed=arguments.seed,
            first_rounds=arguments.first_rounds,
            last_rounds=arguments.last_rounds,
            executor=executor,
            progress=progress.advance,
        )
    source = "the model" if arguments.users is None else Path(arguments.users).name
    setting = f"users of {source}"
    title = f"{Path(arguments.model).name}, {setting}: {arguments.runs} runs"
    rows = [result.row() | {"setting": setting} for result in results.values()]
    names = ("model", "users", "runs", "horizon", "offered", "seed", "first_rounds", "last_rounds")
    report = Report(
        experiment=None,
        command="simulate",
        settings={name: getattr(arguments, name) for name in names} | {"policies": texts},
        seconds=time.perf_counter() - started,
        warnings=warnings,
        policies=rows,
        tables=[policy_table(title, rows)],
        figures={"simulate": draw_results(results, f"{title}; one standard error", "mean reward")},
        frames={"curves": results.curves()},
    )
    folder.keep(report)
    return 0


def _replay(arguments: argparse.Namespace, model: Any, catalogue: Any, texts: list[str]) -> int:
    """Play on real rewards; results.json has the rows of `replay`."""
    from latentbandits.cli.console import OutputFolder, Progress, warn_of_harm
    from latentbandits.learning.assess.replay import PolicyPlayer, replay
    from latentbandits.learning.assess.report_tables import difference_table
    from latentbandits.learning.logs.users import numbered_as_model
    from latentbandits.policies.registry import Inputs, build
    from latentbandits.report.report import Report

    started = time.perf_counter()
    log, features = numbered_as_model(model, catalogue, _read_log(arguments))
    averages = None if catalogue is None else catalogue.averages
    inputs = Inputs(model, horizon=arguments.horizon, items=features, averages=averages)
    names = list(dict.fromkeys([*texts, "popularity"]))
    players = {text: PolicyPlayer(build(text, inputs), log.n_actions, features) for text in names}
    folder = OutputFolder(arguments.out)
    warnings = warn_of_harm(arguments.model)
    with Progress("simulate") as progress:
        replayed = replay(
            players,
            log,
            offered=arguments.offered,
            most_rounds=arguments.horizon,
            seed=arguments.seed,
            progress=progress,
        )
    settings = ("model", "users", "horizon", "offered", "seed", "replay")
    title = f"{Path(arguments.model).name}: real rewards of {Path(arguments.users).name}"
    rows = replayed.rows("popularity")
    report = Report(
        command="simulate",
        settings={name: getattr(arguments, name) for name in settings} | {"policies": texts},
        seconds=time.perf_counter() - started,
        warnings=warnings,
        tables=[difference_table(title, rows)],
        results={"replay": rows},
    )
    folder.keep(report)
    return 0


def policy_texts(requested: Sequence[str] | None, path: str, model: Any, items: Any) -> list[str]:
    """Return the policies to play: the given ones, else the recommended one and the usual ones.

    `auto` stands for the policy that the fit recommends, or that `tune` finds if there is none.
    """
    from latentbandits.cli.console import tuned_policy
    from latentbandits.models.artefacts import recommended_policy
    from latentbandits.policies.registry import AUTO, Inputs, build, entries, parse

    inputs, recommended = Inputs(model, items=items), recommended_policy(path, "")
    if requested:
        if AUTO in requested and not recommended:
            recommended = tuned_policy(model, items)
        chosen = [recommended if text == AUTO else text for text in requested]
    else:
        usual = (e for e in entries("session") if not e.wraps and not e.on_request)
        fitting = [entry.name for entry in usual if entry.fits(inputs)]
        chosen = [*([recommended] if recommended else []), *fitting]
    texts = list(dict.fromkeys(str(parse(text)) for text in chosen))
    for text in texts:
        build(text, inputs)  # fails here, not in a worker process
    return texts


def _users(arguments: argparse.Namespace, model: Any, catalogue: Any) -> tuple[Any, list[str]]:
    """Return the environment that is played, and warnings about it."""
    import numpy as np

    from latentbandits.environments import UsersOfModel

    if arguments.users is not None:
        return _log_users(arguments, model, catalogue), []
    features = None
    if catalogue is not None and model.n_actions is None:
        features = catalogue.features
    warnings = []
    if model.n_actions is None and model.n_features is not None and features is None:
        warnings.append(
            "the model was saved without a catalogue of actions with features: rounds offer "
            "actions with random features of length about one"
        )
        rng = np.random.default_rng(arguments.seed)
        features = rng.standard_normal((_RANDOM_ITEMS, model.n_features)) / model.n_features**0.5
    users = UsersOfModel(model, features, arguments.offered)
    if not users.is_generative:
        warnings.append(
            f"a {type(model).__name__} draws no rewards: they are Gaussian around means"
        )
    return users, warnings


def _log_users(arguments: argparse.Namespace, model: Any, catalogue: Any) -> Any:
    from latentbandits.learning.logs.users import log_users
    from latentbandits.learning.save import load_report

    log = _read_log(arguments)
    fitted = (load_report(arguments.model) or {}).get("settings", {})
    return log_users(model, catalogue, log, arguments.offered, fitted, arguments.seed)


def _read_log(arguments: argparse.Namespace) -> Any:
    from latentbandits.learning.logs.rows import read_log

    columns = arguments.user, arguments.action, arguments.reward
    if None in columns:
        raise ValueError("--users needs --user, --action and --reward: the log's columns")
    return read_log(arguments.users, *columns, text_format=log_options.text_format(arguments))

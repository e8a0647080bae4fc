"""`latentbandits serve MODEL`: the decision service.

Run the decision service. Every setting below can be given as a flag (--session-ttl 30d), in a TOML
file (--config; session_ttl = "30d"), or as an environment variable (LATENTBANDITS_SESSION_TTL); the
first of these that has it counts. A TIME is 30s, 15m, 2h or 30d; a plain number is in seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path
from typing import Any, get_args

from latentbandits.options import in_words
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.http.service import Service

_DEMO_RATE = 20.0  # decisions per second of the demonstration's simulated visitors
_DEMO_SETTINGS = {"LATENTBANDITS_HOLDOUT_SHARE": "0.2"}  # defaults


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits serve`."""
    parser.usage = "%(prog)s [MODEL] [options]"
    parser.add_argument("model", nargs="?", metavar="MODEL", help="folder of a saved model")
    parser.add_argument(
        "--demo", action="store_true", help="no model: learn one from generated ratings, and play"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings")
    parser.add_argument(
        "--activate",
        action="store_true",
        help="activate MODEL although it was activated before in this store: without this, a "
        "restart keeps the model that is active there",
    )
    _add_settings(parser)


GROUPS = {
    "address and access": (
        "host", "port", "allowed_hosts", "keys", "insecure_admin", "audit", "reward_origins",
        "reward_token_seconds", "play",
    ),
    "models and policies": (
        "models", "policy", "click_model", "swap", "relearn", "state_names", "explore",
        "propensity", "propensity_draws",
    ),
    "experiment groups": ("holdout_share", "holdout_policy", "groups"),
    "rewards": ("reward_min", "reward_max", "reward_default", "reward_timeout"),
    "sessions and store": (
        "store", "synchronous", "checkpoint_pages", "row_checksums", "session_ttl", "retention",
        "snapshot_rounds", "cached_sessions", "cached_megabytes",
    ),
    "limits and logging": (
        "max_body", "max_connections", "max_waiting", "header_timeout", "body_timeout",
        "send_timeout", "request_timeout", "drain", "log_level",
    ),
}  # fmt: skip
"""The settings by what they are about, as --help shows them."""

_METAVARS = {int: "N", float: "X", float | None: "X", bool: "{true,false}"}


def _add_settings(parser: argparse.ArgumentParser) -> None:
    import msgspec

    from latentbandits.serving.settings import TIMES, Settings

    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    listed = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in fields if name not in listed)  # none: a test sees to it
    for title, names in (*GROUPS.items(), ("other settings", others)):
        group = parser.add_argument_group(title)
        if "groups" in names:
            group.add_argument(
                "--group",
                action="append",
                default=[],
                metavar="NAME=POLICY:SHARE",
                help="an experiment group beside the main one; can be repeated",
            )
        for name in names:
            described, meta = get_args(fields[name].type)[:2]
            default = fields[name].default
            shown = (
                in_words(default) if name in TIMES and default else json.dumps(default).strip('"')
            )
            metavar = "TIME" if name in TIMES else _METAVARS.get(described, "TEXT")
            options: dict[str, Any] = {"metavar": metavar}
            choices = [value for value in get_args(described) if isinstance(value, str)]
            if choices:
                options = {"choices": choices}
            if default is False:  # this flag has no value
                options = {"action": "store_const", "const": True}
            known = "" if default in (None, "") or default is False else f" (default: {shown})"
            flag = f"--{name.replace('_', '-')}"
            group.add_argument(flag, help=meta.description + known, **options)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits serve`; returns the exit code."""
    from latentbandits.cli.console import harm_warnings
    from latentbandits.serving.engine.model_rows import notes
    from latentbandits.serving.http.server import bind, serve
    from latentbandits.serving.settings import MAIN, PREFIX, Settings, gather
    from latentbandits.serving.stores import opening

    flags = {name: getattr(arguments, name) for name in Settings.__struct_fields__}
    if arguments.model is not None and flags["models"] is None:
        flags["models"] = str(Path(arguments.model).resolve().parent)
    if arguments.group:
        flags["groups"] = "; ".join([*filter(None, [flags["groups"]]), *arguments.group])
    environment = {**(_DEMO_SETTINGS if arguments.demo else {}), **os.environ}
    settings = gather(flags, arguments.config or os.environ.get(f"{PREFIX}CONFIG"), environment)
    if arguments.demo and arguments.model is not None:
        raise ValueError("give a MODEL or --demo, not both")
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _allow_connections(settings.max_connections)
    sockets = bind(settings)
    with opening(settings.store, settings.writing()) as store:
        engine = Engine(store, settings)
        demo = _demonstration() if arguments.demo else None
        row = _model_row(arguments.model, demo)
        if demo is None:
            _tune_new(engine, row)
        with engine.transaction():
            why = engine.start_with(row, activate=arguments.activate)
            served = engine.library.served(engine.library.active.model)
            row = engine.library.row(served.id)
            chosen = _chosen(settings.policy, row, engine.library.tuned(served.id))
        service = Service(engine, settings)
    logger = logging.getLogger("latentbandits")
    for warning in engine.store.warnings:
        logger.warning("%s", warning)
    logger.info(
        "active model %s (%s): %s; policy %s%s, store %s",
        served.id,
        served.name,
        why,
        served.of_group(MAIN).text,
        chosen,
        _safe(settings.store),
    )
    if settings.insecure_admin:
        logger.warning("--insecure-admin: whoever is on this machine can activate models, and more")
    if row is not None:
        for warning in harm_warnings(notes(row), served.name):
            logger.warning("%s", warning)
    serve(service, sockets, None if demo is None else demo.visitors(service, _DEMO_RATE))
    return 0


def _chosen(policy: str, row: Any, tuned: str | None) -> str:
    """Say how `auto` came to the policy of the main group."""
    from latentbandits.policies.registry import AUTO
    from latentbandits.serving.engine.model_rows import notes

    if policy != AUTO:
        return ""
    if notes(row).get("recommended_policy"):
        return " (recommended by its fit)"
    return " (tuned for it)" if tuned else " (the default: nothing is recommended, nor tuned)"


def _tune_new(engine: Any, row: Any) -> None:
    """Tune a policy for a new model without a recommendation, where a group's policy is `auto`.

    The store keeps the result: a restart does not tune again.
    """
    from latentbandits.serving.tuning import lacks_policy, report_tuned, tune_row, warn_untuned

    if row is None:
        return
    with engine.transaction():
        if not lacks_policy(engine, row):
            return
    try:
        tuning = tune_row(row)
    except (TypeError, ValueError, TimeoutError) as error:
        warn_untuned(row.name, str(error))
        return
    report_tuned(row.name, tuning.summary)
    with engine.transaction():
        engine.library.keep_tuned(row.id, tuning.winner)


def _demonstration() -> Any:
    """Learn the model of the demonstration; learning is imported for nothing else here."""
    from latentbandits.cli.demonstration import demonstration

    return demonstration()


def _model_row(path: str | None, demo: Any) -> Any:
    """Return the model to serve; None: the active one of the store."""
    from latentbandits.serving.engine.model_rows import pack, read_artefact

    if demo is not None:
        return pack(demo.model, "demo", demo.catalogue)
    return None if path is None else read_artefact(Path(path))


def _safe(store: str) -> str:
    """Return a store's name without a password in it."""
    scheme, separator, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator else store


def _allow_connections(wanted: int) -> None:
    """Raise the soft limit of open files for `wanted` connections, up to the hard limit."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 100
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))

"""`latentbandits relearn --service URL`: learn again from the log, and activate a better model."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from latentbandits.cli import log_options
from latentbandits.options import add_json, add_seed, duration, positive

_MAX_ANSWER = 512 * 2**20  # bytes: the largest model that a service takes, as text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits relearn`."""
    parser.usage = "%(prog)s --service URL --models DIR [options]"
    add = parser.add_argument_group("the service").add_argument
    add("--service", required=True, metavar="URL", help="address of the running service")
    add("--models", required=True, metavar="DIR", help="the service's models folder")
    add("--key", metavar="KEY", help="an admin key of the service")
    add("--store", metavar="STORE", help="read the log from the store (default: over HTTP)")
    add("--model", metavar="DIR", help="not needed any more: the service sends its active model")
    group = parser.add_argument_group("what is learned from")
    add = group.add_argument
    add("--with", dest="with_logs", nargs="+", default=[], metavar="LOG", help="older logs to use")
    log_options.add_columns(group)
    add("--unrewarded", type=float, metavar="VALUE", help="the reward of decisions that got none")
    add("--since", type=duration, metavar="TIME", help="leave out decisions older than this (30d)")
    half_life = "learn from sessions of this age half as often (14d)"
    add("--half-life", type=duration, metavar="TIME", help=half_life)
    held_out = "share of sessions that no fit sees (default .3)"
    add("--held-out", type=float, default=0.3, metavar="SHARE", help=held_out)
    add = parser.add_argument_group("when a model is activated").add_argument
    policy = "policy of the candidate (default: the recommended one)"
    add("--policy", metavar="POLICY", help=policy)
    margin = "gain per session that must be shown (default 0)"
    add("--margin", type=float, default=0.0, metavar="X", help=margin)
    compared = "share of a typical session that a verdict must be about (default .5)"
    add("--compared", type=float, default=0.5, metavar="SHARE", help=compared)
    level = "level of the confidence sequence (default .95)"
    add("--level", type=float, default=0.95, metavar="X", help=level)
    tightest = "sessions near which the sequence is tightest; the first look's stays (default 5000)"
    add("--tightest-at", type=positive, default=5_000, metavar="N", help=tightest)
    add("--dry-run", action="store_true", help="do all but activate")
    group = parser.add_argument_group("runs and records")
    add = group.add_argument
    add("--every", type=duration, metavar="TIME", help="run again and again (1h); default: once")
    add("--work", default="out/relearn", metavar="DIR", help="records (default out/relearn)")
    add("--keep", type=positive, default=5, metavar="N", help="relearned models kept (default 5)")
    add_json(group)
    add_seed(group)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits relearn`; returns the exit code."""
    from latentbandits.cli.console import Progress
    from latentbandits.client import Client
    from latentbandits.learning.logs.tables import files_of_path
    from latentbandits.loop.kept_log import ServiceSource, StoreSource
    from latentbandits.loop.records import locked
    from latentbandits.loop.relearn import ASKED, FIT_OPTIONS, LoopSettings, Relearner
    from latentbandits.report.terminal import print_json

    arguments.with_logs = tuple(arguments.with_logs)
    settings = LoopSettings(
        work=Path(arguments.work),
        models=Path(arguments.models),
        keep=arguments.keep,
        fit_options=replace(
            FIT_OPTIONS, user=arguments.user, action=arguments.action, reward=arguments.reward
        ),
        **{name: getattr(arguments, name) for name in ASKED},
    )
    if not settings.models.is_dir():
        raise ValueError(f"--models {settings.models} is not a folder: see serve --models")
    for log in settings.with_logs:
        files_of_path(log)  # an error now, rather than after the service's log was read
    stop = threading.Event()
    if arguments.every is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    with (
        locked(settings.work),
        Client(arguments.service, arguments.key, timeout=30.0, max_answer=_MAX_ANSWER) as client,
    ):
        source = ServiceSource(client) if arguments.store is None else StoreSource(arguments.store)
        loop = Relearner(settings, client, source)
        while True:
            with Progress("relearn") as progress:
                record = loop.run(progress)
            _show(record, settings.work, sys.stderr if arguments.json else sys.stdout)
            if arguments.json:  # with --every, a document for each run
                print_json({"command": "relearn", **asdict(record)})
                sys.stdout.flush()
            if arguments.every is None:
                return 2 if record.outcome in ("failed", "planned") else 0
            if stop.wait(arguments.every.total_seconds()):
                return 0


def _show(record: Any, work: Path, stream: TextIO) -> None:
    """Print a run's decision and where its record is."""
    write = stream.write
    write(f"run {record.number}: {record.decision} ({record.outcome}): {record.why}\n")
    if record.data:
        write(
            f"  data: {record.data['decisions']} decisions of {record.data['sessions']} sessions, "
            f"{record.data['judged_sessions']} judged on\n"
        )
    if record.verdict:
        verdict = record.verdict
        write(
            f"  reward per session in rounds 1-{verdict['horizon']}: candidate "
            f"{verdict['candidate']:.4g}, current {verdict['current']:.4g}; effective sample size "
            f"{verdict['ess']:.0f}\n"
        )
        if verdict["sessions_needed"]:
            write(
                f"  a difference as large would be decided by about {verdict['sessions_needed']} "
                f"held-out sessions; there are {verdict['n_sessions']}\n"
            )
    for warning in record.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    write(f"  record: {work / 'runs' / f'{record.number:06d}.json'}\n")
    stream.flush()

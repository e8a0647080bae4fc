"""`python -m benchmarks [name ...]`: run benchmarks, print their tables, write them to --out."""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.metadata
import json
import os
import pkgutil
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

import benchmarks
from benchmarks.report import Report

PACKAGES = ("latentbandits", "numpy", "scipy", "numba", "river", "mabwiser", "coba", "vowpalwabbit")


def discover() -> dict[str, Callable[[], Report]]:
    """The benchmarks by name: every module of this package that has a `main`."""
    collected = {}
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_"):
            main = getattr(importlib.import_module(f"benchmarks.{module.name}"), "main", None)
            if main is not None:
                collected[module.name] = main
    return collected


def machine() -> dict[str, Any]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> int:
    result = discover()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(result)}")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of results")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in result:
            near = difflib.get_close_matches(name, result, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(result)}"
            parser.error(f"no benchmark is called {name!r}; {hint}")
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot write to {arguments.out}: {error.strerror}")

    console = Console()
    about = machine()
    description = (
        f"{about['processor']}, {about['cores']} cores, Python {about['python']}; "
        + ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    )
    console.print(description)
    reports: dict[str, Report] = {}
    stopped: list[str] = []
    for name in arguments.names or result:
        start = time.perf_counter()
        # Linux counts the memory of a process into the peak of those it starts: a fresh one each
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own_process:
                reports[name] = own_process.submit(result[name]).result()
        except Exception:  # the others still run
            console.print_exception()
            reports[name] = Report(name, notes=(f"{name} STOPPED with an error: see above",))
            stopped.append(name)
        reports[name].show(console)
        console.print(f"({name}: {time.perf_counter() - start:.0f} s)\n")

    results = {
        "experiment": "benchmarks",
        "machine": about,
        "benchmarks": {name: report.json() for name, report in reports.items()},
    }
    path = arguments.out / "results.json"
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    pages = [f"{description}.\n", *(report.markdown() for report in reports.values())]
    (arguments.out / "tables.md").write_text("\n".join(pages))
    targets = [t for report in reports.values() for t in report.targets if t.bound != "-"]
    met = sum(t.met is True for t in targets)
    unmeasured = sum(t.measured is None for t in targets)
    console.print(f"{met} of {len(targets)} targets met, {unmeasured} not measured; wrote {path}")
    if stopped:
        console.print(f"[bold red]stopped with an error: {', '.join(stopped)}[/]")
    return 0 if met == len(targets) and not stopped else 1


if __name__ == "__main__":
    sys.exit(main())

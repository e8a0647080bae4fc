"""Write a report to a folder: results.json, figures and frames."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentbandits.report.report import Estimate, Report


def write(report: Report, folder: Path) -> None:
    """Write results.json, every frame as Parquet, every figure as PNG and SVG."""
    for name, frame in report.frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    for name, figure in report.figures.items():
        figure.savefig(folder / f"{name}.png", dpi=160)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    write_results(results_of(report), folder)


def results_of(report: Report) -> dict[str, Any]:
    """Return what results.json holds of a report."""
    fields: dict[str, Any] = {} if report.experiment is None else {"experiment": report.experiment}
    claims = [claim._asdict() for claim in report.claims]
    own = {"policies": report.policies, "claims": claims}
    fields |= own if report.results is None else report.results
    return envelope(report.command, report.settings, report.seconds, report.warnings) | fields


def envelope(
    command: str, settings: Mapping[str, Any], seconds: float, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the keys of results.json that all commands share; each command adds further keys.

    >>> envelope("simulate", {"seed": 0}, 1.234)
    {'command': 'simulate', 'settings': {'seed': 0}, 'seconds': 1.23, 'warnings': []}
    """
    return {
        "command": command,
        "settings": dict(settings),
        "seconds": round(seconds, 2),
        "warnings": list(warnings),
    }


def write_results(results: Mapping[str, Any], folder: Path) -> None:
    """Write `results` to results.json in `folder`; numbers that JSON does not have become null."""
    (folder / "results.json").write_text(to_json(results) + "\n")


def to_json(value: Any) -> str:
    """Return `value` as indented JSON; NaN and infinities become null.

    >>> print(to_json({"a": float("nan")}))
    {
      "a": null
    }
    """
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by None, because JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Estimate):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Write a report to a folder: results.json, figures and frames."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentbandits.report.estimate import Estimate
from latentbandits.report.report import Report


def write(report: Report, folder: Path) -> None:
    """results.json, every frame as Parquet, every figure as PNG and SVG."""
    for name, frame in report.frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    for name, figure in report.figures.items():
        figure.savefig(folder / f"{name}.png", dpi=160)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    results = {
        "experiment": report.experiment,
        "settings": dict(report.settings),
        "seconds": round(report.seconds, 2),
        "policies": report.policies,
        "claims": [claim._asdict() for claim in report.claims],
    }
    write_results(results, folder)


def write_results(results: Mapping[str, Any], folder: Path) -> None:
    """Write `results` to results.json in `folder`; numbers that JSON does not have become null."""
    text = json.dumps(_finite(dict(results)), indent=2, allow_nan=False)
    (folder / "results.json").write_text(text + "\n")


def _finite(value: Any) -> Any:
    """JSON has no NaN: null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Estimate):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Save a fit to disk: the model that `latentbandits.load` reads, and its report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentbandits.learning.fitting import Fit
from latentbandits.models import artefacts
from latentbandits.report.files import write_results
from latentbandits.report.notebook import png

REPORT_FILE = "report.json"
FIGURE_FILE = "report.png"
VERDICT_FILE = "verdict.png"
LISTS_FILE = "lists.png"
PAGE_FILE = "report.html"


def save_fit(
    fit: Fit, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None
) -> None:
    """Write the model, its catalogue, its report, results.json and the page, atomically.

    Args:
        fit: the result of `fit`.
        path: a folder that does not exist, or one with a saved model, which is replaced.
        notes: further notes of the model.
    """
    with artefacts.replacing(path) as folder:
        write_fit(fit, folder, notes)


def write_fit(fit: Fit, folder: Path, more: Mapping[str, Any] | None = None) -> None:
    """Write the files of a fit into a folder that no other process reads yet.

    A fit that was not assessed has no figures, no page and no recommended policy.
    """
    report, judged = fit.report, fit.report["judgement"]
    notes: dict[str, Any] = {}
    if judged is not None:
        notes = {name: judged[name] for name in ("recommended_policy", "verdict", "sentence")}
    notes["reward_range"] = [report["log"]["reward_least"], report["log"]["reward_most"]]
    if fit.click_model is not None:
        notes["click_model"] = fit.click_model.text
    notes |= more or {}
    artefacts.write(fit.model, folder, fit.catalogue, notes)
    text = json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False)
    (folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
    write_results(results(fit), folder)
    if judged is not None:
        _write_page(report, folder)


def _write_page(report: dict[str, Any], folder: Path) -> None:
    from latentbandits.learning.assess import figures, page

    images = {FIGURE_FILE: png(figures.draw(report))}
    if report["judgement"]["curves"]:
        images[VERDICT_FILE] = png(figures.draw_verdict(report))
    if report.get("lists"):
        images[LISTS_FILE] = png(figures.draw_lists(report))
    for name, image in images.items():
        (folder / name).write_bytes(image)
    optional = (images.get(name) for name in (VERDICT_FILE, LISTS_FILE))
    html = page.render(report, images[FIGURE_FILE], *optional)
    (folder / PAGE_FILE).write_text(html, encoding="utf-8")


_JUDGED = (
    "recommended_policy", "verdict", "sentence", "why_popularity", "lead", "replay", "simulated",
    "value_of_state",
)  # fmt: skip
"""Parts of the judgement that results.json has too; all None for a fit that was not assessed."""


def results(fit: Fit) -> dict[str, Any]:
    """Return the content of results.json: the envelope of every command, and the fit's results."""
    report = fit.report
    judged = report["judgement"] or dict.fromkeys(_JUDGED)
    return {
        "command": "fit",
        "settings": report["settings"],
        "seconds": report["seconds"],
        "warnings": report["warnings"],
        "family": report["family"],
        "model": type(fit.model).__name__,
        "n_states": fit.model.n_states,
        "rank": report["settings"]["rank"],
        "dynamics": report["dynamics"]["chosen"],
        "mean_stay": [state["lasts"] for state in report["states"]],
        "steps": report["steps"],
        "one_state": report["one_state"],
        **{name: judged[name] for name in _JUDGED},
    }


def load_report(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the report that was saved with the model at `path`; None if there is none."""
    file = Path(path) / REPORT_FILE
    if not file.is_file():
        return None
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise artefacts.ArtefactError(f"{file} is not the report of a fit: {error}") from None
    return report

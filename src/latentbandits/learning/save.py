"""A fit on disk: the model that `latentbandits.load` reads, and its report beside it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

from latentbandits.learning.fitting import Fit
from latentbandits.models.artefacts import files as artefacts

REPORT_FILE = "report.json"
FIGURE_FILE = "report.png"
PAGE_FILE = "report.html"


def save_fit(fit: Fit, path: str | os.PathLike[str]) -> None:
    """The model with its catalogue, report.json, report.png and report.html: all, or nothing."""
    with artefacts.replacing(path) as folder:
        write_fit(fit, folder)


def write_fit(fit: Fit, folder: Path) -> None:
    """The files of a fit, into a folder that nobody reads yet."""
    from latentbandits.learning import figures, page

    artefacts.write(fit.model, folder, fit.catalogue)
    text = json.dumps(fit.report, indent=2, allow_nan=False, ensure_ascii=False)
    (folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
    image = io.BytesIO()
    figures.draw(fit.report).savefig(image, dpi=110)
    (folder / FIGURE_FILE).write_bytes(image.getvalue())
    html = page.render(fit.report, image.getvalue())
    (folder / PAGE_FILE).write_text(html, encoding="utf-8")


def load_report(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The report that was saved with a model; None if there is none."""
    file = Path(path) / REPORT_FILE
    if not file.is_file():
        return None
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise artefacts.ArtefactError(f"{file} is not the report of a fit: {error}") from None
    return report

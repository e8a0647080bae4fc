"""The page of file formats: columns and keys come from the code that writes them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import msgspec
import numpy as np

from latentbandits import GaussianArms
from latentbandits.learning import save as fits
from latentbandits.loop.records import Run
from latentbandits.models import artefacts
from latentbandits.models.artefacts import Catalogue
from latentbandits.report.files import envelope
from latentbandits.serving import export
from latentbandits.serving.http.keys import SCOPES, Key
from tools.site.reference.docstrings import escaped

COLUMNS = {
    "decision_id": "unique; a later export replaces the row of the same id",
    "session": "the caller's id of a user or visit",
    "user": "who asked: the session, or the user whom the request named of a population",
    "round": "counts the decisions of a session, from 1",
    "time": "when the decision was committed",
    "model": "first digits of the model's SHA-256",
    "group": "experiment group of the session",
    "policy": "text of the policy, with its options",
    "action": "what was chosen",
    "index": "its place among the eligible actions",
    "eligible": "the actions it was chosen from",
    "features": "a row for each eligible action, where the caller sent features",
    "propensity": "probability with which this action was chosen",
    "propensity_kind": "how that was found: exact, counted, ...",
    "state_probabilities": "belief before the decision",
    "reward": "the reward that counts now; empty if none came",
    "reward_status": "applied, or late: the session had ended",
    "reward_kind": "a first reward, a correction, or the default",
    "reward_time": "when it was committed",
    "fallback": "whether it is the caller's default, or an action new to the model",
    "user_features": "attributes of the user that the caller sent",
    "cursor": "place in the log",
    "list_id": "`decision_id` of the list that this is a position of",
    "list_position": "1 for the top; the reward is empty where nothing was observed",
}
"""What each column of an export means; a column without a meaning fails the build."""


def page() -> str:
    """Return the reference of file formats."""
    parts = [
        "# File formats",
        "## A log to learn from",
        "A table with one row for each interaction: CSV, TSV, JSON lines, Parquet or Arrow, "
        "compressed by gzip or zstd or not. [Prepare a log](../how-to/prepare-a-log.md) lists the "
        "columns.",
        "## A model",
        f"A folder. `{artefacts.ARRAYS_FILE}` has the arrays, `{artefacts.MANIFEST_FILE}` the kind "
        "of model, the shapes, and a SHA-256 of the arrays and of itself; a file that was cut or "
        "altered is refused. Nothing is unpickled. `latentbandits fit` writes a report "
        f"beside them: `{fits.PAGE_FILE}` (open it in a browser), `{fits.REPORT_FILE}`, "
        f"`{fits.FIGURE_FILE}`, `{fits.VERDICT_FILE}` and `results.json`. The manifest of "
        "a small model:",
        f"```json\n{_manifest()}\n```",
        "## results.json",
        "Every command that computes writes one. All have these keys, and keys of their own: "
        + ", ".join(f"`{key}`" for key in envelope("", {}, 0.0))
        + ". [Results of fit](results-of-fit.md) lists those of `fit`.",
        "## An export",
        "`latentbandits export` writes a row for each decision, to "
        + ", ".join(f"`{suffix}`" for suffix in export.FORMATS)
        + ". `fit` and `evaluate` read it as it is.",
        _export_table(),
        "## API keys",
        f"A TOML file with a table for each key, written by `latentbandits key`. Scopes are "
        f"{', '.join(f'`{scope}`' for scope in SCOPES)}. Fields: "
        + ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(Key))
        + ".",
        "## A run of relearn",
        "`runs/000001.json` in the work folder, one file for each run:",
        _run_table(),
    ]
    return "\n\n".join(parts) + "\n"


def _manifest() -> str:
    model = GaussianArms(np.array([[0.9, 0.1], [0.2, 0.8]]), noise=0.5)
    files = artefacts.model_files(model, Catalogue(["red", "blue"]))
    return json.dumps(json.loads(files[artefacts.MANIFEST_FILE]), indent=2)


def _export_table() -> str:
    rows = [
        f"| `{name}` | {kind} | {COLUMNS.get(name, '')} |" for name, kind in export.SCHEMA.items()
    ]
    return "\n".join(["| column | type | |", "|---|---|---|", *rows])


def _run_table() -> str:
    doc = inspect.cleandoc(Run.__doc__ or "")
    meanings = {
        name.strip(): meaning
        for names, meaning in re.findall(r"^ +([\w, ]+): (.+)$", doc, re.MULTILINE)
        for name in names.split(",")
    }
    rows = [f"| `{f.name}` | {escaped(meanings[f.name])} |" for f in dataclasses.fields(Run)]
    return "\n".join(["| key | |", "|---|---|", *rows])

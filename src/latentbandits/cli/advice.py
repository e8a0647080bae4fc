"""The advice that a fit left with its model: which policy to use, and whether the model harms."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SHORT = 0.1  # effort of the short tuning before a command
_HORIZON = 100  # rounds of its sessions


def recommended_policy(path: str | os.PathLike[str], default: str) -> str:
    """Return the policy that the fit of a saved model recommends, or `default` if none."""
    from latentbandits.models.artefacts.files import load_notes

    results = Path(path, "results.json")
    recommended = load_notes(path).get("recommended_policy")
    if recommended is None and results.is_file():
        recommended = json.loads(results.read_bytes()).get("recommended_policy")
    return default if recommended is None else str(recommended)


def tuned_policy(model: Any, items: Any) -> str:
    """Return the policy that a short tuning finds for a model without a recommended one.

    Says on standard error which policy it is.
    """
    from latentbandits.simulation.tune import tune

    contexts = items if model.n_features is not None else None
    tuning = tune(model, _HORIZON, contexts, effort=_SHORT)
    sys.stderr.write(f"latentbandits: the model has no recommended policy; {tuning.summary}\n")
    return tuning.winner


def harm_warnings(notes: Mapping[str, Any], name: str) -> list[str]:
    """Return the warning that every command gives which uses a model that harms."""
    if notes.get("verdict") != "harms":
        return []
    return [
        f"{name} harms: its policies earned less on held-out users than the best average action; "
        f"its fit recommends {notes.get('recommended_policy')} (see its report.html)"
    ]


def warn_of_harm(path: str | os.PathLike[str]) -> list[str]:
    """Print the warning of a saved model that harms to standard error, and return it."""
    from latentbandits.models.artefacts.files import load_notes

    harms = harm_warnings(load_notes(path), os.fspath(path))
    print_warnings(harms)
    return harms


def print_warnings(warnings: list[str]) -> None:
    """Print each warning on a line of standard error."""
    for warning in warnings:
        sys.stderr.write(f"latentbandits: warning: {warning}\n")

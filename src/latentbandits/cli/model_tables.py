"""A saved model as tables for a terminal."""

from __future__ import annotations

import numpy as np

from latentbandits.models import Catalogue, GaussianArms, KnownModel, LinearGaussian, Model
from latentbandits.models.artefacts.files import to_arrays
from latentbandits.report.report import Table


def field_table(model: Model) -> Table:
    """Return a table of the fields of any model, and of the models inside it."""
    rows: list[tuple[str, ...]] = []
    for name, array in to_arrays(model).items():
        spread = f"{array.min():.4g} to {array.max():.4g}" if array.ndim else f"{array.item():g}"
        rows.append((name, "x".join(map(str, array.shape)) or "-", spread))
    noun = "state" if model.n_states == 1 else "states"
    title = f"{type(model).__name__}, {model.n_states} {noun}"
    return Table(title, ("field", "shape", "values"), rows)


def model_table(model: KnownModel, catalogue: Catalogue | None) -> Table:
    """Return a table of a saved model: its sizes, and the spread of arms or the features."""
    prior = np.exp(np.asarray(model.log_state_prior)[0])
    rows: list[tuple[str, ...]] = [
        ("kind", type(model).__name__),
        ("states", str(model.n_states)),
        ("state prior", ", ".join(f"{p:.3f}" for p in prior)),
        ("noise", f"{model.noise:.4g}"),
    ]
    if model.n_actions is not None:
        rows.append(("actions", f"{model.n_actions:,}"))
    if isinstance(model, GaussianArms):
        rows.append(("spread of a mean", f"{model.spread.min():.3g} to {model.spread.max():.3g}"))
    if isinstance(model, LinearGaussian):
        rows.append(("features", str(model.n_features)))
    if model.n_sessions is not None:
        rows.append(("instances", f"{model.n_sessions:,}, one for each session"))
    held = "none" if catalogue is None else f"{len(catalogue):,} actions"
    rows.append(("catalogue", held))
    return Table("The model", ("", ""), rows)

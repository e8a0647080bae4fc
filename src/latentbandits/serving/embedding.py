"""The service inside an app of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latentbandits.models.artefacts import Catalogue
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.model_rows import pack, read_artefact
from latentbandits.serving.http.app import App
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import gather
from latentbandits.serving.stores import opening

Embedded = App
"""The service as an ASGI app, as `embed` returns it."""


def embed(
    model: Any = None,
    store: str = "memory",
    *,
    catalogue: Catalogue | None = None,
    authenticated: bool = False,
    **settings: Any,
) -> Embedded:
    """Return the decision service as an ASGI app that any other ASGI app can mount.

    `model` is a model, the folder of a saved model, or None for the store's active model. `store`
    is memory, sqlite:PATH or postgresql://...; `settings` are the settings of `serve`. Access
    control is left to the outer app unless `keys` are given; every Host is answered. Without keys,
    requests that need an admin key (such as activating a model) are refused, unless
    `authenticated=True` promises that the outer app lets only administrators reach them.

    The default policy, `auto`, is the policy that the fit of a saved model recommends. For other
    models it is mmTS: nothing is tuned here, because your app would start seconds later. Give
    `policy="mmBayesUCB(quantile=0.9)"`, say, or the winner of `tune`.

    >>> from latentbandits import GaussianArms
    >>> bandit = embed(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> bandit.service.engine.store.durable
    False
    """
    values = {"allowed_hosts": "*", "store": store, **settings}
    if isinstance(model, str | Path) and "models" not in values:
        values["models"] = str(Path(model).resolve().parent)
    valid = gather(values, None, {})
    with opening(valid.store, valid.writing()) as opened:
        engine = Engine(opened, valid)
        row = None
        if isinstance(model, str | Path):
            row = read_artefact(Path(model))
        elif model is not None:
            row = pack(model, type(model).__name__, catalogue)
        with engine.transaction():
            engine.start_with(row)
            engine.library.served(engine.library.active.model)
        return Embedded(Service(engine, valid), authenticated=authenticated)

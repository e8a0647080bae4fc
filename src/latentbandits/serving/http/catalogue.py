"""The catalogue of the active model: mean rewards by state, and the most telling actions."""

from __future__ import annotations

import numpy as np

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.http.messages import CatalogueItem, CatalogueView
from latentbandits.serving.http.overview import state_name

MOST = 100
_FAVOURED = 3


def catalogue(engine: Engine) -> CatalogueView:
    """Return the actions, sorted by the variance of the expected reward between states."""
    served = engine.library.served(engine.library.active.model)
    prior = np.exp(served.model.log_state_prior[0])
    called = [state_name(engine.settings.state_names, s) for s in range(len(prior))]
    ids = served.space.names
    if ids is None:
        return CatalogueView(served.id, called, prior.tolist(), 0.0, 0.0, [[] for _ in prior], [])
    expected = served.model.expected_rewards(served.space.ask(None, None).context)[0]
    names = ids if served.catalogue is None else served.catalogue.names
    above = expected - prior @ expected
    telling = np.argsort(-(prior @ above**2), kind="stable")[:MOST]
    best = np.argsort(-above, axis=1, kind="stable")[:, :_FAVOURED]
    return CatalogueView(
        model=served.id,
        states=called,
        prior=prior.tolist(),
        low=float(expected.min()),
        high=float(expected.max()),
        favours=[[names[a] for a in row if above[state, a] > 0] for state, row in enumerate(best)],
        items=[CatalogueItem(ids[a], names[a], expected[:, a].tolist()) for a in telling],
    )

"""The catalogue of the active model: mean rewards by state, and the most telling actions."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.library import ServedModel
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
    expected = expected_rewards(served)
    names = ids if served.catalogue is None else served.catalogue.names
    above = expected - prior @ expected
    best = np.argsort(-above, axis=1, kind="stable")[:, :_FAVOURED]
    return CatalogueView(
        model=served.id,
        states=called,
        prior=prior.tolist(),
        low=float(expected.min()),
        high=float(expected.max()),
        favours=[[names[a] for a in row if above[state, a] > 0] for state, row in enumerate(best)],
        items=[
            CatalogueItem(ids[a], names[a], expected[:, a].tolist())
            for a in telling(served, expected)
        ],
    )


def expected_rewards(served: ServedModel) -> FloatArray:
    """Return the expected reward of every action of a catalogue, `(n_states, n_actions)`."""
    context = served.space.ask(None, None).context
    expected: FloatArray = served.model.expected_rewards(context)[0]
    return expected


def telling(served: ServedModel, expected: FloatArray) -> IntArray:
    """Return the actions whose expected rewards vary most between states, the first 100."""
    prior = np.exp(served.model.log_state_prior[0])
    variance = prior @ (expected - prior @ expected) ** 2
    return np.argsort(-variance, kind="stable")[:MOST]

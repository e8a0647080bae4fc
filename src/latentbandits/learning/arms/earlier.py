"""An earlier model as a start of the next fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.checks import FloatArray


class Earlier(NamedTuple):
    """Mean rewards of an earlier model's states, for the actions of a log."""

    means: FloatArray  # (S, A)
    shares: FloatArray  # (S,)


def earlier_means(model: Any, catalogue: Catalogue | None, actions: Sequence[str]) -> Earlier:
    """Return an earlier model's means for `actions`; a new action gets the state's average mean.

    If the model is of transformed rewards, the means are transformed too. The actions of a model
    without a catalogue are called "0", "1", ...

    >>> from latentbandits import GaussianArms
    >>> earlier_means(GaussianArms([[0.2, 0.6]], noise=1.0), None, ["1", "new"]).means
    array([[0.6, 0.4]])
    """
    inner = model.model if hasattr(model, "transform") else model
    features = None if catalogue is None else catalogue.features
    means = inner.expected_rewards(None if features is None else features[None])[0]
    ids = [str(i) for i in range(means.shape[1])] if catalogue is None else catalogue.ids
    places = {name: i for i, name in enumerate(ids)}
    average = means.mean(axis=1)
    columns = [means[:, places[name]] if name in places else average for name in actions]
    return Earlier(np.stack(columns, axis=1), np.exp(model.log_state_prior[0]))

"""One more state, for sessions that are like none of the states that the model knows."""

from __future__ import annotations

from latentbandits.models.protocol import Extendable, Model


def with_catch_all(model: Model) -> Model:
    """Return `model` with one more state, whose prior is as wide as all its states and actions.

    A session that no state explains is then learned from scratch. The prior probability P1(s) of
    the new state is 1 / (n_states + 1): that of one state among equals.

    >>> from latentbandits import GaussianArms
    >>> model = with_catch_all(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> model.means[-1], model.spread[-1].round(3)
    (array([0.5, 0.5]), array([0.367, 0.367]))
    """
    if not isinstance(model, Extendable):
        raise TypeError(
            f"a {type(model).__name__} has no vague state of its own: catch_all works with "
            "conjugate arms and linear models; give an Ensemble or Markov a model that has one "
            "already, with_catch_all(model)"
        )
    return model.with_state(model.vague(), 1 / (model.n_states + 1))

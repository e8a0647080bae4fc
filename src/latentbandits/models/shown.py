"""Show a model in a notebook: its states, and what each action pays in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.report.drawing import draw_grid
from latentbandits.report.notebook import Shown, plural
from latentbandits.report.report import Table

if TYPE_CHECKING:
    from latentbandits.models.protocol import KnownModel

_SHOWN = 3  # best and worst actions of a state
_MOST_DRAWN = 24  # actions of a picture


class ShownModel(Shown):
    """Base class of models: a notebook shows their states and mean rewards.

    A model with features is shown by actions with one feature 1 and all others 0: the weights of a
    linear model. A model with an instance for each session shows the first.
    """

    def _headline(self) -> str:
        return model_line(self)  # type: ignore[arg-type]

    def _shown_tables(self) -> list[Table]:
        return [self._rewards().table()]

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        return self._rewards().columns()

    def _draw(self) -> Any:
        return self._rewards().draw()

    def _rewards(self) -> StateRewards:
        return StateRewards(self)  # type: ignore[arg-type]


class StateRewards:
    """The mean reward of every action in every state of a model.

    Args:
        model: any model.
        names: of the actions; None: their numbers.
        features: of the actions, `(n_actions, n_features)`; None: one unit of each feature.
    """

    def __init__(
        self,
        model: KnownModel,
        names: Sequence[str] | None = None,
        features: FloatArray | None = None,
    ) -> None:
        self.shares: FloatArray = np.exp(np.asarray(model.log_state_prior)[0])
        self.means, self.errors = _rewards(model, features)
        by_feature = features is None and model.n_features is not None
        self.noun = "feature" if by_feature else "action"
        n_columns = 0 if self.means is None else self.means.shape[1]
        if names is None or by_feature:
            names = [f"{self.noun} {i}" for i in range(n_columns)]
        self.names = list(names)

    def table(self) -> Table:
        """Return each state's share of users, and what pays most and least in it."""
        rows: list[tuple[str, ...]] = []
        for state, share in enumerate(self.shares):
            row: tuple[str, ...] = (str(state + 1), f"{share:.1%}")  # shown from 1
            if self.means is not None:
                order = np.argsort(-self.means[state], kind="stable")
                row += (
                    self._lines(state, order[:_SHOWN]),
                    self._lines(state, order[::-1][:_SHOWN]),
                )
            rows.append(row)
        columns: tuple[str, ...] = ("state", "users")
        if self.means is not None:
            columns += ("pays most", "pays least")
        return Table("The states", columns, rows)

    def _lines(self, state: int, actions: IntArray) -> str:
        assert self.means is not None
        return "\n".join(f"{self.means[state, a]:.3g} {self.names[a]}" for a in actions)

    def columns(self) -> dict[str, list[Any]]:
        """Return one row per state and action: share of users, mean reward, and how unsure it is.

        `sd` is the standard deviation of the mean reward under the model's own prior.
        """
        if self.means is None or self.errors is None:
            return {"state": list(range(len(self.shares))), "share": self.shares.tolist()}
        n_states, n_actions = self.means.shape
        return {
            "state": np.repeat(np.arange(n_states), n_actions).tolist(),
            "share": np.repeat(self.shares, n_actions).tolist(),
            self.noun: self.names * n_states,
            "reward": self.means.ravel().tolist(),
            "sd": self.errors.ravel().tolist(),
        }

    def draw(self) -> Any:
        """Draw the mean rewards as a grid, of the actions by which states differ most."""
        if self.means is None:
            return None
        n_actions = self.means.shape[1]
        differing = np.argsort(-np.ptp(self.means, axis=0), kind="stable")[:_MOST_DRAWN]
        drawn = np.sort(differing)
        title = f"mean reward of each {self.noun} in each state"
        if n_actions > _MOST_DRAWN:
            title += f" ({_MOST_DRAWN} of {n_actions:,}, by which states differ most)"
        rows = [f"state {s + 1} ({share:.0%})" for s, share in enumerate(self.shares)]
        return draw_grid(self.means[:, drawn], rows, [self.names[a] for a in drawn], title)


def model_line(model: KnownModel) -> str:
    """Return the kind and the sizes of a model as one line.

    >>> from latentbandits import GaussianArms
    >>> model_line(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5))
    'GaussianArms(2 states, 2 actions)'
    """
    sizes = [plural(model.n_states, "state")]
    if model.n_actions is not None:
        sizes.append(plural(model.n_actions, "action"))
    if model.n_features is not None:
        sizes.append(plural(model.n_features, "feature"))
    if model.n_sessions is not None:
        sizes.append(plural(model.n_sessions, "instance"))
    return f"{type(model).__name__}({', '.join(sizes)})"


def _rewards(
    model: KnownModel, features: FloatArray | None
) -> tuple[FloatArray | None, FloatArray | None]:
    """Return mean rewards and their standard deviations, both `(n_states, n_actions)`.

    Both are None if rewards depend on a context that only requests know.
    """
    n_sessions = model.n_sessions or 1
    if features is None and model.n_features is not None:
        features = np.eye(model.n_features)
    context = None
    if features is not None:
        context = np.broadcast_to(features, (n_sessions, *features.shape))
    try:
        checked = model.check_context(context, n_sessions)
        means = model.expected_rewards(checked)[0]
    except Exception:  # a FunctionModel's own function may fail in any way without its context
        return None, None
    _, variance = model.posterior_rewards(model.parameters(n_sessions), checked)  # type: ignore[attr-defined]
    return means, np.sqrt(variance[0])

"""Properties that most models share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray
from latentbandits.models.support import REALS, Support

if TYPE_CHECKING:
    from latentbandits.models.arms.learnable import Learnable


class StationaryModel:
    """Base class of models whose latent state does not move.

    A subclass sets `state_prior`, P1(s) of shape `(n_states,)` or `(n_sessions, n_states)`.
    Parameters are uncertain, actions have no features and rewards are any numbers, unless a
    subclass says otherwise.
    """

    order_free: ClassVar[bool] = True
    """Whether the order of a session's rewards does not matter to its posterior: it is exact.

    A posterior whose numbers, and so the draws from it, depend on the order all the same says so
    by `draws_depend_on_order` (see `LinearPosterior`)."""
    state_prior: FloatArray

    @classmethod
    def reward_family(cls) -> type[Learnable] | None:
        """Return the family of rewards by which `fit` learns this model; None: it does not."""
        return None

    @property
    def transition(self) -> None:
        return None

    @property
    def is_certain(self) -> bool:
        return False

    @property
    def n_features(self) -> int | None:
        return None

    @property
    def support(self) -> Support:
        return REALS

    @property
    def reward_bounds(self) -> tuple[float, float] | None:
        """The least and the largest reward; None if rewards are unbounded."""
        return self.support.bounds

    @cached_property
    def log_state_prior(self) -> FloatArray:
        return checks.log_prior(self.state_prior)

    def check_reward(self, reward: FloatArray) -> None:
        """Raise ValueError if a reward is not in the support."""
        support = self.support
        if support is REALS:
            return
        inside = support.contains(reward)
        if not inside.all():
            session = int(inside.argmin())
            raise ValueError(
                f"{type(self).__name__} takes rewards that are {support}; "
                f"session {session} has {reward[session]:g}"
            )

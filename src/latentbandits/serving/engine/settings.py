"""Settings of an engine, with the defaults of the service."""

from __future__ import annotations

import msgspec

from latentbandits.policies.registry import AUTO
from latentbandits.serving.engine.groups import HOLDOUT, MAIN, Group, parse_groups
from latentbandits.serving.engine.propensities import PropensityMode
from latentbandits.serving.engine.reward_range import UNLIMITED, RewardRange
from latentbandits.serving.records import SwapMode


class EngineSettings(msgspec.Struct, frozen=True):
    """Settings of an engine; times in seconds."""

    policy: str = AUTO
    holdout_policy: str = "uniform"
    holdout_share: float = 0.0
    groups: str = ""
    state_names: str = ""
    explore: float = 0.0
    swap: SwapMode = "pinned"
    propensity: PropensityMode = "counted"
    propensity_draws: int = 100
    session_ttl: float = 30 * 86400.0
    retention: float = 90 * 86400.0
    cached_sessions: int = 10_000
    cached_megabytes: float = 48.0
    snapshot_rounds: int = 50
    reward_min: float | None = None
    reward_max: float | None = None
    reward_default: float | None = None
    reward_timeout: float | None = None

    def side_groups(self) -> tuple[Group, ...]:
        """Return the groups beside the main one.

        The first is `holdout`, by its own settings; where they give it no share, a group of that
        name among `groups` takes its place.
        """
        named = parse_groups(self.groups)
        if self.holdout_share == 0 and any(group.name == HOLDOUT for group in named):
            return named
        return (Group(HOLDOUT, self.holdout_policy, self.holdout_share), *named)

    def policies(self) -> dict[str, str]:
        """Return the policy of every group."""
        return {MAIN: self.policy, **{g.name: g.policy for g in self.side_groups()}}

    def shares(self) -> dict[str, float]:
        """Return the share of sessions that every group gets."""
        sides = {group.name: group.share for group in self.side_groups()}
        return {MAIN: max(0.0, 1.0 - sum(sides.values())), **sides}

    def check(self) -> None:
        """Raise ValueError if settings are inconsistent."""
        names = [group.name for group in self.side_groups()]
        twice = [name for i, name in enumerate(names) if name in (MAIN, *names[:i])]
        if twice:
            raise ValueError(
                f"there are two groups {twice[0]!r}: {MAIN!r} is the main one, {HOLDOUT!r} is "
                "the one of holdout_share, and every other group needs a name of its own"
            )
        if not 0 <= self.explore <= 1:
            raise ValueError(f"explore must be a probability from 0 to 1; got {self.explore:g}")
        if sum(group.share for group in self.side_groups()) > 1 + 1e-9:
            raise ValueError("the shares of all groups sum to more than 1")
        if self.retention < self.session_ttl:
            raise ValueError(
                f"retention ({self.retention:g} s) must be at least session_ttl "
                f"({self.session_ttl:g} s): a session under way needs its whole log"
            )
        if (self.reward_default is None) != (self.reward_timeout is None):
            raise ValueError("reward_default and reward_timeout go together: give both or neither")
        if self.reward_timeout is not None and self.reward_timeout <= 0:
            raise ValueError(f"reward_timeout must be above 0; got {self.reward_timeout:g}")
        low, high, default = self.reward_min, self.reward_max, self.reward_default
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_min ({low:g}) is above reward_max ({high:g})")
        if default is not None and self.out_of_range(default):
            raise ValueError(f"reward_default: {self.out_of_range(default)}")

    def out_of_range(self, value: float, usual: RewardRange | None = None) -> str | None:
        """Return why a reward is refused; None where it is in the range.

        `usual` is the range of the model, for a limit that no setting gives.
        """
        low, high = usual or UNLIMITED
        by_model = " by the model's family and data"
        if self.reward_min is None and value < low:
            return f"{value:g} is below reward_min, which is {low:g}{by_model}"
        if self.reward_max is None and value > high:
            return f"{value:g} is above reward_max, which is {high:g}{by_model}"
        if self.reward_min is not None and value < self.reward_min:
            return f"{value:g} is below reward_min, which is {self.reward_min:g}"
        if self.reward_max is not None and value > self.reward_max:
            return f"{value:g} is above reward_max, which is {self.reward_max:g}"
        return None

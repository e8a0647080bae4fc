"""One row of the table of models in the documentation."""

from __future__ import annotations

from typing import NamedTuple


class Summary(NamedTuple):
    """A short description of a model."""

    rewards: str  # the rewards it models
    call: str  # an example of its constructor
    prior: str  # the family of its prior
    arguments: str  # the meaning of its arguments
    has_features: bool = False  # whether actions have features
    sub_gaussian: bool = False  # whether `noise` is a sub-Gaussian scale, as regret bounds require

    @property
    def row(self) -> str:
        """The row in Markdown."""
        return f"| {self.rewards} | `{self.call}` | {self.prior} | {self.arguments} |"

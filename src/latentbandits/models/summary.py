"""One row of the table of models in the documentation."""

from __future__ import annotations

from typing import NamedTuple


class Summary(NamedTuple):
    """A model in a few words."""

    rewards: str  # which rewards it is for
    call: str  # how it is made
    prior: str  # the family of its prior
    arguments: str  # what its arguments mean
    has_features: bool = False  # whether actions have features
    sub_gaussian: bool = False  # whether `noise` is a sub-Gaussian scale, as regret bounds need

    @property
    def row(self) -> str:
        """The row in Markdown."""
        return f"| {self.rewards} | `{self.call}` | {self.prior} | {self.arguments} |"

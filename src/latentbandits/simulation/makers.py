"""From a policy's text to a callable that builds it for the model of each chunk of runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Entry, Inputs, PolicySpec, find, parse
from latentbandits.simulation.simulate import PolicyMaker


def maker(policy: str | PolicySpec, **facts: Any) -> PolicyMaker:
    """Return a callable for `simulate`: it takes a model and builds `policy` on it.

    Args:
        policy: a name of the registry, with options if wanted.
        facts: further fields of `Inputs`, such as `horizon` and `reward_range`.

    >>> from latentbandits import GaussianArms
    >>> maker("mUCB", horizon=500)(GaussianArms([[0.9, 0.1]], noise=0.5)).horizon
    500
    """
    spec = parse(policy)
    return partial(_build, find(spec.name), dict(spec.options), facts)


def makers(policies: Mapping[str, str | PolicySpec], **facts: Any) -> dict[str, PolicyMaker]:
    """Return a maker for each policy, by its label."""
    return {label: maker(policy, **facts) for label, policy in policies.items()}


def _build(
    entry: Entry, options: Mapping[str, Any], facts: Mapping[str, Any], model: Any
) -> AnyPolicy:
    return entry.make(Inputs(model, **facts), options)

"""Names under which classes were first released.

Snapshots of beliefs hold digests of class names (`encoding.py`). A class that has moved to another
module keeps its first name here, so that the snapshots of an older store still count.
"""

from __future__ import annotations

from typing import Any

_POLICIES = {
    "latent.base": "latent",
    "latent.bayes_ucb": "bayes_ucb",
    "latent.information": "information",
    "latent.knowledge_gradient": "knowledge_gradient",
    "latent.thompson": "thompson",
    "latent.ucb": "latent_ucb",
    "classic.experts": "experts",
    "classic.popularity": "popularity",
    "classic.ucb": "ucb",
    "wrappers.exploring": "exploring",
    "wrappers.forgetting": "forgetting",
    "shared.base": "population.base",
    "shared.chunks": "population.chunks",
    "shared.grouped": "population.grouped",
    "shared.hierarchical": "population.hierarchical",
    "shared.per_user": "population.per_user",
    "shared.phased": "population.phased",
}
"""First module of each module of `latentbandits.policies` that has moved."""

_RELATED = {
    "club": "population.club",
    "cofiba": "population.cofiba",
    "dynucb": "population.dynucb",
    "graph": "population.graph",
    "meta": "population.meta",
    "nmf": "population.nmf",
    "particle_mf": "population.particle_mf",
    "sclub": "population.sclub",
    "latent_order": "latent_order",
    "policy_reuse": "policy_reuse",
    "proball": "proball",
    "rank1": "rank1",
    "structured": "structured",
}
"""First module, in `latentbandits.policies`, of each module of `latentbandits_related`."""

_MODULES = {
    **{f"latentbandits.policies.{new}": old for new, old in _POLICIES.items()},
    **{f"latentbandits_related.{new}": old for new, old in _RELATED.items()},
}

_CLASSES = {
    "latentbandits.policies.bayes_ucb.mmGreedy": "latentbandits.policies.greedy.mmGreedy",
    "latentbandits.policies.knowledge_gradient.mLookahead": (
        "latentbandits.policies.lookahead.mLookahead"
    ),
    "latentbandits.policies.forgetting.FeatureSums": "latentbandits.policies.ridge.FeatureSums",
    "latentbandits.policies.forgetting.RidgeUCB": "latentbandits.policies.ridge.RidgeUCB",
    "latentbandits.beliefs.planning.Lookahead": "latentbandits.beliefs.lookahead.Lookahead",
    "latentbandits.models.attributes.columns.Encoder": (
        "latentbandits.models.attributes.encoder.Encoder"
    ),
    "latentbandits.models.support.Summary": "latentbandits.models.summary.Summary",
}
"""First name of each class whose module was merged into another."""


def first_name(value: Any) -> str:
    """Return the name under which a class or function was first released.

    >>> from latentbandits import mmTS
    >>> first_name(mmTS)
    'latentbandits.policies.thompson.mmTS'
    """
    module = value.__module__
    if module in _MODULES:
        module = f"latentbandits.policies.{_MODULES[module]}"
    name = f"{module}.{value.__qualname__}"
    return _CLASSES.get(name, name)

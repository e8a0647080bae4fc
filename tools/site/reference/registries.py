"""The pages of policies and models: one entry for every name that the registries know."""

from __future__ import annotations

import inspect
from typing import Any

import latentbandits
import latentbandits_related
from latentbandits.models import registry as models
from latentbandits.policies import registry as policies
from tools.site.reference.docstrings import entry, escaped, markdown, own_doc, signature
from tools.site.reference.python_names import names_of, names_section, top_level_names

_SCOPES = {
    "session": ("A belief for each session", "Each session, such as a user, has its own belief."),
    "population": ("One belief for all users", "All users share one belief."),
}


def policies_page() -> str:
    """Return the reference of policies."""
    parts = [
        "# Policies",
        "A policy is named by its text on the command line, in settings and in Python: `mmTS`, "
        "`'mmTS(catch_all=True)'`, `'Exploring(policy=mmTS, e=0.05)'`. Options are literals; the "
        "text is parsed and never evaluated. "
        "[Choose a policy](../how-to/choose-a-policy.md) says which one to use.",
    ]
    for scope, (title, sentence) in _SCOPES.items():
        parts += [f"## {title}", sentence, policies.as_markdown(scope)]
    known = {entry.name for entry in policies.entries()}
    for scope, (title, _) in _SCOPES.items():
        parts.append(f"## {title}: each policy")
        parts += [_policy(one) for one in policies.entries(scope)]
    rest = [name for name in names_of("latentbandits.policies") if name not in known]
    others = [n for n in top_level_names("latentbandits.policies") if n not in known]
    parts += ["## Other names", names_section("latentbandits.policies", rest)]
    parts += [names_section("latentbandits", others)] if others else []
    parts += ["## The registry: `latentbandits.policies.registry`"]
    parts += [names_section("latentbandits.policies.registry")]
    return "\n\n".join(parts) + "\n"


def _policy(one: policies.Entry) -> str:
    package = latentbandits_related if one.name in policies.RELATED else latentbandits
    made: Any = getattr(package, one.name, None) or one.builder
    needs = ", ".join(f"`{need}`" for need in one.needs) or "nothing"
    options = ", ".join(f"`{option}`" for option in one.options) or "none"
    facts = [f"needs {needs}", f"options: {options}"]
    if inspect.isclass(made):
        if getattr(made, "order_free", None) is True:
            facts.append("rewards may come in any order")
        if getattr(made, "learns_from", None) == "own":
            facts.append("learns only from decisions of its own")
    return "\n\n".join(
        [
            f"### `{one.name}`",
            f"What it plays: {escaped(one.summary)}. Source: {escaped(one.source)}.",
            f"```python\n{signature(one.name, made)}\n```",
            f"In text form it {'; '.join(facts)}.",
            markdown(own_doc(made)),
        ]
    )


def models_page() -> str:
    """Return the reference of models, and of saving and loading them."""
    kinds = models.kinds()
    rows = [kind.summary.row for kind in kinds.values() if hasattr(kind, "summary")]
    rest = [name for name in names_of("latentbandits.models") if name not in kinds]
    top = [name for name in top_level_names("latentbandits.models") if name not in kinds]
    parts = [
        "# Models",
        "A model says what every action pays in every latent state, and how unsure it is of that. "
        "[Choose a reward model](../how-to/choose-a-reward-model.md) says which one to use.",
        "| rewards are | model | prior | what you give it |\n|---|---|---|---|\n" + "\n".join(rows),
        "## Each model",
        *(entry(name, kind) for name, kind in kinds.items()),
        "## Save, load and describe",
        names_section("latentbandits.models", rest),
        *([names_section("latentbandits", top)] if top else []),
    ]
    return "\n\n".join(parts) + "\n"

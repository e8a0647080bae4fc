"""Pages of public Python names: every name that a public module exports has an entry."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tools.site.reference.docstrings import entry, escaped, own_doc

MODULES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "simulate": (
        "Simulate",
        "Play many policies on many simulated users, side by side; check your own parts.",
        ("latentbandits.simulation", "latentbandits.environments", "latentbandits.testing"),
    ),
    "learning": (
        "Learning",
        "Learn a model from a log of interactions.",
        ("latentbandits.learning",),
    ),
    "evaluation": (
        "Evaluation",
        "Estimate from a log what another policy would have earned.",
        ("latentbandits.evaluation",),
    ),
    "client": (
        "Client and embedding",
        "Talk to the decision service from Python, or mount it in an app of your own.",
        ("latentbandits.client", "latentbandits.serving"),
    ),
    "experiments": (
        "Experiments",
        "The experiments that `latentbandits reproduce` runs.",
        ("latentbandits.experiments",),
    ),
}
"""Pages by file name: title, first sentence, the modules whose `__all__` they document."""


def names_of(module: str) -> list[str]:
    """Return the public names of a module."""
    return list(import_module(module).__all__)


def value(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def names_section(module: str, names: list[str] | None = None, level: int = 3) -> str:
    """Return the entries of some or all public names of a module."""
    return "\n\n".join(
        entry(name, value(module, name), level) for name in names or names_of(module)
    )


def top_level_names(module: str) -> list[str]:
    """Return the names that `latentbandits` exports from inside a package that does not."""
    own = names_of(module)
    return [
        name
        for name in names_of("latentbandits")
        if name not in own and _home(name).startswith(f"{module}.")
    ]


def _home(name: str) -> str:
    return getattr(value("latentbandits", name), "__module__", "")


def module_page(name: str) -> str:
    """Return the page of MODULES that is called `name`."""
    title, sentence, modules = MODULES[name]
    parts = [f"# {title}", sentence]
    for module in modules:
        doc = own_doc(import_module(module)).split("\n\n")[0]
        parts += [f"## `{module}`", escaped(doc), names_section(module)]
        others = top_level_names(module)
        parts += [names_section("latentbandits", others)] if others else []
    return "\n\n".join(parts) + "\n"

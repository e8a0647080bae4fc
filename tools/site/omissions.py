"""Find what the reference leaves out: names, options, settings, endpoints, metrics, errors."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

import latentbandits
from latentbandits.models import registry as models
from latentbandits.policies import registry as policies
from latentbandits.serving import export
from latentbandits.serving.errors import Refused
from latentbandits.serving.http.endpoints import ENDPOINTS
from latentbandits.serving.http.pages import EXAMPLES
from latentbandits.serving.settings import Settings
from tools.site.reference import command_line, errors, formats, service
from tools.site.reference.docstrings import own_doc

NOT_REFERENCE = (
    "latentbandits.cli",
    "latentbandits.report",
    "latentbandits.serving.",
    "latentbandits.experiments.",
)
"""Packages whose `__all__` is for the library itself."""


class Required(NamedTuple):
    """Something that must be in the reference: text that a page must have."""

    what: str
    text: str
    page: str | None = None


def required() -> Iterator[Required]:
    """Yield everything that the reference must have, from the code."""
    for module, name in public_names():
        yield Required(f"public name {module}.{name}", f"### `{name}`")
    for entry in policies.entries():
        yield Required(f"policy {entry.name}", f"### `{entry.name}`", "policies")
        for option in entry.options:
            yield Required(f"option {option} of {entry.name}", f"`{option}`", "policies")
    for name in models.kinds():
        yield Required(f"model {name}", f"### `{name}`", "models")
    for command, parser in command_line.commands():
        yield Required(f"command {command}", f"## `latentbandits {command}`", "command-line")
        for action in command_line.options(parser):
            shown = command_line.option_name(action).replace("|", "\\|")
            yield Required(f"option {shown} of {command}", f"| `{shown}` |", "command-line")
    for field in msgspec.structs.fields(Settings):
        yield Required(f"setting {field.name}", f"| `{field.name}` |", "settings")
    for endpoint in ENDPOINTS:
        shown = f"## `{endpoint.method} {endpoint.path}`"
        yield Required(f"endpoint {endpoint.method} {endpoint.path}", shown, "http-api")
    for family in service.families():
        yield Required(f"metric {family.name}", f"| `{service.metric_name(family)}` |", "metrics")
    for name, kind in errors.exceptions().items():
        shown = kind.code if issubclass(kind, Refused) else name
        if shown != "refused":
            yield Required(f"error {name}", f"| `{shown}` |", "errors")


def undocumented() -> Iterator[str]:
    """Yield a line for everything that has an entry without a word about what it is."""
    for module, name in public_names():
        thing = getattr(import_module(module), name)
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not own_doc(thing):
            yield f"{module}.{name} has no docstring"
    for command, parser in command_line.commands():
        for action in command_line.options(parser):
            if not action.help:
                yield f"option {command_line.option_name(action)} of {command} has no help"
    for field in msgspec.structs.fields(Settings):
        if not get_args(field.type)[1].description:
            yield f"setting {field.name} has no description"
    for endpoint in ENDPOINTS:
        if endpoint.body is not None and endpoint.handle.__name__ not in EXAMPLES:
            yield f"endpoint {endpoint.method} {endpoint.path} has no example"
    for column in export.SCHEMA:
        if column not in formats.COLUMNS:
            yield f"column {column} of an export has no meaning in tools/site/reference/formats.py"
    for family in service.families():
        if not family.documentation:
            yield f"metric {family.name} has no help"


def public_names() -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that a public package exports."""
    packages = ["latentbandits"] + [
        module.name
        for module in pkgutil.iter_modules(latentbandits.__path__, "latentbandits.")
        if (module.ispkg or module.name == "latentbandits.client")
        and not module.name.startswith(NOT_REFERENCE)
    ]
    for package in packages:
        for name in getattr(import_module(package), "__all__", ()):
            yield package, name


def missing(reference: Path) -> list[str]:
    """Return a line for everything that the staged pages of the reference leave out."""
    texts = {path.stem: path.read_text() for path in reference.glob("*.md")}
    return sorted({*without_entry(texts, required()), *undocumented()})


def without_entry(texts: Mapping[str, str], needs: Iterable[Required]) -> list[str]:
    """Return a line for everything in `needs` that the pages, by name, leave out."""
    everything = "\n".join(texts.values())
    return [
        f"{need.what} has no entry in reference/{need.page or '*'}.md ({need.text})"
        for need in needs
        if not _has(texts.get(need.page, "") if need.page else everything, need.text)
    ]


def _has(text: str, wanted: str) -> bool:
    if not wanted.startswith("#"):
        return wanted in text
    return f"\n{wanted}" in text or f"\n#{wanted}" in text

"""The part of the style guide that a program can check: docstrings begin with a sentence."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol

import pytest

import latentbandits

SOURCE = Path(latentbandits.__file__).parent
HEADLESS = re.compile(
    r"(What|Those|That|Which|Who|Whose|How|Where|When|As|If|Of|By|With|For|Because)\b"
)
"""First words of clauses that have no subject or no verb of their own."""
CORE = ("models", "beliefs", "policies", "simulation", "environments", "report", "evaluation")


def definitions(path: Path) -> Iterator[tuple[str, ast.AST, str | None]]:
    """Yield the place, the node and the docstring of a module and all that it defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            place = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)}"
            yield place, node, ast.get_docstring(node)


def complaint(docstring: str) -> str | None:
    """Say what is wrong with the first paragraph of a docstring."""
    first = docstring.split("\n\n")[0].replace("\n", " ").strip()
    if HEADLESS.match(first):
        return f"begins with a headless clause: {first!r}"
    if not first.endswith((".", ":", "?")):
        return f"does not end with a full stop: {first!r}"
    return None


@pytest.mark.parametrize(
    ("docstring", "wrong"),
    [
        ("What the mm-policies need.", True),
        ("Those of the own state.", True),
        ("Return the posterior", True),
        ("Return the posterior of each state.", False),
        ("Whether it is certain.", False),
    ],
)
def test_the_check_itself(docstring, wrong):
    assert (complaint(docstring) is not None) == wrong


def test_docstrings_begin_with_a_sentence():
    complaints = [
        f"{place} {complaint(docstring)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for place, _, docstring in definitions(path)
        if docstring is not None and complaint(docstring)
    ]
    assert not complaints, "\n".join(complaints)


def test_public_functions_and_classes_of_the_core_have_docstrings():
    bare = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for room in CORE
        for path in sorted((SOURCE / room).rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert not bare, "\n".join(bare)


RESULTS = ("Fit", "Estimate", "PolicyResult", "Tuning", "Round", "Evaluation", "Interval")
"""Values that users read, and do not make: the comments of their fields describe them."""
PUBLIC = ("", ".policies", ".models", ".learning", ".simulation", ".environments", ".evaluation",
          ".testing")  # fmt: skip


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_documents_its_arguments(package):
    module = import_module(f"latentbandits{package}")
    silent = []
    for name in module.__all__:
        public = getattr(module, name)
        if name in RESULTS or not (inspect.isclass(public) or inspect.isfunction(public)):
            continue
        if inspect.isclass(public) and issubclass(public, (Exception, Protocol)):
            continue
        text, parameters = inspect.getdoc(public) or "", inspect.signature(public).parameters
        several = len(parameters) > 1
        for parameter in (one for one in parameters if not one.startswith("_")):
            words = rf"^ +\*{{0,2}}{parameter}:" if several else rf"\b{parameter}\b"
            if not re.search(words, text, re.MULTILINE):
                silent.append(f"{name}: {parameter}")
    assert not silent, "\n".join(silent)

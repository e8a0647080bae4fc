"""The problems: every module of this folder has a `PROBLEM`; adding one is one file."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from evidence.bench.problem import Problem

_MODULES = sorted(module.name for module in pkgutil.iter_modules(__path__))

PROBLEMS: Mapping[str, Problem] = {
    problem.name: problem
    for problem in (import_module(f"{__name__}.{name}").PROBLEM for name in _MODULES)
}
"""All problems by name."""

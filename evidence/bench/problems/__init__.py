"""The problems: every module of this folder has `PROBLEMS`; adding one is one file or one entry."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module

from evidence.bench.problem import Problem

_MODULES = (import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))

PROBLEMS: Mapping[str, Problem] = dict(
    sorted((problem.name, problem) for module in _MODULES for problem in module.PROBLEMS)
)
"""All problems by name."""

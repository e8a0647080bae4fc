"""A policy's name and options, written as text: `mmTS(catch_all=True)`.

The text is parsed once, to a name and literal options that can be stored as JSON. It is never
evaluated.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LARGEST = 2**53  # every JSON reader takes integers up to this exactly
_MAX_LENGTH = 1000
_EXAMPLE = "write a name, or a name with options such as mmTS(catch_all=True)"


@dataclass(frozen=True)
class PolicySpec:
    """The name of a policy and its options.

    Args:
        name: a name of the registry.
        options: values by name: numbers, text, booleans, None, or sequences of these. Another
            policy is given as its text.

    >>> spec = PolicySpec.from_text("EXP4(reward_range=[1, 5])")
    >>> str(spec), spec.to_json()
    ('EXP4(reward_range=(1, 5))', {'name': 'EXP4', 'options': {'reward_range': [1, 5]}})
    >>> PolicySpec.from_json(spec.to_json()) == spec
    True
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"{self.name!r} cannot be the name of a policy: {_EXAMPLE}")
        options = {name: _jsonable(name, value) for name, value in self.options.items()}
        object.__setattr__(self, "options", options)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        if not self.options:
            return self.name
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({options})"

    @classmethod
    def from_text(cls, text: str) -> PolicySpec:
        """Parse `Name` or `Name(option=value, ...)`; ValueError says what cannot be read."""
        if len(text) > _MAX_LENGTH:
            raise ValueError(
                f"a policy's text has at most {_MAX_LENGTH} characters; got {len(text)}"
            )
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ValueError(f"cannot read the policy {text!r}: {_EXAMPLE}") from None
        if isinstance(tree, ast.Name):
            return cls(tree.id)
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise ValueError(f"cannot read the policy {text!r}: {_EXAMPLE}")
        if tree.args or any(keyword.arg is None for keyword in tree.keywords):
            raise ValueError(f"options have names, option=value; got {text!r}")
        options: dict[str, Any] = {}
        for keyword in tree.keywords:
            assert keyword.arg is not None
            if keyword.arg in options:
                raise ValueError(f"the option {keyword.arg} is given twice in {text!r}")
            options[keyword.arg] = _value(text, keyword.arg, keyword.value)
        return cls(tree.func.id, options)

    def to_json(self) -> dict[str, Any]:
        """Return the name and the options as values that JSON has."""
        return {"name": self.name, "options": {k: _listed(v) for k, v in self.options.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PolicySpec:
        """Return the specification that `to_json` wrote."""
        try:
            return cls(value["name"], dict(value.get("options") or {}))
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"a policy is stored as {{'name': ..., 'options': {{...}}}}; got {value!r}"
            ) from None


def _value(text: str, option: str, node: ast.expr) -> Any:
    """Return the literal of an option; a policy inside a policy becomes its text."""
    if option == "policy" and isinstance(node, (ast.Name, ast.Call)):
        return str(PolicySpec.from_text(ast.unparse(node)))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"the option {option} of {text!r} must be a literal: a number, text in quotes, True, "
            "False, None, or a list of these"
        ) from None


def _jsonable(name: str, value: Any) -> Any:
    """Return `value` with lists as tuples; ValueError unless JSON can hold it."""
    if isinstance(value, (list, tuple)):
        return tuple(_jsonable(name, item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the option {name} must be finite; got {value}")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError(f"the option {name} must be at most {_LARGEST} in size")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(
        f"the option {name} must be a number, text, True, False, None, or a list of these; "
        f"got {value!r}"
    )


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value

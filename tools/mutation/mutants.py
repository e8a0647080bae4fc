"""Small changes of a module's syntax tree, one at a time."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)
"""Messages and imports: what they say is not behaviour."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: str  # relative to the repository
    index: int  # among the mutants of the module
    line: int
    end: int  # the last line of the changed expression; of a statement, its first line
    statement: int  # the first line of the statement around it
    in_function: bool  # whether it is in the body of a function
    function: str  # qualified name, or "" for the module's own lines
    source: str  # the line, stripped
    change: str  # "a + b -> a - b"
    occurrence: int  # 1 for the first such change of such a line of the function, 2 for the second

    @property
    def name(self) -> str:
        """A name that does not change when lines move."""
        place = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.path}::{self.function}: {self.source} [{self.change}]{place}"


def mutants(path: str) -> list[Mutant]:
    """Return all mutants of a module."""
    text = Path(path).read_text(encoding="utf-8")
    lines = text.splitlines()
    made = []
    seen: Counter[tuple[str, str, str]] = Counter()
    tree = ast.parse(text)
    strict = {id(part.value) for part in ast.walk(tree) if _is_strict(part)}
    for index, (node, place, function, change, _) in enumerate(_sites(tree)):
        if id(node) in strict:
            continue
        statement, inside = place
        line = node.lineno
        source = lines[line - 1].strip()
        end = (node.end_lineno or line) if isinstance(node, ast.expr) else line
        words = (function, source, change)
        seen[words] += 1
        made.append(Mutant(path, index, line, end, statement, inside, *words, seen[words]))
    return made


def original_tree(path: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def mutated_tree(path: str, index: int) -> ast.Module:
    """Return the syntax tree of a module with one of its mutants."""
    tree = original_tree(path)
    for i, (_, _, _, _, apply) in enumerate(_sites(tree)):
        if i == index:
            apply()
            break
    return ast.fix_missing_locations(tree)


def key(mutant: Mutant) -> str:
    """Return a key that changes with the code of the module, not with comments and docstrings."""
    text = Path(mutant.path).read_text(encoding="utf-8")
    return hashlib.sha256(f"{_digest(mutant.path, text)} {mutant.index}".encode()).hexdigest()[:24]


@cache
def _digest(path: str, text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [child for child in body if not _is_docstring(child)]
    return hashlib.sha256((path + ast.dump(tree)).encode()).hexdigest()


def _sites(tree: ast.Module) -> Iterator[tuple]:
    """Yield the node, its place, its function, the change in words and the change itself.

    The place is the line of the statement around the node, and whether a function's body holds it.
    """
    yield from _walk(tree, "", (1, False))


def _walk(node: ast.AST, function: str, place: tuple[int, bool]) -> Iterator[tuple]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "keywords") and isinstance(
            node, (ast.AnnAssign, ast.arg, ast.FunctionDef, ast.ClassDef)
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, _SKIPPED):
                continue
            if _is_type_checking(child) or _is_docstring(child) or _is_alias(child):
                continue
            name = function
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                name = f"{function}.{child.name}".lstrip(".")
            line, inside = place
            if isinstance(child, ast.stmt):
                line = child.lineno
            if field == "body" and isinstance(node, (ast.FunctionDef, ast.Lambda)):
                inside = True
            for changed, *rest in _changes(child, name):
                yield changed, (line, inside), *rest
            yield from _walk(child, name, (line, inside))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_strict(node: ast.AST) -> bool:
    """Arguments such as zip(..., strict=True): sequences of one length are the same with either."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_alias(node: ast.AST) -> bool:
    """Type aliases and overloads of names at the top of a module."""
    if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
        return True
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(
        ("__all__", "FloatArray", "IntArray", "BoolArray")
    )


def _changes(node: ast.AST, function: str) -> Iterator[tuple]:
    """Yield the changes of one node: itself, where, in words, and a function that applies it."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            new = _COMPARISONS[type(operator)]()
            yield _swap(node, function, node.ops, i, new)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS:
        if not _concatenates(node):
            yield _set(node, function, "op", _OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _set(node, function, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield _set(node, function, "op", None if isinstance(node.op, ast.Not) else ast.UAdd())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _set(node, function, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        larger = node.value + 1
        yield _set(node, function, "value", larger if larger != node.value else 2 * node.value)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield _set(node, function, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, (ast.Break, ast.Continue)):
        return


def _concatenates(node: ast.BinOp | ast.AugAssign) -> bool:
    """Tell whether an addition joins texts or a union joins types: no arithmetic to get wrong."""
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes, type(None))))
        for part in parts
    )


def _set(node: ast.AST, function: str, field: str, value: object) -> tuple:
    changed = copy.deepcopy(node)
    if value is None:  # `not x` becomes `x`
        before = ast.unparse(node)
        after = ast.unparse(node.operand)
        return node, function, f"{before} -> {after}", lambda: _become(node, node.operand)
    setattr(changed, field, value)
    if isinstance(node, (ast.If, ast.While)):
        words = f"if {ast.unparse(node.test)} -> if not ({ast.unparse(node.test)})"
    else:
        words = f"{ast.unparse(node)} -> {ast.unparse(changed)}"
    return node, function, words, lambda: setattr(node, field, value)


def _swap(node: ast.Compare, function: str, ops: list, i: int, new: ast.cmpop) -> tuple:
    changed = copy.deepcopy(node)
    changed.ops[i] = new
    words = f"{ast.unparse(node)} -> {ast.unparse(changed)}"

    def apply() -> None:
        ops[i] = new

    return node, function, words, apply


def _become(node: ast.UnaryOp, other: ast.expr) -> None:
    """Turn `not x` into `not not x`, which is the truth of x."""
    node.operand = ast.UnaryOp(ast.Not(), other)

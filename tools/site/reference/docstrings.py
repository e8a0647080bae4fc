"""Docstrings and signatures as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields|Note|Example|Examples):$")
_ITEM = re.compile(r"^(\*{0,2}[\w, `]+?)(?: \(([^)]*)\))?: (.*)$")


def escaped(text: str) -> str:
    r"""Return prose whose `*`, `_`, `<` and `|` outside code spans are not Markdown.

    >>> escaped("a_b * c in `x_y`")
    'a\\_b \\* c in `x_y`'
    """
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(
        part if i % 2 else re.sub(r"([*_<|\[\]])", r"\\\1", part) for i, part in enumerate(parts)
    )


def own_doc(thing: Any) -> str:
    """Return the docstring of a class or function itself, not an inherited or generated one."""
    doc = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    if not doc or (inspect.isclass(thing) and doc.startswith(f"{thing.__name__}(")):
        return ""
    return inspect.cleandoc(doc)


def markdown(doc: str) -> str:
    """Return a docstring in Google's format as Markdown.

    Sections become tables, doctests and indented equations become code.
    """
    out: list[str] = []
    blocks = re.split(r"\n\s*\n", doc)
    i = 0
    while i < len(blocks):
        block = blocks[i]
        lines = block.splitlines()
        head = lines[0].strip() if lines else ""
        if block.lstrip().startswith(">>>"):
            code = [block]
            while i + 1 < len(blocks) and blocks[i + 1].lstrip().startswith(">>>"):
                i += 1
                code.append(blocks[i])
            out.append("```pycon\n" + inspect.cleandoc("\n\n".join(code)) + "\n```")
        elif _SECTION.match(head):
            out.append(_section(head.rstrip(":"), lines[1:]))
        elif block.startswith("    "):
            out.append("```text\n" + inspect.cleandoc(block) + "\n```")
        else:
            out.append(_prose(lines))
        i += 1
    return "\n\n".join(part for part in out if part)


def _prose(lines: list[str]) -> str:
    """Return a paragraph; lines that are indented further become code, doctests too."""
    out: list[str] = []
    code: list[str] = []
    for line in [*lines, ""]:
        if line.startswith(("    ", ">>>", "... ")) or (
            code and code[0].startswith(">>>") and line
        ):
            code.append(line)
            continue
        if code:
            kind = "pycon" if code[0].startswith(">>>") else "text"
            out += ["", f"```{kind}", inspect.cleandoc("\n".join(code)), "```", ""]
            code = []
        out.append(escaped(line))
    return "\n".join(out).strip()


def _section(title: str, lines: list[str]) -> str:
    text = inspect.cleandoc("\n".join(["", *lines])).splitlines()
    if not any(_ITEM.match(line) for line in text):
        return f"**{title}.** " + escaped(" ".join(line.strip() for line in text))
    rows: list[list[str]] = []
    for line in text:
        item = None if line.startswith(" ") else _ITEM.match(line)
        if item:
            names = ", ".join(f"`{name.strip(' `')}`" for name in item[1].split(","))
            rows.append([names, item[3]])
        elif rows:
            rows[-1][1] += " " + line.strip()
    table = [f"| {title.lower()} | |", "|---|---|"]
    return "\n".join([*table, *(f"| {name} | {escaped(text)} |" for name, text in rows)])


def signature(name: str, thing: Any) -> str:
    """Return the call of a function or class, one argument per line where it is long."""
    try:
        result = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parameters = [p for p in result.parameters.values() if p.name not in ("self", "cls")]
    words, starred = [], False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            starred = True
        if p.kind is p.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        words.append(f"{prefix}{p.name}{default}")
    line = f"{name}({', '.join(words)})"
    if len(line) <= 88:
        return line
    return f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def _value(thing: Any) -> str:
    """Return a value as code, without the addresses of objects."""
    return re.sub(r"<(?:\w+\.)*(\w+) object at 0x\w+>", r"\1()", repr(thing))


def _default(value: Any) -> str:
    text = repr(value)
    if " at 0x" in text or len(text) > 40:
        return "..."
    return text


def entry(name: str, thing: Any, level: int = 3) -> str:
    """Return the entry of one public name: heading, call, documentation, public methods."""
    parts = [f"{'#' * level} `{name}`"]
    if inspect.isclass(thing) or (callable(thing) and not hasattr(thing, "__origin__")):
        protocol = getattr(thing, "_is_protocol", False)
        parts.append(f"```python\n{name if protocol else signature(name, thing)}\n```")
        parts.append(markdown(own_doc(thing)))
    else:
        parts.append(f"```python\n{name} = {_value(thing)}\n```")
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        parts += _methods(thing, level + 1)
    return "\n\n".join(part for part in parts if part)


def _methods(kind: type, level: int) -> list[str]:
    """Return entries of the public methods that the class itself defines and documents."""
    parts = []
    for name, member in vars(kind).items():
        if name.startswith("_") or name == "init":
            continue
        function = getattr(member, "__func__", member)
        if isinstance(function, property):
            doc = own_doc(function.fget)
            if doc:
                parts.append(f"- `.{name}`: {escaped(doc.splitlines()[0])}")
        elif inspect.isfunction(function) and own_doc(function):
            call = signature(f"{kind.__name__}.{name}", function)
            parts.append(f"{'#' * level} `.{name}`\n\n```python\n{call}\n```")
            parts.append(markdown(own_doc(function)))
    return parts

"""Results that figures of the documentation are drawn from: docs/figures/results/NAME.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_DIGITS = 6


def parts(results: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what results.json of an experiment adds to the folder: a file for each table."""
    name, rows = results["experiment"], results["policies"]
    tables = dict.fromkeys(row.get("table") for row in rows) or {None: None}
    for table in tables:
        own = [row for row in rows if row.get("table") == table]
        content = {"experiment": name, "settings": results["settings"], "policies": own}
        yield (name if table is None else f"{name}-{table}"), content


def write(results: Mapping[str, Any], folder: Path) -> None:
    """Write the rows as columns, which is a third of the size."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in parts(results):
        rows = content.pop("policies")
        keys = list(dict.fromkeys(key for row in rows for key in row))
        columns = {key: [_short(row.get(key)) for row in rows] for key in keys}
        lines = [f'  "{key}": {json.dumps(value)}' for key, value in columns.items()]
        head = json.dumps(_short(content), indent=1).removesuffix("\n}")
        body = ",\n".join(lines)
        (folder / f"{name}.json").write_text(f'{head},\n "columns": {{\n{body}\n }}\n}}\n')


def read(path: Path) -> dict[str, Any]:
    """Return the content of a kept file in the shape of results.json."""
    content: dict[str, Any] = json.loads(path.read_text())
    columns = content.pop("columns")
    values = zip(*columns.values(), strict=True)
    content["policies"] = [dict(zip(columns, row, strict=True)) for row in values]
    return content


def _short(value: Any) -> Any:
    """Round numbers to the digits that a figure can show."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return value

"""The page of the HTTP API, from the OpenAPI document of the service."""

from __future__ import annotations

import json
from typing import Any

from latentbandits.serving.http.pages import ANSWERS, command, document
from tools.site.reference.docstrings import escaped


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and operation of every endpoint."""
    return [
        (method.upper(), path, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]


def page() -> str:
    """Return the reference of the HTTP API."""
    result = operations()
    parts = [
        "# HTTP API",
        "The service answers `GET /openapi.json` with this reference as an OpenAPI 3.1 document, "
        "and `GET /docs` with a page of it. Bodies are JSON. With API keys, send "
        "`Authorization: Bearer KEY`. Errors are listed in [Errors](errors.md).",
        "\n".join(
            ["| request | what it does |", "|---|---|"]
            + [
                f"| [`{method} {path}`](#{operation['operationId']}) | "
                f"{escaped(operation['summary'])} |"
                for method, path, operation in result
            ]
            + ["| `GET /metrics` | [Metrics](metrics.md) for Prometheus. |"]
        ),
    ]
    for method, path, operation in result:
        parts += _operation(method, path, operation)
    parts.append("## Messages")
    for name, schema in sorted(document()["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n\n".join(parts) + "\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    parts = [f"## `{method} {path}` {{ #{operation['operationId']} }}"]
    parts.append(escaped(f"{operation['summary']} {operation.get('description', '')}".strip()))
    rows = [
        f"| `{one['name']}` | {one['in']} | {escaped(one['description'])} |"
        for one in operation.get("parameters", ())
    ]
    if rows:
        parts.append("\n".join(["| parameter | in | |", "|---|---|---|", *rows]))
    body = operation.get("requestBody")
    if body is not None:
        parts.append(f"Body: {_type(body['content']['application/json']['schema'])}.")
    parts.append(f"```sh\n{command(method, path, operation['operationId'])}\n```")
    if operation["operationId"] in ANSWERS:
        example = json.dumps(ANSWERS[operation["operationId"]], indent=2)
        parts.append(f"may answer\n\n```json\n{example}\n```")
    answers = [
        f"{status} ({_type(answer['content']['application/json']['schema'])})"
        for status, answer in operation["responses"].items()
        if status < "300"
    ]
    others = ", ".join(status for status in operation["responses"] if status >= "300")
    parts.append(f"Answers {', '.join(answers)}; or an error: {others}.")
    return parts


def _schema(name: str, schema: dict[str, Any]) -> list[str]:
    parts = [f"### `{name}` {{ #type-{name.lower()} }}"]
    if "description" in schema:
        parts.append(escaped(schema["description"]))
    required = set(schema.get("required", ()))
    rows = [
        f"| `{field}` | {_type(kind)} | {'yes' if field in required else 'no'} |"
        for field, kind in schema.get("properties", {}).items()
    ]
    if rows:
        parts.append("\n".join(["| field | type | always there |", "|---|---|---|", *rows]))
    return parts


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in a few words, with links to those that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#type-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    words = [str(schema.get("type", "any"))]
    bounds = ("minimum", "maximum", "minLength", "maxLength")
    words += [f"{key} {schema[key]:g}" for key in bounds if key in schema]
    return escaped(", ".join(words))

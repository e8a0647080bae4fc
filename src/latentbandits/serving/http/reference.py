"""The page at /docs: a reference made from the OpenAPI document, static and without scripts."""

from __future__ import annotations

import json
from html import escape
from typing import Any

EXAMPLES = {
    "decide": {"session": "ann", "actions": ["red", "blue"], "request_id": "7f3a"},
    "reward": {"decision_id": "343c1db679600000051193f670094651", "value": 1.0},
    "correct": {"decision_id": "343c1db679600000051193f670094651", "value": 0.0},
    "merge": {"into": "laptop", "other": "phone"},
    "add_actions": {"id": "green", "attributes": {"genre": "jazz"}},
    "activate": {"path": "model-2", "mode": "migrated", "request_id": "swap-1"},
    "find_forgotten": {"decisions": ["343c1db679600000051193f670094651"]},
}
"""A body for every endpoint that takes one, by operation."""


def page(document: dict[str, Any]) -> str:
    """Return the reference as HTML that needs nothing but the service's style sheet."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(info['title'])}: reference</title>"
        "<link rel=stylesheet href='page/base.css'></head><body><main>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])} The document itself: "
        "<a href='openapi.json'>openapi.json</a>. Errors are "
        "<code>{&quot;error&quot;: {&quot;code&quot;, &quot;message&quot;}}</code>; 503 means that "
        "nothing was done, 504 that it is not known: ask again with the same request id.</p><ul>",
    ]
    listed = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    for method, path, operation in listed:
        name = escape(operation["operationId"])
        parts.append(f"<li><a href='#{name}'>{method} {escape(path)}</a></li>")
    parts.append("</ul>")
    schemas = document["components"]["schemas"]
    parts += [_operation(method, path, operation) for method, path, operation in listed]
    parts.append("<h2>Messages</h2>")
    parts += [_schema(name, schema) for name, schema in sorted(schemas.items())]
    return "".join([*parts, "</main></body></html>"])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    name = operation["operationId"]
    parts = [
        f"<section id='{escape(name)}'><h2>{method} {escape(path)}</h2>",
        f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>",
    ]
    parts += [
        f"<p><code>{escape(one['name'])}</code> ({escape(one['in'])}): "
        f"{escape(one['description'])}</p>"
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        parts.append(f"<p>Body: {_type(schema)}</p>")
    parts.append(f"<pre>{escape(command(method, path, name))}</pre><ul>")
    for status, answer in operation["responses"].items():
        kind = _type(answer["content"]["application/json"]["schema"])
        parts.append(f"<li>{status} {escape(answer['description'])}: {kind}</li>")
    return "".join([*parts, "</ul></section>"])


def command(method: str, path: str, name: str) -> str:
    """A call of the endpoint with curl."""
    where = path.replace("{session}", "ann")
    words = ["curl", "-s", f"http://127.0.0.1:8000{where}"]
    if name in EXAMPLES:
        if method != "POST":
            words.insert(2, f"-X {method}")
        words += ["-H 'content-type: application/json'", f"-d '{json.dumps(EXAMPLES[name])}'"]
    elif method != "GET":
        words.insert(2, f"-X {method}")
    return " ".join(words)


def _schema(name: str, schema: dict[str, Any]) -> str:
    parts = [f"<section id='type-{escape(name)}'><h3>{escape(name)}</h3>"]
    if "description" in schema:
        parts.append(f"<p>{escape(schema['description'])}</p>")
    required = set(schema.get("required", ()))
    rows = [
        f"<tr><td><code>{escape(field)}</code>{'' if field in required else ' (optional)'}</td>"
        f"<td>{_type(kind)}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    ]
    if rows:
        parts.append(f"<table>{''.join(rows)}</table>")
    return "".join([*parts, "</section>"])


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words, with links to those that have a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#type-{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    words = [str(schema.get("type", "any"))]
    bounds = ("minimum", "maximum", "minLength", "maxLength")
    words += [f"{key} {schema[key]:g}" for key in bounds if key in schema]
    return escape(", ".join(words))

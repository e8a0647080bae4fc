"""The web pages of the service, the OpenAPI document, and a reference made of it.

The pages are static files, which need nothing but this service and run nothing inline. Their
addresses are relative, so that the app can be mounted below a path. They poll once a second: that
survives restarts and proxies without any state. The document is made from the types that check
requests; the reference at /docs is made from it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from html import escape
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from latentbandits.serving.http.endpoints import ENDPOINTS, Endpoint
from latentbandits.serving.http.messages import ErrorBody, Health

FOLDER = Path(__file__).parent.parent / "page"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def _page(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return FileResponse(FOLDER / name, headers=HEADERS)

    return page


async def _to_play(request: Request) -> Response:
    """Redirect by a relative address, so that the request's Host does not matter."""
    return Response(status_code=307, headers={"location": "../play", **HEADERS})


PAGES: tuple[BaseRoute, ...] = (
    Route("/", _page("index.html")),
    Mount("/page", _Files(directory=FOLDER)),
    *(
        Route(f"/observability/{name}", _page(f"../observability/{name}"))
        for name in ("dashboard.json", "rules.yaml")
    ),
)
PLAY_PAGES: tuple[BaseRoute, ...] = (
    Route("/play", _page("play.html")),
    Route("/play/", _to_play),
)


_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 408, 413, 421, 429, 431, 500, 501, 503, 504)
_WITH_BODY = (415, 422)


def document() -> dict[str, Any]:
    """Return the document that `/openapi.json` gives."""
    types = [ErrorBody, Health]
    for endpoint in ENDPOINTS:
        types.append(endpoint.answer)
        if endpoint.body is not None:
            types.append(endpoint.body)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = iter(schemas[2:])
    error, health = schemas[:2]
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        answer = next(by_type)
        body = None if endpoint.body is None else next(by_type)
        operation = _described(endpoint, answer, body, error)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    for path, summary in (("/healthz", "Whether the process is up."),
                          ("/readyz", "Whether it takes requests.")):  # fmt: skip
        paths[path] = {
            "get": {
                "summary": summary,
                "operationId": path.strip("/"),
                "security": [],
                "responses": {"200": _answer(200, health), "503": _answer(503, health)},
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "latentbandits decision service",
            "version": version("latentbandits"),
            "description": "Decide, learn from rewards, lose nothing.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _described(endpoint: Endpoint, answer: Any, body: Any, error: Any) -> dict[str, Any]:
    statuses = {*_ALWAYS, *endpoint.errors}
    if body is not None:
        statuses |= set(_WITH_BODY)
    elif endpoint.parameters:
        statuses.add(422)
    name = endpoint.handle.__name__
    admin = endpoint.scope == "admin"
    exception = "unless the setting `insecure_admin` is on" if admin else "where keys are in use"
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": name,
        "description": f"Needs a key with the scope `{endpoint.scope}`, {exception}.",
        "responses": _successes(endpoint, answer, error)
        | {str(status): _answer(status, error) for status in sorted(statuses)},
    }
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    if endpoint.parameters:
        operation["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "schema": parameter.schema,
                "description": parameter.description,
            }
            for parameter in endpoint.parameters
        ]
    return operation


def _successes(endpoint: Endpoint, answer: Any, error: Any) -> dict[str, Any]:
    """Return the schemas of success: an answer, or for lists also a list of answers."""
    if not endpoint.many:
        return {str(endpoint.status): _answer(endpoint.status, answer)}
    many = {"type": "array", "items": {"anyOf": [answer, error]}}
    if endpoint.status == 200:
        return {"200": _answer(200, {"anyOf": [answer, many]})}
    return {str(endpoint.status): _answer(endpoint.status, answer), "200": _answer(200, many)}


def _answer(status: int, schema: Any) -> dict[str, Any]:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": schema}},
    }


_EXAMPLES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "examples.json").read_bytes()
)
EXAMPLES, ANSWERS = _EXAMPLES["requests"], _EXAMPLES["answers"]
"""By operation: a body for every endpoint that takes one, and an answer of every endpoint but the
overview, whose fields are listed below it."""


def reference(document: dict[str, Any]) -> str:
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
        f"<p>{_words(operation['summary'])} {_words(operation.get('description', ''))}</p>",
    ]
    parts += [
        f"<p><code>{escape(one['name'])}</code> ({escape(one['in'])}): "
        f"{_words(one['description'])}</p>"
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        parts.append(f"<p>Body: {_type(schema)}</p>")
    parts.append(f"<pre>{escape(command(method, path, name))}</pre>")
    if name in ANSWERS:
        parts.append(f"<p>may answer</p><pre>{escape(json.dumps(ANSWERS[name], indent=2))}</pre>")
    for status, answer in operation["responses"].items():
        if status < "300":
            kind = _type(answer["content"]["application/json"]["schema"])
            parts.append(f"<p>{status} {escape(answer['description'])}: {kind}</p>")
    errors = ", ".join(status for status in operation["responses"] if status >= "300")
    parts.append(f"<p>Errors, as <a href='#type-ErrorBody'>ErrorBody</a>: {errors}.</p>")
    return "".join([*parts, "</section>"])


def _words(text: str) -> str:
    """Return text as HTML, with `code` between back quotes."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def command(method: str, path: str, name: str) -> str:
    """Return a call of the endpoint with curl."""
    where = path.replace("{session}", "ann")
    has_body = name in EXAMPLES
    other = [] if method == ("POST" if has_body else "GET") else [f"-X {method}"]
    words = ["curl", "-s", *other, f"http://127.0.0.1:8000{where}"]
    if has_body:
        words += ["-H 'content-type: application/json'", f"-d '{json.dumps(EXAMPLES[name])}'"]
    return " ".join(words)


def _schema(name: str, schema: dict[str, Any]) -> str:
    parts = [f"<section id='type-{escape(name)}'><h3>{escape(name)}</h3>"]
    if "description" in schema:
        parts.append(f"<p>{_words(schema['description'])}</p>")
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
    """Describe a schema in a few words, with links to named schemas."""
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

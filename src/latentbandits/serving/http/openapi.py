"""The OpenAPI 3.1 document, made from the types that check requests."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from latentbandits.serving.http.endpoints import ENDPOINTS, Endpoint
from latentbandits.serving.http.messages import ErrorBody, Health

_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 408, 413, 421, 429, 431, 500, 503, 504)
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
        operation = _operation(endpoint, answer, body, error)
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


def _operation(endpoint: Endpoint, answer: Any, body: Any, error: Any) -> dict[str, Any]:
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

"""The page of errors: those of the HTTP API, and every exception class of the library."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import latentbandits
from latentbandits.serving import errors
from latentbandits.serving.http.requests import STATUSES
from tools.site.reference.docstrings import escaped, own_doc

_BY_HTTP = {
    400: "the body is not JSON",
    401: "a key is needed, or it is not known",
    403: "the key does not allow this",
    404: "no such decision, session or model",
    405: "the address does not take this method",
    408: "the request did not arrive in time",
    409: "another body for a `request_id`, or another value for a reward",
    413: "the body is too large",
    415: "the content type is not `application/json`",
    421: "the `Host` header names another host",
    422: "the request can never work as it stands; the message says why",
    429: "too many requests of this key, or sent ahead of their answers; see `Retry-After`",
    431: "the headers are too large",
    500: "a fault of the service; it is in its log",
    503: "nothing was done: too much waits, or the store failed; try again as `Retry-After` says",
    504: "it is not known whether it was done: ask again with the same `request_id`",
}


def exceptions() -> dict[str, type[BaseException]]:
    """Return every public exception and warning class that the library defines."""
    results: dict[str, type[BaseException]] = {}
    for module in pkgutil.walk_packages(latentbandits.__path__, "latentbandits."):
        if module.name.endswith("__main__"):
            continue
        try:
            members = vars(import_module(module.name))
        except ModuleNotFoundError:  # a package that only another extra installs, such as Spark
            continue
        for name, thing in members.items():
            own = inspect.isclass(thing) and thing.__module__ == module.name
            if own and issubclass(thing, BaseException) and not name.startswith("_"):
                results[name] = thing
    return dict(sorted(results.items()))


def page() -> str:
    """Return the reference of errors."""
    status = dict(STATUSES)
    codes = [
        f"| `{kind.code}` | {_status(kind, status)} | {escaped(own_doc(kind).splitlines()[0])} |"
        for kind in _subclasses(errors.Refused)
    ]
    raised = [
        f"| `{name}` | `{kind.__module__}` | `{kind.__mro__[1].__name__}` | "
        f"{escaped(own_doc(kind).splitlines()[0])} |"
        for name, kind in exceptions().items()
        if not issubclass(kind, errors.Refused)
    ]
    return (
        "\n\n".join(
            [
                "# Errors",
                "An error says what was wrong, with which value, and how to fix it.",
                "## HTTP",
                'The body is `{"error": {"code", "message"}}`.',
                "\n".join(
                    ["| status | what it means |", "|---|---|"]
                    + [f"| {code} | {text} |" for code, text in _BY_HTTP.items()]
                ),
                "Codes of requests that the engine refuses:",
                "\n".join(["| code | status | |", "|---|---|---|", *codes]),
                "## Python",
                "Wrong arguments are `ValueError` or `TypeError`. These classes say more:",
                "\n".join(["| class | module | kind of | |", "|---|---|---|---|", *raised]),
                "## Command line",
                "One sentence on standard error and exit code 2; there is no traceback. Exit codes "
                "are listed in [Command line](command-line.md).",
            ]
        )
        + "\n"
    )


def _subclasses(kind: type) -> list[type]:
    return [one for child in kind.__subclasses__() for one in (child, *_subclasses(child))]


def _status(kind: type, status: dict[type, int]) -> int:
    return next(status[parent] for parent in kind.__mro__ if parent in status)

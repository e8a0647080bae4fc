"""The web pages: static files, which need nothing but this service and run nothing inline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

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
    """Redirect by a relative address: whatever name the request came by, it stays there."""
    return Response(status_code=307, headers={"location": "../play", **HEADERS})


PAGES: tuple[BaseRoute, ...] = (
    Route("/", _page("index.html")),
    Mount("/page", _Files(directory=FOLDER)),
)
PLAY_PAGES: tuple[BaseRoute, ...] = (
    Route("/play", _page("play.html")),
    Route("/play/", _to_play),
)

"""Servers that only decode a `decide` body and send it back: what HTTP and JSON alone cost."""

import sys
from typing import Any

import uvicorn


def starlette_app() -> Any:
    import msgspec
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from latentbandits.serving.http.messages import DecideRequest

    decode = msgspec.json.Decoder(DecideRequest).decode
    encode = msgspec.json.Encoder().encode

    async def echo(request: Request) -> Response:
        body = decode(await request.body())
        return Response(encode(body), 201, media_type="application/json")

    return Starlette(routes=[Route("/v1/decide", echo, methods=["POST"])])


def fastapi_app() -> Any:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class DecideRequest(BaseModel):
        session: str
        actions: list[str] | None = None
        features: list[list[float]] | None = None
        request_id: str | None = None
        default: str | None = None

    app = FastAPI()

    @app.post("/v1/decide", status_code=201)
    async def echo(body: DecideRequest) -> DecideRequest:
        return body

    return app


if __name__ == "__main__":
    kind, port = sys.argv[1:]
    app = {"starlette": starlette_app, "fastapi": fastapi_app}[kind]()
    uvicorn.run(app, port=int(port), log_level="warning", access_log=False, http="httptools")

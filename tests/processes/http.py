"""A small HTTP client for load: one connection, one request at a time, few microseconds each."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """Reconnects by itself; a request that got no answer raises ConnectionError or TimeoutError."""

    def __init__(self, port: int, timeout: float = 10.0) -> None:
        self._port = port
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: object) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", path, data)

    async def get(self, path: str) -> Reply:
        return await self.request("GET", path, b"")

    async def request(self, method: str, path: str, data: bytes) -> Reply:
        try:
            async with asyncio.timeout(self._timeout):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(
                    b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n"
                    % (method.encode(), path.encode(), len(data))
                    + data
                )
                return await self._read(reader)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    async def _read(self, reader: asyncio.StreamReader) -> Reply:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:]) if k}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return Reply(int(lines[0].split(" ")[1]), headers, body)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

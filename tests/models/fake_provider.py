"""A provider on loopback that speaks the OpenAI chat stream and misbehaves as told."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from runner.models.pydantic_ai import PydanticAIModel

Event = dict[str, Any] | str | Literal["RESET", "HANG"]
_STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def says(**delta: Any) -> dict[str, Any]:
    """One event with a delta."""
    return _event(delta, None)


def finishes(reason: str = "stop", out: int = 7) -> list[Event]:
    """The events that end an answer."""
    usage = {"prompt_tokens": 3, "completion_tokens": out, "total_tokens": 3 + out}
    return [_event({}, reason), {**_event({}, None), "choices": [], "usage": usage}, "[DONE]"]


def _event(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice]}


@dataclass
class FakeProvider:
    """`bodies` are the requests seen; `gone` is set when the client closed a connection that hung."""

    events: Sequence[Event] = ()
    status: str | None = None
    headers: Sequence[str] = ()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    def model(self, **options: Any) -> PydanticAIModel:
        provider = OpenAIProvider(base_url=f"{self.url}/v1", api_key="none")
        return PydanticAIModel(OpenAIChatModel("fake", provider=provider), **options)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        if self.status is not None:
            self._refuse(writer, self.status)
        else:
            writer.write(_STREAM.encode())
            for event in self.events:
                await self._send(event, reader, writer)
        writer.close()

    def _refuse(self, writer: asyncio.StreamWriter, status: str) -> None:
        body = json.dumps({"error": {"message": "no", "type": "x", "code": "x"}})
        lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}", *self.headers]
        writer.write("\r\n".join([*lines, "connection: close", "", body]).encode())

    async def _send(self, event: Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match event:
            case "RESET":
                await writer.drain()
                link: socket.socket = writer.get_extra_info("socket")
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "HANG":
                await reader.read()
                self.gone.set()
            case str():
                writer.write(f"data: {event}\n\n".encode())
            case _:
                writer.write(f"data: {json.dumps(event)}\n\n".encode())
                await writer.drain()


@asynccontextmanager
async def serving(
    *events: Event, status: str | None = None, headers: Sequence[str] = ()
) -> AsyncIterator[FakeProvider]:
    """A provider that answers every request in this way, until the block is left."""
    fake = FakeProvider(events, status, headers)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
    async with server:
        yield fake

"""Fences the handlers of an ASGI application (Starlette, FastAPI, Django, …) without a gateway.

    app.add_middleware(once.asgi.Once, fences=once.Fences("http://127.0.0.1:7411"))

Answers to fenced requests are held back until they are sealed; larger ones than `answer_bytes_max`
go through as they come. Reads, WebSockets and lifespan events pass through untouched.
"""
import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Awaitable, Callable, List, MutableMapping, Optional

from .fences import Fences, Grant
from .handlers import Answer, Fields, Handlers, Request, canonical_path

__all__ = ["Once"]

# A begin may wait for somebody else's answer; a seal must never wait for it.
BEGINS_MAX = 32
ENDS_MAX = 8
KEY_FIELD = b"idempotency-key"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Once:
    """The middleware. The options are those of `once.handlers.Handlers`."""

    def __init__(self, app: Application, fences: Optional[Fences] = None, **options: Any) -> None:
        self.app, self.handlers = app, Handlers(fences, **options)
        self._begins = ThreadPoolExecutor(BEGINS_MAX, "once-begin")
        self._ends = ThreadPoolExecutor(ENDS_MAX, "once-end")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive,
            send: Send) -> None:
        if scope["type"] != "http" or self.handlers.passes(scope["method"], _has_key(scope)):
            await self.app(scope, receive, send)
            return
        body = await _read(receive, self.handlers.body_bytes_max)
        request = _request_of(scope, body or b"")
        if body is None:
            await _say(self.handlers.refuse(request, "body_too_large"), send)
            return
        begun = await self._in(self._begins, self.handlers.begin, request)
        if isinstance(begun, Answer):
            await _say(begun, send)
            return
        scope = {**scope, "once.grant": begun}
        if not _has_key(scope):
            scope["headers"] = [*scope["headers"], (KEY_FIELD, request.key.encode())]
        answering = _Answering(self.handlers, begun, request, send)
        try:
            with begun.held(self.handlers.lease):
                await self.app(scope, _again(request.body, receive), answering.take)
        except BaseException as error:  # also when the task is cancelled
            await asyncio.shield(self._in(self._ends, self.handlers.crashed, begun, error))
            raise
        if answering.is_through:  # it ends, on the wire, when it is recorded
            await asyncio.shield(self._in(self._ends, self.handlers.end_through, begun,
                answering.answer.status))
            await send({"type": "http.response.body", "body": b""})
            return
        await _say(await asyncio.shield(self._in(self._ends, self.handlers.end, begun, request,
            answering.whole())), send)

    def _in(self, pool: ThreadPoolExecutor, function: Callable[..., Any],
            *arguments: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(pool, partial(function, *arguments))


def _has_key(scope: MutableMapping[str, Any]) -> bool:
    return any(name.lower() == KEY_FIELD for name, _ in scope["headers"])


async def _read(receive: Receive, bytes_max: int) -> Optional[bytes]:
    """The body; None: it is too long. A client that left before its end is cut off there."""
    pieces: List[bytes] = []
    size, is_more = 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left before the end of its request")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > bytes_max:
            return None
        is_more = message.get("more_body", False)
    return b"".join(pieces)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then what else comes."""
    is_read = False

    async def again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Answering:
    """The answer of an application on its way: held back, or going through once it is large."""

    def __init__(self, handlers: Handlers, grant: Grant, request: Request, send: Send) -> None:
        self.handlers, self.grant, self.request, self.send = handlers, grant, request, send
        self.answer = Answer(500)
        self.pieces: List[bytes] = []  # held back
        self.size, self.is_through = 0, False

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = [(name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message.get("headers", [])]
        elif message["type"] == "http.response.body":
            self.pieces.append(message.get("body", b""))
            self.size += len(self.pieces[-1])
            if self.is_through or self.size > self.handlers.answer_bytes_max:
                await self._leave()

    async def _leave(self) -> None:
        if not self.is_through:
            self.is_through = True
            head = self.handlers.head(self.grant, self.request, self.answer)
            # Without its length: the server then marks the end, which comes later.
            await self.send(_start(head.status, _without_length(head.headers)))
        held, self.pieces = self.pieces, []
        for piece in held:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})

    def whole(self) -> Answer:
        self.answer.body = b"".join(self.pieces)
        return self.answer


def _request_of(scope: MutableMapping[str, Any], body: bytes) -> Request:
    headers = [(name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]]
    raw = scope.get("raw_path")
    if raw is None:
        raw = scope["path"].encode("utf-8").replace(b"%", b"%25")
    return Request(scope["method"], canonical_path(raw.partition(b"?")[0]),
        scope.get("query_string", b"").decode("latin-1"), headers, body)


def _without_length(headers: Fields) -> Fields:
    return [each for each in headers if each[0].lower() != "content-length"]


def _start(status: int, headers: Fields) -> Message:
    return {"type": "http.response.start", "status": status,
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers]}


async def _say(answer: Answer, send: Send) -> None:
    headers = _without_length(answer.headers)
    if answer.status >= 200 and answer.status not in (204, 304):
        headers.append(("Content-Length", str(len(answer.body))))
    await send(_start(answer.status, headers))
    await send({"type": "http.response.body", "body": answer.body})

"""Fences the handlers of an ASGI application (Starlette, FastAPI, Django, …) without a gateway.

    app.add_middleware(once.asgi.Once, fences=once.Fences("http://127.0.0.1:7411"))

Answers to fenced requests are read whole before they are sent. Reads, WebSockets and lifespan
events pass through untouched.
"""
import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Awaitable, Callable, Dict, List, MutableMapping, Optional

from .fences import Fences
from .handlers import Answer, Handlers, Request, canonical_path

__all__ = ["Once"]

# A begin may wait for somebody else's answer; a seal must never wait behind it.
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
        try:
            with begun.held(self.handlers.lease):
                answer = await _run(self.app, scope, request.body, receive)
        except BaseException as error:  # also when the task is cancelled
            await asyncio.shield(self._in(self._ends, self.handlers.crashed, begun, error))
            raise
        await _say(await asyncio.shield(
            self._in(self._ends, self.handlers.end, begun, request, answer)), send)

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


async def _run(app: Application, scope: MutableMapping[str, Any], body: bytes,
        receive: Receive) -> Answer:
    """The application's answer, whole."""
    answer, pieces = Answer(500), []  # type: Answer, List[bytes]
    is_read = False

    async def again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message.get("headers", [])]
        elif message["type"] == "http.response.body":
            pieces.append(message.get("body", b""))

    await app(scope, again, keep)
    answer.body = b"".join(pieces)
    return answer


def _request_of(scope: MutableMapping[str, Any], body: bytes) -> Request:
    headers = [(name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]]
    raw = scope.get("raw_path")
    if raw is None:
        raw = scope["path"].encode("utf-8").replace(b"%", b"%25")
    return Request(scope["method"], canonical_path(raw.partition(b"?")[0]),
        scope.get("query_string", b"").decode("latin-1"), headers, body)


async def _say(answer: Answer, send: Send) -> None:
    headers = [each for each in answer.headers if each[0].lower() != "content-length"]
    if answer.status >= 200 and answer.status not in (204, 304):
        headers.append(("Content-Length", str(len(answer.body))))
    start: Dict[str, Any] = {"type": "http.response.start", "status": answer.status,
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers]}
    await send(start)
    await send({"type": "http.response.body", "body": answer.body})

"""Fences the handlers of a WSGI application (Flask, Django, …) without a gateway.

    app.wsgi_app = once.wsgi.Once(app.wsgi_app, once.Fences("http://127.0.0.1:7411"))

Answers to fenced requests are held back until they are sealed; larger ones than `answer_bytes_max`
go through as they come. Reads pass through untouched.
"""
import http
import io
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from .fences import Fences, Grant
from .handlers import Answer, Handlers, Request, canonical_path

__all__ = ["Once"]

Environ = Dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class Once:
    """The middleware. The options are those of `once.handlers.Handlers`."""

    def __init__(self, application: Application, fences: Optional[Fences] = None,
            **options: Any) -> None:
        self.application, self.handlers = application, Handlers(fences, **options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if self.handlers.passes(environ["REQUEST_METHOD"], "HTTP_IDEMPOTENCY_KEY" in environ):
            return self.application(environ, start_response)
        body = _read(environ, self.handlers.body_bytes_max)
        request = _request_of(environ, body or b"")
        if body is None:
            return _say(self.handlers.refuse(request, "body_too_large"), start_response)
        begun = self.handlers.begin(request)
        if isinstance(begun, Answer):
            return _say(begun, start_response)
        environ["wsgi.input"] = io.BytesIO(request.body)
        environ["CONTENT_LENGTH"] = str(len(request.body))
        environ["once.grant"], environ["HTTP_IDEMPOTENCY_KEY"] = begun, request.key
        answering = _Answering(self.handlers, begun, request, start_response)
        pieces = answering.run(self.application, environ)
        next(pieces)  # now its end is recorded, whatever the server does with it
        return pieces if answering.body is None else answering.body


class _Answering:
    """The answer of an application on its way: held back, or going through once it is large."""

    def __init__(self, handlers: Handlers, grant: Grant, request: Request,
            start_response: StartResponse) -> None:
        self.handlers, self.grant, self.request = handlers, grant, request
        self.start_response = start_response
        self.answer = Answer(500)
        self.pieces: List[bytes] = []  # held back
        self.size = 0
        self.body: Optional[List[bytes]] = None  # what leaves of one that was held back
        self.write: Optional[Callable[[bytes], object]] = None  # the server's; None: nothing left

    def run(self, application: Application, environ: Environ) -> Iterator[bytes]:
        """Nothing at first, when it is known whether the answer is held back: then it is recorded
        and in `body`. Else what leaves."""
        is_recorded, last = False, None
        try:
            with self.grant.held(self.handlers.lease):
                result = application(environ, self.start)
                try:
                    pieces = iter(result)
                    last = self.hold_back(pieces)
                    if last is not None or self.write is not None:
                        held = self.leave()
                        yield b""
                        yield from held
                        for piece in pieces:
                            yield last or b""
                            last = piece
                finally:
                    close = getattr(result, "close", None)
                    if close is not None:
                        close()
            is_recorded = True  # from here on crashed would only say what is known better
            if self.write is not None:
                self.handlers.end_through(self.grant, self.answer.status)
                yield last or b""  # the last piece leaves when it is recorded
                return
            self.answer.body = b"".join(self.pieces)
            self.body = _say(self.handlers.end(self.grant, self.request, self.answer),
                self.start_response)
            yield b""
        except BaseException as error:  # also when the server closes it before its end
            if not is_recorded:
                self.handlers.crashed(self.grant, error)
            raise

    def hold_back(self, pieces: Iterator[bytes]) -> Optional[bytes]:
        """The first piece that is not held back; None: there is none."""
        for piece in pieces:
            if self.write is not None or not self.holds(piece):
                return piece
        return None

    def start(self, status: str, headers: List[Tuple[str, str]],
            exc_info: Any = None) -> Callable[[bytes], object]:
        if self.write is not None and exc_info:
            raise exc_info[1].with_traceback(exc_info[2])  # as PEP 3333 demands
        self.answer.status, self.answer.headers = int(status.split(" ")[0]), list(headers)
        return self.push

    def push(self, piece: bytes) -> None:
        """The write function of PEP 3333."""
        if self.write is None and self.holds(piece):
            return
        for each in self.leave():
            self.write(each)  # type: ignore[misc]
        self.write(piece)  # type: ignore[misc]

    def holds(self, piece: bytes) -> bool:
        """False: that is more than is held back."""
        if self.size + len(piece) > self.handlers.answer_bytes_max:
            return False
        self.pieces.append(piece)
        self.size += len(piece)
        return True

    def leave(self) -> List[bytes]:
        """What was held back. A Content-Length of the application stays: an answer that is cut
        short is seen to be."""
        if self.write is not None:
            return []
        head = self.handlers.head(self.grant, self.request, self.answer)
        self.write = self.start_response(_status_line(head.status), head.headers)
        held, self.pieces = self.pieces, []
        return held


def _read(environ: Environ, bytes_max: int) -> Optional[bytes]:
    """The body; None: it is too long. Without a length the server must say that it ends."""
    length = environ.get("CONTENT_LENGTH")
    if length:
        return None if int(length) > bytes_max else environ["wsgi.input"].read(int(length))
    if not environ.get("wsgi.input_terminated"):
        return b""
    body = environ["wsgi.input"].read(bytes_max + 1)
    return None if len(body) > bytes_max else body


def _request_of(environ: Environ, body: bytes) -> Request:
    headers = [(name[5:].replace("_", "-").title(), str(value))
        for name, value in environ.items() if name.startswith("HTTP_")]
    headers.append(("Content-Type", environ.get("CONTENT_TYPE") or ""))
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")
    return Request(environ["REQUEST_METHOD"], canonical_path(path.replace(b"%", b"%25")),
        environ.get("QUERY_STRING", ""), headers, body)


def _status_line(status: int) -> str:
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Status"


def _say(answer: Answer, start_response: StartResponse) -> List[bytes]:
    headers = [each for each in answer.headers if each[0].lower() != "content-length"]
    if answer.status >= 200 and answer.status not in (204, 304):
        headers.append(("Content-Length", str(len(answer.body))))
    start_response(_status_line(answer.status), headers)
    return [answer.body]

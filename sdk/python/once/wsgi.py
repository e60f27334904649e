"""Fences the handlers of a WSGI application (Flask, Django, …) without a gateway.

    app.wsgi_app = once.wsgi.Once(app.wsgi_app, once.Fences("http://127.0.0.1:7411"))

Answers to fenced requests are read whole before they are sent. Reads pass through untouched.
"""
import http
import io
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .fences import Fences
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
        try:
            with begun.held(self.handlers.lease):
                answer = self._run(environ)
        except BaseException as error:
            self.handlers.crashed(begun, error)
            raise
        return _say(self.handlers.end(begun, request, answer), start_response)

    def _run(self, environ: Environ) -> Answer:
        """The application's answer, whole."""
        started: List[Tuple[str, List[Tuple[str, str]]]] = []
        pieces: List[bytes] = []

        def start(status: str, headers: List[Tuple[str, str]],
                exc_info: Any = None) -> Callable[[bytes], object]:
            started.append((status, headers))
            return pieces.append

        result = self.application(environ, start)
        try:
            pieces.extend(result)
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()
        status, headers = started[-1]
        return Answer(int(status.split(" ")[0]), list(headers), b"".join(pieces))


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


def _say(answer: Answer, start_response: StartResponse) -> List[bytes]:
    try:
        phrase = http.HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Status"
    headers = [each for each in answer.headers if each[0].lower() != "content-length"]
    if answer.status >= 200 and answer.status not in (204, 304):
        headers.append(("Content-Length", str(len(answer.body))))
    start_response(f"{answer.status} {phrase}", headers)
    return [answer.body]

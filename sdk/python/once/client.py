"""Calls an HTTP API so that each call takes effect once.

    client = once.Client()
    answer = client.post("http://127.0.0.1:8080/charges", {"cents": 1200},
        idempotency_key="order-7")
    print(answer.status, "replayed" if answer.is_replayed else "first", answer.json())

One call is one logical operation: the key stays the same over its automatic retries, and a later
call with the same key, even after a crash, continues the operation. The server must honour
Idempotency-Key: the gateway of Once, or an idempotent API. Redirects are not followed, and proxies
are not used. Any number of threads may share a client.
"""
import http.client
import json
import re
import secrets
import select
import socket
import ssl
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import SplitResult, urlsplit

from .errors import NoAnswer, Unavailable
from .retry import READS, Facts, Verdict, judge, retry_after_ms, wait_ms

__all__ = ["Attempt", "Client", "Response", "VERSION"]

VERSION = "0.1.0"
KEY_CHARACTERS_MAX = 255
REQUEST_ID_CHARACTERS_MAX = 200
METHOD_CHARACTERS_MAX = 32
BODIED = ("POST", "PUT", "PATCH")  # a body is sent even when it is empty
RESERVED = ("idempotency-key", "request-id", "content-length", "transfer-encoding", "connection",
    "expect")  # what the client decides itself: a second word about it would have two readings
DOCUMENT_BYTES_MAX = 64 << 10  # of a refusal that is read for what it says
PIECE_BYTES = 64 << 10
Body = Union[None, bytes, str, Mapping[str, Any], List[Any]]


@dataclass(frozen=True)
class Response:
    """The answer to a call, whatever its status."""

    status: int
    headers: List[Tuple[str, str]]  # in the order received
    body: bytes
    idempotency_key: str  # as sent; "" for a read
    request_id: str  # of the last attempt
    attempts: int
    effect: str  # of the operation, over all attempts: yes, no, unknown
    is_body_lost: bool = False  # it was larger than body_bytes_max

    def header(self, name: str, default: str = "") -> str:
        """The first header of that name, in any case."""
        return _find(self.headers, name, default)

    @property
    def is_replayed(self) -> bool:
        """This is the answer of an earlier attempt."""
        return self.header("Idempotent-Replayed").lower() == "true"

    @property
    def decision(self) -> str:
        """Once-Decision: "first_seen", …; "" if the server is not Once."""
        return self.header("Once-Decision")

    @property
    def operation_id(self) -> str:
        return self.header("Once-Operation-Id")

    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Attempt:
    """One attempt, as reported to `on_attempt`."""

    number: int  # from 1
    request_id: str
    status: int  # 0: there was no answer
    why: str  # why there was none
    sleep_s: Optional[float]  # before the next attempt; None: this was the last


class Client:
    """Settings and a pool of connections. Times are in seconds."""

    def __init__(self, *, retries: int = 5, deadline: float = 60.0, attempt_timeout: float = 30.0,
            connect_timeout: float = 5.0, backoff_base: float = 0.1, backoff_max: float = 10.0,
            body_bytes_max: int = 16 << 20, idle_max: int = 16,
            user_agent: str = f"once-python/{VERSION}",
            ssl_context: Optional[ssl.SSLContext] = None,
            on_attempt: Optional[Callable[[Attempt], None]] = None) -> None:
        self.retries, self.deadline, self.attempt_timeout = retries, deadline, attempt_timeout
        self.backoff_base, self.backoff_max = backoff_base, backoff_max
        self.user_agent, self.on_attempt = user_agent, on_attempt
        self._wire = _Wire(connect_timeout, body_bytes_max, idle_max, ssl_context)

    def close(self) -> None:
        """Close the idle connections. The client can still be used."""
        self._wire.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, url: str, **options: Any) -> Response:
        return self.send("GET", url, **options)

    def post(self, url: str, body: Body = None, **options: Any) -> Response:
        return self.send("POST", url, body, **options)

    def put(self, url: str, body: Body = None, **options: Any) -> Response:
        return self.send("PUT", url, body, **options)

    def patch(self, url: str, body: Body = None, **options: Any) -> Response:
        return self.send("PATCH", url, body, **options)

    def delete(self, url: str, body: Body = None, **options: Any) -> Response:
        return self.send("DELETE", url, body, **options)

    def send(self, method: str, url: str, body: Body = None, *,
            headers: Optional[Mapping[str, str]] = None, idempotency_key: Optional[str] = None,
            request_id: Optional[str] = None, retries: Optional[int] = None,
            deadline: Optional[float] = None, attempt_timeout: Optional[float] = None) -> Response:
        """Send, and retry while that is safe, useful and within the deadline.

        body: bytes and text as they are, anything else as JSON. Without a key, a UUIDv4 is made
        and used for all retries. Raises Unavailable (nothing happened) or NoAnswer (it may have
        happened); ValueError before anything is sent.
        """
        request = _Request(method, url, body, headers, idempotency_key, request_id)
        return self._send(request, judge, retries, deadline, attempt_timeout)

    def _send(self, request: "_Request", judge: Callable[[Facts], Verdict],
            retries: Optional[int] = None, deadline: Optional[float] = None,
            attempt_timeout: Optional[float] = None) -> Response:
        retries = self.retries if retries is None else retries
        ends = time.monotonic() + (self.deadline if deadline is None else deadline)
        timeout = self.attempt_timeout if attempt_timeout is None else attempt_timeout
        is_in_doubt, number = False, 0
        while True:
            number += 1
            request_id = request.id_of(number)
            fields = {**request.fields, "Request-Id": request_id, "User-Agent": self.user_agent}
            left = max(ends - time.monotonic(), 0.001)
            answer = self._wire.attempt(request, fields, min(left, timeout))
            verdict = judge(answer.facts(request.is_read))
            sleep_s = self._pause(answer, number - 1, ends) \
                if verdict.retry and number <= retries else None
            if self.on_attempt is not None:
                self.on_attempt(Attempt(number, request_id, answer.status, answer.why, sleep_s))
            if sleep_s is None:
                break
            is_in_doubt = is_in_doubt or verdict.effect != "no"
            time.sleep(sleep_s)
        effect = verdict.effect
        if is_in_doubt and not verdict.settles and effect != "yes":
            effect = "unknown"  # "no" from the last attempt says nothing about earlier ones
        return _conclude(request, answer, request_id, number, effect)

    def _pause(self, answer: "_Answer", retry: int, ends: float) -> Optional[float]:
        after = _find(answer.headers, "Retry-After")
        ms = wait_ms(base_ms=int(self.backoff_base * 1000), max_ms=int(self.backoff_max * 1000),
            retry=retry, random=secrets.randbits(64),
            after_ms=retry_after_ms(after, int(time.time() * 1000)),
            left_ms=int((ends - time.monotonic()) * 1000))
        return None if ms < 0 else ms / 1000


def _conclude(request: "_Request", answer: "_Answer", request_id: str, attempts: int,
        effect: str) -> Response:
    if answer.end == "answered":
        return Response(answer.status, answer.headers, answer.body, request.key, request_id,
            attempts, effect, answer.is_body_lost)
    after = f"after {attempts} attempt{'' if attempts == 1 else 's'}: {answer.why}"
    known = {"idempotency_key": request.key, "request_id": request_id}
    if effect == "no":
        what = "no answer" if request.is_read else "cannot reach the server"
        raise Unavailable(f"{what} {after}; nothing happened", attempts=attempts, **known)
    raise NoAnswer(f"no answer {after}; it may have happened, and the same key continues it",
        attempts=attempts, **known)


def _find(headers: List[Tuple[str, str]], name: str, default: str = "") -> str:
    return next((value for each, value in headers if each.lower() == name.lower()), default)


# --- Requests -------------------------------------------------------------------------------------


class _Request:
    """What is the same in every attempt of one call, checked."""

    def __init__(self, method: str, url: str, body: Body = None,
            headers: Optional[Mapping[str, str]] = None, key: Optional[str] = None,
            request_id: Optional[str] = None) -> None:
        _check(method, url, key, request_id)
        self.method, self.url, self.given_id = method, urlsplit(url), request_id
        self.is_read = method in READS
        self.key = "" if self.is_read else str(uuid.uuid4()) if key is None else key
        self.fields: Dict[str, str] = {}
        if self.key:
            self.fields["Idempotency-Key"] = _spelled(self.key)
        if body is None:
            self.body = b"" if method in BODIED else None
        elif isinstance(body, (bytes, str)):
            self.body = body.encode() if isinstance(body, str) else body
        else:
            self.body = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        if self.body is not None and not any(
                name.lower() == "content-type" for name in headers or {}):
            self.fields["Content-Type"] = "application/json"
        for name, value in (headers or {}).items():
            _check_header(name, value)
            self.fields[name] = value

    def id_of(self, number: int) -> str:
        """The Request-Id of the nth attempt: never the same twice."""
        if self.given_id is None:
            return _uuid7()
        return self.given_id if number == 1 else f"{self.given_id}.{number}"

    @property
    def target(self) -> str:
        return (self.url.path or "/") + ("?" + self.url.query if self.url.query else "")


def _check(method: str, url: str, key: Optional[str], request_id: Optional[str]) -> None:
    if not re.fullmatch(r"[A-Z][A-Z-]*", method) or method == "CONNECT" \
            or len(method) > METHOD_CHARACTERS_MAX:
        raise ValueError(f"method {method!r} cannot be sent; it is written in capital letters")
    if not re.fullmatch(r"[!-~]+", url):
        raise ValueError("url has a space or an odd character; escape it as %XX")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url does not begin with http:// or https:// and a host")
    if key is not None and not re.fullmatch(r"[ -~]{1,%d}" % KEY_CHARACTERS_MAX, key):
        raise ValueError(
            f"idempotency_key is not 1 to {KEY_CHARACTERS_MAX} printable characters")
    if request_id is not None and not re.fullmatch(
            r"[!-~]{1,%d}" % REQUEST_ID_CHARACTERS_MAX, request_id):
        raise ValueError(f"request_id is not 1 to {REQUEST_ID_CHARACTERS_MAX} visible characters")


def _check_header(name: str, value: str) -> None:
    if not re.fullmatch(r"[0-9A-Za-z!#$%&'*+.^_`|~-]+", name):
        raise ValueError(f"header name {name!r} is not one")
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise ValueError(f"header {name!r} has a control character in its value")
    if name.lower() in RESERVED:
        raise ValueError(f"header {name!r} is not the caller's to set; a key and a request id are "
            "arguments of their own")


def _spelled(key: str) -> str:
    """Bare if that is unambiguous, else as a string of RFC 9651: both name the same key."""
    if not re.search(r'[ "\\,;]', key):
        return key
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _uuid7() -> str:
    """RFC 9562: sorted by time, so that attempts are in order in a log."""
    bits = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=bits))


# --- The wire -------------------------------------------------------------------------------------


@dataclass
class _Answer:
    """The result of one attempt."""

    end: str
    status: int = 0
    headers: List[Tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    is_body_lost: bool = False
    why: str = ""

    def facts(self, is_read: bool) -> Facts:
        return Facts(end=self.end, is_read=is_read, status=self.status,
            is_replayed=_find(self.headers, "Idempotent-Replayed").lower() == "true",
            decision=_find(self.headers, "Once-Decision"), document=self._document())

    def _document(self) -> Any:
        """A refusal may say in its body what it is."""
        if self.status < 400 or "json" not in _find(self.headers, "Content-Type") \
                or len(self.body) > DOCUMENT_BYTES_MAX:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class _Wire:
    """One attempt at a time for each connection; idle ones are kept."""

    def __init__(self, connect_timeout: float, body_bytes_max: int, idle_max: int,
            ssl_context: Optional[ssl.SSLContext]) -> None:
        self.connect_timeout, self.body_bytes_max = connect_timeout, body_bytes_max
        self.idle_max, self.ssl_context = idle_max, ssl_context
        self.lock = threading.Lock()
        self.idle: List[Tuple[Tuple[str, str], http.client.HTTPConnection]] = []

    def close(self) -> None:
        with self.lock:
            idle, self.idle = self.idle, []
        for _, connection in idle:
            connection.close()

    def attempt(self, request: _Request, fields: Mapping[str, str], timeout: float) -> _Answer:
        ends = time.monotonic() + timeout
        place = (request.url.scheme, request.url.netloc)
        connection = self._take(place)
        try:
            if connection is None:
                connection = self._connect(request.url, min(timeout, self.connect_timeout))
        except ssl.SSLCertVerificationError as error:
            return _Answer("hopeless", why=str(error))
        except OSError as error:
            return _Answer("not_sent", why=str(error) or type(error).__name__)
        try:  # from here on bytes leave
            answer, is_kept = self._exchange(connection, request, fields, ends)
        except (http.client.LineTooLong, _TooMany) as error:
            connection.close()
            return _Answer("unreadable", why=f"the headers of the answer are too many: {error}")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return _Answer("lost", why=str(error) or type(error).__name__)
        if is_kept:
            self._give(place, connection)
        else:
            connection.close()
        return answer

    def _connect(self, url: SplitResult, timeout: float) -> http.client.HTTPConnection:
        host = url.hostname or ""
        connection = http.client.HTTPConnection(host, url.port, timeout=timeout) \
            if url.scheme == "http" else http.client.HTTPSConnection(host, url.port,
                timeout=timeout, context=self.ssl_context)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _exchange(self, connection: http.client.HTTPConnection, request: _Request,
            fields: Mapping[str, str], ends: float) -> Tuple[_Answer, bool]:
        sock = connection.sock
        _limit(sock, ends)
        connection.request(request.method, request.target, request.body, dict(fields))
        try:
            response = connection.getresponse()
        except http.client.HTTPException as error:
            if "more than" in str(error):
                raise _TooMany(str(error)) from error
            raise
        answer = _Answer("answered", response.status, response.getheaders())
        pieces, size = [], 0
        while not response.isclosed():  # it closes itself after the last byte
            _limit(sock, ends)
            piece = response.read(PIECE_BYTES)
            size += len(piece)
            if size > self.body_bytes_max:
                answer.is_body_lost = True
                return answer, False
            pieces.append(piece)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        answer.body = b"".join(pieces)
        return answer, not response.will_close

    def _take(self, place: Tuple[str, str]) -> Optional[http.client.HTTPConnection]:
        """A kept connection on which nothing has arrived since, not even its end."""
        while True:
            with self.lock:
                at = next((i for i, each in enumerate(self.idle) if each[0] == place), None)
                if at is None:
                    return None
                _, connection = self.idle.pop(at)
            if not select.select([connection.sock], [], [], 0)[0]:
                return connection
            connection.close()

    def _give(self, place: Tuple[str, str], connection: http.client.HTTPConnection) -> None:
        with self.lock:
            if len(self.idle) < self.idle_max:
                self.idle.append((place, connection))
                return
        connection.close()


class _TooMany(Exception):
    """More header fields than are accepted."""


def _limit(sock: socket.socket, ends: float) -> None:
    left = ends - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    sock.settimeout(left)

"""Fences HTTP handlers: what `once.wsgi` and `once.asgi` share.

A request with a key is begun before the handler runs and sealed before its answer leaves. Answers
are those of the gateway's profile: under `ietf` a conflict is 422, an operation that runs is 409
with Retry-After, an unknown one is 409, a replay is the first answer with
`Idempotent-Replayed: true`. If Once cannot be reached nothing runs: 503.
"""
import base64
import hashlib
import json
import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from .canon import canonical, loads
from .client import _find, _uuid7
from .errors import CallError, Conflict, InProgress, OnceError, OutcomeUnknown, Problem
from .fences import Fences, Grant, Replay, seconds
from .profiles import FORMS, PROFILES, Refusal, key_of

__all__ = ["Answer", "Handlers", "Request", "key_of"]

RELEASED = (408, 425, 429, 503)  # these say that nothing was done
UNKEPT = ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
    "idempotency-key", "request-id", "idempotent-replayed", "original-request-id",
    "upstream-request-id", "set-cookie", "set-cookie2", "last-modified", "content-length", "date",
    "age", "server-timing")
UNKEPT_PREFIXES = ("proxy-", "once-", "ratelimit", "x-ratelimit", "x-rate-limit")
Fields = List[Tuple[str, str]]


@dataclass
class Request:
    """A request, read whole."""

    method: str
    path: str  # as canonical_path has it
    query: str
    headers: Fields
    body: bytes
    id: str = ""  # its Request-Id, or a new one

    @property
    def key(self) -> str:
        """The field Idempotency-Key, as it is echoed."""
        return _find(self.headers, "Idempotency-Key")

    def __post_init__(self) -> None:
        given = _find(self.headers, "Request-Id")
        self.id = given if re.fullmatch(r"[!-~]{1,200}", given) else _uuid7()


@dataclass
class Answer:
    """An answer, whole."""

    status: int
    headers: Fields = field(default_factory=list)
    body: bytes = b""


class Handlers:
    """How handlers are fenced."""

    def __init__(self, fences: Optional[Fences] = None, *,
            profile: str = "ietf", methods: Optional[Tuple[str, ...]] = None, wait: str = "10s",
            lease: str = "60s", ttl: Optional[str] = None, on_unknown: Optional[str] = None,
            principal: Optional[Callable[[Request], Optional[str]]] = None,
            on_status: Optional[Mapping[int, str]] = None,
            body_bytes_max: int = 10 << 20, answer_bytes_max: int = 10 << 20) -> None:
        """profile: one of the gateway's: ietf, guardia, adr007, ops, stripe. methods: those of the
        profile. lease: renewed while the handler runs. principal: whose the request is; by default
        a digest of its Authorization or API key. on_status: {500: "release"} says that the handler
        rolls back before it answers 500; the values are seal, release and unknown. body_bytes_max:
        of a request. answer_bytes_max: of an answer that is held back and kept; a larger one is
        sealed without its body, and duplicates get 410."""
        if profile not in PROFILES:
            raise ValueError(f"there is no profile {profile!r}")
        self.profile = PROFILES[profile]
        if ttl is None and self.profile.ttl_ms is not None:
            ttl = f"{self.profile.ttl_ms}ms"
        if ttl is not None and not self.profile.allows(seconds(ttl) * 1000):
            raise ValueError(f"a ttl of {ttl} is not within what the profile {profile} demands")
        self.fences, self.lease = fences or Fences(), lease
        self.methods, self.body_bytes_max = methods or self.profile.methods, body_bytes_max
        self.answer_bytes_max = answer_bytes_max
        self.options = {"wait": wait, "lease": lease, "ttl": ttl, "on_unknown": on_unknown}
        self.principal, self.on_status = principal or principal_of, dict(on_status or {})

    def passes(self, method: str, has_key: bool) -> bool:
        """The request is not fenced."""
        return method not in self.methods or not has_key and self.profile.missing == "pass"

    def begin(self, request: Request) -> Union[Grant, Answer]:
        """A grant, or the answer that the request gets instead of the handler's. A request without
        a key may get one: `request.key`."""
        fields = [value for name, value in request.headers if name.lower() == "idempotency-key"]
        if not fields and self.profile.missing == "generate":
            fields = [str(uuid.uuid4())]
            request.headers.append(("Idempotency-Key", fields[0]))
        if not fields:
            return self.refuse(request, "idempotency_key_missing")
        key = self.profile.key_of(fields)
        if key is None:
            return self.refuse(request, "idempotency_key_invalid")
        try:
            begun = self.fences._begin(f"{request.method} {request.path}", key, is_patient=False,
                fingerprint=fingerprint(request), principal=self.principal(request),
                trace={"request_id": request.id}, **self._options_for(request))
        except Problem as problem:
            return self._refused(request, problem)
        except CallError:
            return self.refuse(request, "unavailable")
        return begun if isinstance(begun, Grant) else self._replay(request, begun)

    def _options_for(self, request: Request) -> Dict[str, Any]:
        """Prefer: wait=0 (RFC 7240) does not wait for a first request that still runs."""
        is_hasty = re.search(r"(^|[,; ])wait=0+($|[,; ])", _find(request.headers, "Prefer"))
        return {**self.options, "wait": "0s"} if is_hasty else self.options

    def end(self, grant: Grant, request: Request, answer: Answer) -> Answer:
        """Record the handler's answer. What this returns may be sent."""
        try:
            effect = self._record(grant, answer.status, outcome_of(answer, request.id))
        except OnceError:
            return self.refuse(request, "outcome_not_sealed", grant.operation_id)
        return Answer(answer.status, self._said(grant, request, answer, effect), answer.body)

    def head(self, grant: Grant, request: Request, answer: Answer) -> Answer:
        """The head of an answer that is too large to be held back, before it is recorded."""
        return Answer(answer.status, self._said(grant, request, answer, None))

    def end_through(self, grant: Grant, status: int) -> None:
        """Record such an answer, without its body. Its last byte is sent after that; if this
        raises, it must not be sent at all, so that the answer does not look complete."""
        self._record(grant, status, None)

    def _said(self, grant: Grant, request: Request, answer: Answer,
            effect: Optional[str]) -> Fields:
        mine = self._mine(request, grant.operation_id, "first_seen", effect)
        said = {name.lower() for name, _ in mine}
        return [each for each in answer.headers if each[0].lower() not in said] + mine

    def _record(self, grant: Grant, status: int,
            outcome: Optional[Dict[str, Any]]) -> Optional[str]:
        """The effect that is certain; None: it was sealed. Without an outcome the body is lost."""
        end = end_of(status, self.on_status, self.profile.is_sealed_5xx)
        if end == "release":
            grant.release(f"the handler answered {status}")
            return "no"
        if end == "unknown":
            grant.unknown(f"the handler answered {status}")
            return "unknown"
        if outcome is not None:
            try:
                grant.seal(outcome, status=end)
                return None
            except Problem as problem:
                if problem.status != 413:
                    raise
        grant.seal({"http": {"status": status, "is_body_lost": True}}, status=end)
        return None

    def crashed(self, grant: Grant, error: BaseException) -> None:
        """The handler raised: nobody knows what it did."""
        try:
            grant.unknown(f"the handler raised {type(error).__name__}")
        except OnceError:
            pass  # it becomes unknown when its lease ends

    # --- Answers of our own ---

    def refuse(self, request: Request, code: str, operation_id: Optional[str] = None,
            retry_after: Optional[float] = None) -> Answer:
        refusal = Refusal(self.profile, code, request.id, operation_id, retry_after)
        headers = self._mine(request, operation_id, refusal.decision, refusal.effect)
        return Answer(refusal.status, headers + refusal.fields(),
            json.dumps(refusal.document()).encode())

    def _refused(self, request: Request, problem: Problem) -> Answer:
        codes = {Conflict: "idempotency_conflict", InProgress: "in_progress",
            OutcomeUnknown: "outcome_unknown"}
        code = codes.get(type(problem))
        if code is None:
            code = problem.code if problem.code in FORMS else "unavailable"
        return self.refuse(request, code, problem.operation_id, problem.retry_after)

    def _replay(self, request: Request, replay: Replay) -> Answer:
        kept = (replay.outcome or {}).get("http") if isinstance(replay.outcome, dict) else None
        if kept is None:  # settled by a person, with an outcome of another form
            body = b"" if replay.outcome is None else json.dumps(replay.outcome).encode()
            kept = {"status": 200 if replay.status == "executed" else 422,
                "headers": [["Content-Type", "application/json"]], "body": body.decode()}
        if kept.get("is_body_lost"):
            return self.refuse(request, "outcome_not_retained", replay.operation_id)
        body = base64.b64decode(kept["body_base64"]) if "body_base64" in kept \
            else kept.get("body", "").encode()
        headers = [(name, value) for name, value in kept.get("headers", [])]
        headers += self._mine(request, replay.operation_id, "duplicate_replayed", None)
        headers += [("Idempotent-Replayed", "true"), ("Last-Modified", _http_date(replay))]
        if kept.get("request_id"):
            headers.append(("Original-Request-Id", kept["request_id"]))
        return Answer(kept["status"], headers, body)

    def _mine(self, request: Request, operation_id: Optional[str], decision: Optional[str],
            effect: Optional[str]) -> Fields:
        """The fields that say what Once did."""
        given = (("Idempotency-Key", request.key), ("Request-Id", request.id),
            ("Once-Decision", decision), ("Once-Operation-Id", operation_id),
            ("Once-Effect", effect))
        return [(name, value) for name, value in given if value]


def _http_date(replay: Replay) -> str:
    sealed = datetime.strptime(replay.sealed_at[:19], "%Y-%m-%dT%H:%M:%S")
    return format_datetime(sealed.replace(tzinfo=timezone.utc), usegmt=True)


# --- Pure parts: the cases are in tests/vectors/sdk/handlers.json ---------------------------------


def canonical_path(raw: bytes) -> str:
    """Of the path as it was sent: one spelling for each path."""
    def spelled(match: "re.Match[bytes]") -> bytes:
        byte = bytes([int(match.group(1), 16)]) if match.group(1) else match.group()
        is_plain = b"!" <= byte <= b"~" and byte != b"%" and not (match.group(1) and byte == b"/")
        return byte if is_plain else b"%%%02X" % byte[0]

    return re.sub(rb"%([0-9A-Fa-f]{2})|.", spelled, raw or b"/", flags=re.S).decode("ascii")


def fingerprint(request: Request) -> str:
    """SHA-256 of what was asked."""
    content_type = _find(request.headers, "Content-Type").strip()
    asked: Dict[str, Any] = {"method": request.method, "path": request.path,
        "query": request.query}
    essence = content_type.split(";")[0].strip().lower()
    if essence == "application/json" or essence.endswith("+json"):
        asked["content_type"] = essence
        try:
            asked["json"] = loads(request.body)
            return hashlib.sha256(canonical(asked)).hexdigest()
        except ValueError:
            del asked["content_type"]
            asked.pop("json", None)  # invalid or lossy: the bytes count
    asked["content_type"] = content_type
    asked["sha256"] = hashlib.sha256(request.body).hexdigest()
    return hashlib.sha256(canonical(asked)).hexdigest()


def end_of(status: int, on_status: Mapping[int, str], is_sealed_5xx: bool = False) -> str:
    """executed and failed are sealed; release: nothing was done; unknown: it does not say."""
    end = on_status.get(status)
    if end is None:
        is_unknown = status >= 500 and not is_sealed_5xx
        end = "release" if status in RELEASED else "unknown" if is_unknown else "seal"
    if end == "seal":
        return "executed" if status < 400 else "failed"
    return end


def outcome_of(answer: Answer, request_id: str) -> Dict[str, Any]:
    """What is sealed of an answer."""
    headers = [[name, value] for name, value in answer.headers if name.lower() not in UNKEPT
        and not name.lower().startswith(UNKEPT_PREFIXES)]
    kept: Dict[str, Any] = {"status": answer.status, "headers": headers}
    try:
        kept["body"] = answer.body.decode("utf-8")
    except UnicodeDecodeError:
        kept["body_base64"] = base64.b64encode(answer.body).decode()
    return {"http": {**kept, "request_id": request_id}}


def principal_of(request: Request) -> Optional[str]:
    """SHA-256 of Authorization, else of an API key; None: everybody is one principal."""
    for name in ("Authorization", "X-Api-Key", "Api-Key"):
        value = _find(request.headers, name)
        if value:
            return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
    return None

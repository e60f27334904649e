"""The gateway's profiles (docs/gateway.md), as far as an application's own server can have them:
which requests need a key, what a key looks like, how refusals are written.

The cases are in tests/vectors/sdk/profiles.json.
"""
import http
import math
import re
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

__all__ = ["PROFILES", "Profile", "Refusal"]

KEY_CHARACTERS_MAX = 255
WRITES = ("POST", "PUT", "PATCH", "DELETE")
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HOUR_MS = 3600000


@dataclass(frozen=True)
class Profile:
    name: str
    conflict_status: int
    methods: Tuple[str, ...] = WRITES
    missing: str = "refuse"  # a request without a key: refuse, generate, pass
    is_uuid: bool = False  # keys are UUIDs
    is_loose: bool = False  # any printable text is a key
    is_sealed_5xx: bool = False  # 5xx are sealed; 503 is released all the same
    ttl_ms: Optional[int] = None  # how long keys are kept; None: as long as Once keeps them
    ttl_min_ms: Optional[int] = None
    ttl_max_ms: Optional[int] = None

    def allows(self, ttl_ms: float) -> bool:
        return self.ttl_min_ms is None or self.ttl_max_ms is None \
            or self.ttl_min_ms <= ttl_ms <= self.ttl_max_ms

    def key_of(self, fields: List[str]) -> Optional[str]:
        """The key that an Idempotency-Key field names. None: it is not well formed."""
        key = key_of(fields)
        if key is None and self.is_loose and len(fields) == 1:
            text = fields[0].strip(" \t")
            key = text if re.fullmatch(r"[ -~]{1,%d}" % KEY_CHARACTERS_MAX, text) else None
        return None if key is None or self.is_uuid and not UUID.fullmatch(key) else key


PROFILES = {profile.name: profile for profile in (
    Profile("ietf", 422),
    Profile("guardia", 409, ("POST", "PUT", "PATCH"), is_uuid=True, ttl_ms=24 * HOUR_MS,
        ttl_min_ms=2 * HOUR_MS, ttl_max_ms=24 * HOUR_MS),
    Profile("adr007", 409, missing="generate"),
    Profile("ops", 409, ttl_ms=48 * HOUR_MS, ttl_min_ms=24 * HOUR_MS, ttl_max_ms=72 * HOUR_MS),
    Profile("stripe", 400, ("POST",), missing="pass", is_loose=True, is_sealed_5xx=True))}


def key_of(fields: List[str]) -> Optional[str]:
    """The key that an Idempotency-Key field names: an RFC 9651 string, or bare. None: invalid."""
    if len(fields) != 1:
        return None
    text = fields[0].strip(" \t")
    if text.startswith('"'):
        if not re.fullmatch(r'"(?:[ !#-\[\]-~]|\\["\\])*"', text):
            return None
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    elif not re.fullmatch(r"[!#-+\--\[\]-~]*", text):
        return None
    return text if 0 < len(text) <= KEY_CHARACTERS_MAX else None


# --- Refusals -------------------------------------------------------------------------------------


class _Form(NamedTuple):
    """One kind of refusal: what all profiles share, and the words of those with their own."""

    status: int
    effect: str
    retry: str
    kind: str  # the type of the error member
    guardia_code: str
    guardia_reason: str
    text: str


FORMS = {
    "idempotency_key_missing": _Form(400, "no", "no", "invalid_request_error",
        "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_REQUIRED",
        "the Idempotency-Key field is missing; nothing was done"),
    "idempotency_key_invalid": _Form(400, "no", "no", "invalid_request_error",
        "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID",
        "the Idempotency-Key field is not well formed; nothing was done"),
    "body_too_large": _Form(413, "no", "no", "invalid_request_error",
        "ERR413_CONTENT_TOO_LARGE", "BODY_TOO_LARGE",
        "the body is too long to be fenced; nothing was done"),
    "idempotency_conflict": _Form(422, "no", "no", "idempotency_error",
        "ERR409_CONFLICT", "CONFLICTING_IDEMPOTENT_REQUEST",
        "the idempotency key was used with a different request; nothing was done"),
    "in_progress": _Form(409, "unknown", "after", "invalid_request_error",
        "ERR409_CONFLICT", "IDEMPOTENT_REQUEST_IN_PROGRESS",
        "the first request with this idempotency key is still running; ask again with the same "
        "key"),
    "outcome_unknown": _Form(409, "unknown", "no", "api_error",
        "ERR409_CONFLICT", "OUTCOME_UNKNOWN",
        "nobody knows whether the effect happened; the operation is held until it is settled"),
    "outcome_not_retained": _Form(410, "yes", "no", "api_error",
        "ERR410_GONE", "OUTCOME_NOT_RETAINED",
        "it was executed, and its answer was too large to be kept"),
    "too_many_duplicates": _Form(429, "no", "after", "invalid_request_error",
        "ERR429_TOO_MANY_REQUESTS", "TOO_MANY_DUPLICATES",
        "duplicates of this key come faster than limits.duplicate_rate"),
    "unavailable": _Form(503, "no", "safe", "api_error",
        "ERR503_SERVICE_UNAVAILABLE", "STORE_UNAVAILABLE",
        "Once does not take anything at the moment; nothing was done"),
    "outcome_not_sealed": _Form(503, "unknown", "after", "api_error",
        "ERR503_SERVICE_UNAVAILABLE", "OUTCOME_NOT_SEALED",
        "the handler answered, and Once could not record its answer"),
}
DECISIONS = {"idempotency_conflict": "conflict_rejected", "in_progress": "in_progress",
    "outcome_unknown": "held_unknown"}
ADR007_ERRORS = {"idempotency_conflict": "idempotency_mismatch",
    "in_progress": "idempotency_in_progress"}
SHOULD_RETRY = {"outcome_unknown": "false", "in_progress": "true"}  # Stripe's libraries obey it


class Refusal:
    """One refusal, in the form of a profile."""

    def __init__(self, profile: Profile, code: str, request_id: str,
            operation_id: Optional[str] = None, retry_after: Optional[float] = None) -> None:
        self.profile, self.code, self.form = profile, code, FORMS[code]
        self.decision, self.effect = DECISIONS.get(code), self.form.effect
        self.status = profile.conflict_status if code == "idempotency_conflict" \
            else self.form.status
        self.retry_after_ms = math.ceil((retry_after or 0) * 1000)
        beside = {"effect": self.effect, "retry": self.form.retry, "request_id": request_id,
            "operation_id": operation_id, "retry_after_ms": self.retry_after_ms or None}
        self._beside = {name: value for name, value in beside.items() if value is not None}

    def fields(self) -> List[Tuple[str, str]]:
        """Those of its form."""
        is_problem = self.profile.name in ("ietf", "ops")
        fields = [("Content-Type", "application/problem+json" if is_problem
            else "application/json")]
        if self.profile.name == "stripe" and self.code in SHOULD_RETRY:
            fields.append(("Stripe-Should-Retry", SHOULD_RETRY[self.code]))
        if self.retry_after_ms:
            fields.append(("Retry-After", str(-(-self.retry_after_ms // 1000))))
        return fields

    def document(self) -> Dict[str, Any]:
        form = self.form
        error = {"type": form.kind, "code": self.code, "message": form.text}
        if self.profile.name == "guardia":
            return {"errors": [{"code": form.guardia_code, "reason": form.guardia_reason,
                "message": form.text, **self._beside}], "error": error}
        if self.profile.name == "adr007":
            return {"error": ADR007_ERRORS.get(self.code, self.code), "message": form.text,
                **self._beside}
        if self.profile.name == "stripe":
            code = "idempotency_key_in_use" if self.code == "in_progress" else self.code
            return {"error": {**error, "code": code, **self._beside}}
        document = {"type": f"/docs/problems.md#{self.code}",
            "title": http.HTTPStatus(self.status).phrase, "status": self.status,
            "detail": form.text, "code": self.code, **self._beside, "error": error}
        if self.profile.name == "ops" and self.code == "idempotency_conflict":
            document["diff"] = None  # only a fingerprint of the first request is kept
        return document

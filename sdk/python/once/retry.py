"""What one attempt means for the whole operation, and how long to pause before the next.

Pure. Three answers exist (yes, no, unknown), and unknown is never folded into the others: an
attempt that was sent and not answered may have happened, and only an answer that speaks for the
operation itself takes that back. The cases are in tests/vectors/sdk.
"""
import email.utils
import re
from dataclasses import dataclass
from datetime import timezone
from typing import Any, Dict, Optional

READS = ("GET", "HEAD", "OPTIONS", "TRACE")
AFTER_SECONDS_MAX = 365 * 86400  # longer values of Retry-After are cut to this
DATE_CHARACTERS_MAX = 63  # the longest of the three forms has 33
DOUBLED_MAX = 40  # by then every ceiling is at its maximum


@dataclass(frozen=True)
class Facts:
    """How one attempt ended."""

    end: str  # answered, not_sent, hopeless (and no better next time), lost, unreadable
    is_read: bool = False
    status: int = 0  # 0: no answer
    is_replayed: bool = False  # Idempotent-Replayed: true
    decision: str = ""  # Once-Decision
    document: Any = None  # of a refusal, if it is JSON


@dataclass(frozen=True)
class Verdict:
    retry: bool  # a further attempt is safe and may end differently
    settles: bool  # it speaks for the operation, whatever came of earlier attempts
    effect: str  # of this attempt alone: yes, no, unknown


def judge(facts: Facts) -> Verdict:
    """What an attempt to call an API means."""
    if facts.end == "answered":
        return _judge_answer(facts)
    if facts.end in ("not_sent", "hopeless") or facts.is_read:
        return Verdict(facts.end in ("not_sent", "lost"), False, "no")
    return Verdict(facts.end == "lost", False, "unknown")


def judge_once(facts: Facts) -> Verdict:
    """What a request to Once itself means: repeating one is always safe, and its answers about an
    operation are answers."""
    if facts.end != "answered":
        return judge(facts)
    return Verdict(facts.status in (408, 429) or facts.status >= 500, True, "no")


def _judge_answer(facts: Facts) -> Verdict:
    document = _Document(facts.document)
    is_open = document.is_in_progress(facts) or document.is_held(facts)
    is_replayed = facts.is_replayed or facts.decision == "duplicate_replayed"
    settles = is_replayed or facts.decision == "first_seen"
    effect = _effect_of(facts, document, is_open)
    if facts.decision == "conflict_rejected":
        return Verdict(False, settles, effect)
    if is_open:
        return Verdict(True, False, effect)  # it may be settled by the time of the retry
    is_final = is_replayed or (document.retry == "no" and document.effect in ("yes", "no"))
    may_pass = facts.status >= 500 or facts.status in (408, 429)
    if may_pass and not is_replayed:
        settles = False  # "not now" is not an outcome
    return Verdict(may_pass and not is_final, settles, effect)


def _effect_of(facts: Facts, document: "_Document", is_open: bool) -> str:
    if facts.is_read:
        return "no"
    if 200 <= facts.status < 300:
        return "yes"
    if is_open:
        return "unknown"
    if document.effect:
        return document.effect
    if facts.status == 303:
        return "yes"  # RFC 9110 section 15.4.4: done, and the result is elsewhere
    is_refusal = 400 <= facts.status < 500 and facts.status != 408
    return "no" if is_refusal or facts.status in (307, 308) else "unknown"


class _Document:
    """What the body of a refusal says, in any profile of the gateway."""

    def __init__(self, document: Any) -> None:
        members: Dict[str, Any] = document if isinstance(document, dict) else {}
        self.code = _text(members.get("code"))
        self.error = _text(members.get("error"))
        errors = members.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else None
        self.reason = _text(first.get("reason")) if isinstance(first, dict) else ""
        self.retry = _text(members.get("retry")) if self.code else ""
        effect = _text(members.get("effect")) if self.code else ""
        self.effect = effect if effect in ("yes", "no", "unknown") else ""

    def is_in_progress(self, facts: Facts) -> bool:
        return facts.status == 409 and (facts.decision == "in_progress"
            or self.code == "in_progress" or self.error == "idempotency_in_progress"
            or self.reason == "IDEMPOTENT_REQUEST_IN_PROGRESS")

    def is_held(self, facts: Facts) -> bool:
        return facts.status >= 400 and (
            facts.decision == "held_unknown" or self.code == "outcome_unknown")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def wait_ms(*, base_ms: int, max_ms: int, retry: int, random: int, after_ms: int,
        left_ms: int) -> int:
    """Milliseconds to pause, fewer than are left; -1 when the next attempt would come too late.

    Full jitter: between nothing and a ceiling that doubles. Retry-After is a lower bound.
    """
    spare = left_ms - after_ms
    if spare <= 0:
        return -1
    ceiling = min(base_ms << min(retry, DOUBLED_MAX), max_ms)
    jitter = random % (ceiling + 1)
    if jitter >= spare:
        jitter = spare // 2  # the other half is for the attempt
    return after_ms + jitter


def retry_after_ms(text: Optional[str], now_ms: int) -> int:
    """The milliseconds of a Retry-After (RFC 9110 section 10.2.3); 0 if there are none."""
    if not text or len(text) > DATE_CHARACTERS_MAX:
        return 0
    if re.fullmatch(r"[0-9]+", text):
        if int(text) >= 1 << 64:
            return 0
        return min(int(text), AFTER_SECONDS_MAX) * 1000
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return 0
    if date.tzinfo is None:  # the form of asctime has no zone, and is GMT
        date = date.replace(tzinfo=timezone.utc)
    ms = int(date.timestamp() * 1000) - now_ms
    return max(0, min(ms, AFTER_SECONDS_MAX * 1000))

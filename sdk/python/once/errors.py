"""What can go wrong, by what the caller should do about it."""
from typing import Any, Dict, Optional

__all__ = ["AlreadySealed", "Conflict", "Failed", "InProgress", "NoAnswer", "NotSealed",
    "NotStarted", "OnceError", "OutcomeUnknown", "Problem", "StaleFence", "Unavailable"]


class OnceError(Exception):
    """Any error of this package."""


class CallError(OnceError):
    """A call that ended without an answer."""

    def __init__(self, text: str, *, idempotency_key: str = "", request_id: str = "",
            attempts: int = 0) -> None:
        super().__init__(text)
        self.idempotency_key, self.request_id = idempotency_key, request_id
        self.attempts = attempts


class Unavailable(CallError):
    """No attempt reached the server, and nothing happened."""

    effect = "no"


class NoAnswer(CallError):
    """There is no answer, and it may have happened. The same key continues the operation."""

    effect = "unknown"


class Problem(OnceError):
    """Once refused. `code` is stable; `effect` says whether anything happened."""

    def __init__(self, status: int, document: Dict[str, Any],
            retry_after: Optional[float] = None) -> None:
        super().__init__(str(document.get("detail") or document.get("code") or status))
        self.status, self.document, self.retry_after = status, document, retry_after
        self.code = str(document.get("code", ""))
        self.effect = str(document.get("effect", "unknown"))
        self.operation_id: Optional[str] = document.get("operation_id")


class Conflict(Problem):
    """The key was used with a different payload. `document["diff"]` shows the difference."""


class InProgress(Problem):
    """Somebody else holds the grant. Ask again after `retry_after` seconds, with the same key."""


class OutcomeUnknown(Problem):
    """It may have happened, and nobody knows. Check, then settle it; do not repeat it."""


class StaleFence(Problem):
    """Somebody took over, or settled it: this changed nothing."""


class AlreadySealed(Problem):
    """It was settled differently before: this changed nothing."""


class NotSealed(OnceError):
    """The work was done, and Once could not record it. The operation becomes unknown."""

    def __init__(self, outcome: Any, operation_id: str) -> None:
        super().__init__(f"the outcome of {operation_id} could not be recorded")
        self.outcome, self.operation_id = outcome, operation_id


class NotStarted(Exception):
    """Raise it in fenced work: the effect certainly did not start. The key is free again."""


class Failed(Exception):
    """Raise it in fenced work that is known to have failed for good. Every duplicate raises it."""

    def __init__(self, outcome: Any = None) -> None:
        super().__init__(outcome)
        self.outcome = outcome

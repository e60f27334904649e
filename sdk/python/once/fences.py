"""Fences your own work: begin, do it, seal.

    fences = once.Fences("http://127.0.0.1:7411")
    done = fences.do("charge", "order-7", {"cents": 1200}, lambda: charge(1200))
    print(done.outcome, "replayed" if done.is_replayed else "first")

The function runs at most once for a key, through threads, processes and crashes. What it returns
(JSON) is the outcome of every duplicate. If it raises NotStarted the key is free again; if it
raises Failed, that is final; after any other exception nobody knows, and the operation is held as
unknown until somebody has checked. The lease is renewed while it runs.
"""
import functools
import inspect
import json
import os
import re
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Type, TypeVar, Union

from .client import Client, _Request
from .errors import (AlreadySealed, CallError, Conflict, Failed, InProgress, NotSealed, NotStarted,
    OnceError, OutcomeUnknown, Problem, StaleFence, Unavailable)
from .retry import Facts, Verdict, judge_once

__all__ = ["Done", "Fences", "Grant", "Guard", "Replay"]

PROBLEMS: Dict[str, Type[Problem]] = {"idempotency_conflict": Conflict,
    "outcome_unknown": OutcomeUnknown, "stale_fence": StaleFence, "already_sealed": AlreadySealed}
REASON_CHARACTERS_MAX = 200
LEASE = "30s"  # of work that is renewed while it runs, unless the caller says otherwise
RENEWALS = 3  # in each lease: two may fail
UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Grant:
    """The right to execute now. End it with seal, release or unknown."""

    operation_id: str
    fence: int
    attempt: int
    lease_expires_at: str
    _fences: "Fences" = field(repr=False)

    def seal(self, outcome: Any = None, *, status: str = "executed",
            effect_id: Optional[str] = None, ttl: Optional[str] = None) -> None:
        """Record the outcome; every duplicate then gets it. status: executed, failed, rejected."""
        self._end("seal", status=status, outcome=outcome, effect_id=effect_id, ttl=ttl)

    def release(self, reason: Optional[str] = None) -> None:
        """The effect certainly did not start: the key is free again."""
        self._end("release", reason=_short(reason))

    def unknown(self, reason: Optional[str] = None) -> None:
        """Nobody knows whether the effect happened: it is held until it is settled."""
        self._end("unknown", reason=_short(reason))

    def renew(self, lease: str) -> None:
        """Extend the lease, for work that takes longer."""
        self._end("renew", lease=lease)

    def held(self, lease: str) -> "Holding":
        """A context manager that renews the lease while the work inside runs."""
        return Holding(self, lease)

    def _end(self, verb: str, deadline: Optional[float] = None, **members: Any) -> None:
        self._fences._ask(f"/v1/fences/{self.operation_id}/{verb}",
            _given({"fence": self.fence, **members}), deadline=deadline)


class Holding:
    """Renews the lease of a grant, in its own thread. `is_lost`: somebody else has taken over,
    and nothing that this work reports will be recorded."""

    def __init__(self, grant: Grant, lease: str) -> None:
        self._grant, self._lease = grant, lease
        self._over, self._thread = threading.Event(), threading.Thread(
            target=self._renew, name="once-renew", daemon=True)
        self.is_lost = False

    def __enter__(self) -> "Holding":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _renew(self) -> None:
        every = seconds(self._lease) / RENEWALS
        while every > 0 and not self._over.wait(every):
            try:
                self._grant._end("renew", deadline=every, lease=self._lease)
            except (StaleFence, AlreadySealed):
                self.is_lost = not self._over.is_set()
                return
            except OnceError:
                pass  # the next one may get through


@dataclass(frozen=True)
class Replay:
    """It was done before, and this is its outcome."""

    operation_id: str
    status: str  # executed, failed, rejected, compensated
    outcome: Any
    effect_id: Optional[str]
    first_seen_at: str
    sealed_at: str


@dataclass(frozen=True)
class Done:
    """The outcome of fenced work that ran now or before."""

    outcome: Any
    is_replayed: bool
    operation_id: str


class Fences:
    """The fences of one Once server. Any number of threads may share it."""

    def __init__(self, url: Optional[str] = None, *, token: Optional[str] = None,
            client: Optional[Client] = None) -> None:
        """url: ONCE_URL, else http://127.0.0.1:7411. token: ONCE_TOKEN, else none."""
        self.url = (url or os.environ.get("ONCE_URL") or "http://127.0.0.1:7411").rstrip("/")
        token = token or os.environ.get("ONCE_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = client or Client()

    def begin(self, scope: str, key: Optional[str] = None, payload: Any = None, *,
            key_from: Optional[Mapping[str, Any]] = None, fingerprint: Optional[str] = None,
            principal: Optional[str] = None, ttl: Optional[str] = None,
            lease: Optional[str] = None, on_unknown: Optional[str] = None,
            wait: Optional[str] = None, source: Optional[Mapping[str, Any]] = None,
            trace: Optional[Mapping[str, Any]] = None) -> Union[Grant, Replay]:
        """Ask for the right to execute. Raises Conflict, InProgress or OutcomeUnknown.

        Durations are texts: "30s", "24h". If the answer to a begin is lost, its grant has no
        holder: the retry raises InProgress until the lease ends, and OutcomeUnknown then.
        """
        return self._begin(scope, key, payload, fingerprint=fingerprint, key_from=key_from,
            principal=principal, ttl=ttl, lease=lease, on_unknown=on_unknown, wait=wait,
            source=source, trace=trace)

    def _begin(self, scope: str, key: Optional[str], payload: Any = None, *,
            is_patient: bool = True, **members: Any) -> Union[Grant, Replay]:
        body = _given({"scope": scope, "key": key, **members})
        if members.get("fingerprint") is None:
            body["payload"] = payload
        status, begun = self._ask("/v1/fences", body, is_patient)
        decision = begun.get("decision")
        if decision == "first_seen":
            return Grant(begun["operation_id"], begun["fence"], begun["attempt"],
                begun["lease_expires_at"], self)
        if decision == "in_progress":
            raise InProgress(status, {"detail": "somebody else holds the grant", **begun},
                begun["retry_after_ms"] / 1000)
        if decision != "duplicate_replayed":
            raise Unavailable(f"{self.url} does not answer as Once does")
        return Replay(begun["operation_id"], begun["status"], begun.get("outcome"),
            begun.get("effect_id"), begun["first_seen_at"], begun["sealed_at"])

    def guard(self, scope: str, key: str, payload: Any = None, **options: Any) -> "Guard":
        """A context manager: do the work inside if `is_first`, and leave its `outcome`."""
        return Guard(self, scope, key, payload, options)

    def do(self, scope: str, key: str, payload: Any, function: Callable[[], Any],
            **options: Any) -> Done:
        """Run the function once for this key. The options are those of `begin`."""
        with self.guard(scope, key, payload, **options) as guard:
            if guard.is_first:
                guard.outcome = function()
        return Done(guard.outcome, not guard.is_first, guard.operation_id)

    def once(self, scope: str, *, key: Callable[..., str],
            **options: Any) -> Callable[[Function], Function]:
        """A decorator: each call runs once for its key, which `key` makes of the arguments. The
        arguments are the payload, so they must be JSON."""
        def decorate(function: Function) -> Function:
            if inspect.iscoroutinefunction(function):
                raise TypeError("once() is for plain functions; in a coroutine, await "
                    "asyncio.to_thread(fences.do, ...)")
            signature = inspect.signature(function)

            @functools.wraps(function)
            def fenced(*arguments: Any, **named: Any) -> Any:
                bound = signature.bind(*arguments, **named)
                bound.apply_defaults()
                return self.do(scope, key(*arguments, **named), dict(bound.arguments),
                    lambda: function(*arguments, **named), **options).outcome
            return fenced  # type: ignore[return-value]
        return decorate

    def resolve(self, operation_id: str, status: str, reason: str, *, outcome: Any = None,
            effect_id: Optional[str] = None) -> None:
        """Settle an unknown operation after a check. status: executed, failed, not_executed."""
        self._ask(f"/v1/operations/{operation_id}/resolve", _given({"status": status,
            "reason": reason, "outcome": outcome, "effect_id": effect_id}))

    def _ask(self, path: str, body: Mapping[str, Any], is_patient: bool = True,
            deadline: Optional[float] = None) -> Any:
        """(status, document) of a request to Once. Repeating one is always safe."""
        request = _Request("POST", self.url + path, body, self._headers)
        answer = self.client._send(request, judge_once if is_patient else _judge_briefly,
            deadline=deadline)
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise Unavailable(f"{self.url} answered {answer.status}, and not as Once does",
                attempts=answer.attempts)
        if answer.status < 300:
            return answer.status, document
        kind = PROBLEMS.get(str(document.get("code")), Problem)
        after = answer.header("Retry-After")
        raise kind(answer.status, document, float(after) if after.isdigit() else None)


class Guard:
    """Fenced work, as a context manager. `outcome` is what duplicates get. The lease is renewed."""

    def __init__(self, fences: Fences, scope: str, key: str, payload: Any,
            options: Mapping[str, Any]) -> None:
        options = {**options, "lease": options.get("lease") or LEASE}
        self._begin = functools.partial(fences.begin, scope, key, payload, **options)
        self._lease = str(options["lease"])
        self._grant: Optional[Grant] = None
        self._holding: Optional[Holding] = None
        self.outcome: Any = None
        self.operation_id = ""

    @property
    def is_first(self) -> bool:
        """You hold the grant: do the work."""
        return self._grant is not None

    @property
    def is_lost(self) -> bool:
        """Somebody else has taken over: stop, what you did will not be recorded."""
        return self._holding is not None and self._holding.is_lost

    def __enter__(self) -> "Guard":
        begun = self._begin()
        self.operation_id = begun.operation_id
        if isinstance(begun, Grant):
            self._grant = begun
            self._holding = begun.held(self._lease).__enter__()
        elif begun.status in ("failed", "rejected"):
            raise Failed(begun.outcome)
        else:
            self.outcome = begun.outcome
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
            trace: object) -> None:
        if self._grant is None or self._holding is None:
            return
        self._holding.__exit__()
        if error is None:
            self._seal(self._grant)
        elif isinstance(error, NotStarted):
            self._grant.release(str(error) or "it did not start")
        elif isinstance(error, Failed):
            self._record(self._grant, error.outcome, "failed")
        else:
            self._leave_unknown(self._grant, f"{type(error).__name__}: {error}")

    def _seal(self, grant: Grant) -> None:
        try:  # the first call and every duplicate get the same
            outcome = json.loads(json.dumps(self.outcome, allow_nan=False))
        except (TypeError, ValueError):
            self._leave_unknown(grant, "the outcome is not JSON")
            raise
        self._record(grant, outcome, "executed")
        self.outcome = outcome

    def _record(self, grant: Grant, outcome: Any, status: str) -> None:
        try:
            grant.seal(outcome, status=status)
        except OnceError as error:
            raise NotSealed(outcome, grant.operation_id) from error

    def _leave_unknown(self, grant: Grant, reason: str) -> None:
        try:
            grant.unknown(reason)
        except (CallError, Problem):
            pass  # it becomes unknown when its lease ends; the caller's own error matters more


def seconds(duration: str) -> float:
    """Of "30s", "1500ms", "24h"; 0.0 if it is not one, which Once refuses by name."""
    match = re.fullmatch(r"([0-9]{1,12})(ms|s|m|h|d)", duration)
    return int(match.group(1)) * UNIT_S[match.group(2)] if match else 0.0


def _judge_briefly(facts: Facts) -> Verdict:
    """For a caller whose own client waits: a flood of duplicates is an answer."""
    verdict = judge_once(facts)
    return Verdict(verdict.retry and facts.status != 429, verdict.settles, verdict.effect)


def _given(members: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _short(reason: Optional[str]) -> Optional[str]:
    if reason is None:
        return None
    printable = "".join(c if c.isprintable() else " " for c in reason)
    return printable[:REASON_CHARACTERS_MAX]

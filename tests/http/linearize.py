"""Is there an order in which one operation after another could have given these answers?

A history is what clients saw: for each call when it was made, when its answer came, and the answer.
It is linearizable when every call can be given a moment between the two at which it took effect at
once, so that the answers are those of the sequential model below. The search is Wing and Gong's
(1993) with Lowe's memory of states that led nowhere. Keys are independent of each other, so each
has a history of its own; only fences are shared by all (fences_grow).

A call whose answer nobody saw (the connection died) may have taken effect at any time after it was
made, or never. A refusal that says "effect: no" must not be in a history: it took no effect.

The model is the lists of src/core/decide.h, for windows that do not end. Leases do: what is found
after its lease is over is "unknown", and what is found before is not. The moment of a call is known
only to lie between call and answer, so both are allowed where it could be either.
"""
import math
from typing import NamedTuple, Optional

# How far the server's clock may seem off: milliseconds cut off, and a tick between two clocks.
EARLY_S, LATE_S = 0.02, 0.1
# A look may be shown a lease that is over as still alive until somebody has turned it to unknown.
LATE_LOOK_S = 5.0
STATES_MAX = 2_000_000  # past it the history is too hard to judge, which is not a pass
SEALED = ("executed", "failed", "rejected")


class Answer(NamedTuple):
    """What a call was told. None: not said. `outcome` is compared as it is."""

    decision: str
    operation_id: Optional[str] = None
    fence: Optional[int] = None
    attempt: Optional[int] = None
    status: Optional[str] = None
    outcome: Optional[str] = None


class Call(NamedTuple):
    """One call of one client. `answer` None: nobody saw it, and `returned` is then never."""

    kind: str  # begin, seal, release, unknown, get
    called: float
    returned: float = math.inf
    answer: Optional[Answer] = None
    client: int = 0
    fingerprint: str = ""  # begin
    lease_s: float = 30.0  # begin
    takeover: bool = False  # begin
    operation_id: Optional[str] = None  # all others; a get without one looks by its key
    fence: int = 0  # seal, release, unknown
    status: str = ""  # seal
    outcome: Optional[str] = None  # seal


class State(NamedTuple):
    """One key. What an unseen grant gave is None until some answer shows it."""

    status: str = "absent"
    operation_id: Optional[str] = None
    fence: Optional[int] = None
    floor: int = 0  # every later fence of this key is above
    attempt: int = 0
    fingerprint: str = ""
    outcome: Optional[str] = None
    over_from: float = math.inf  # the lease cannot be over before …
    over_by: float = math.inf  # … and cannot be alive after


class TooHard(Exception):
    """The search gave up; nothing is known about the history."""


# --- The sequential model -------------------------------------------------------------------------


def successors(state, call):
    """The states that the call can lead to with the answer it had; with any, when none was seen."""
    return [after for answer, after in MODEL[call.kind](state, call)
        if call.answer is None or call.answer.decision == answer]


def granted(state, call):
    """A new fence, above all before it, for the same operation when there is one."""
    seen = call.answer or Answer("first_seen")
    if seen.fence is not None and seen.fence <= state.floor:
        return
    if seen.attempt not in (None, state.attempt + 1):
        return
    known = state.operation_id
    if known and seen.operation_id and known != seen.operation_id:
        return
    yield "first_seen", State(status="in_progress", operation_id=known or seen.operation_id,
        fence=seen.fence, floor=seen.fence or state.floor, attempt=state.attempt + 1,
        fingerprint=call.fingerprint, over_from=call.called + call.lease_s,
        over_by=call.returned + call.lease_s)


def shown(state, answer):
    """The state, knowing what the answer says of it; nothing when it contradicts it."""
    if answer is None:
        yield state
        return
    if state.operation_id and answer.operation_id not in (None, state.operation_id):
        return
    if answer.attempt not in (None, state.attempt):
        return
    if answer.fence is not None:
        if state.fence is None and answer.fence <= state.floor:
            return
        if state.fence not in (None, answer.fence):
            return
        state = state._replace(fence=answer.fence, floor=answer.fence)
    yield state._replace(operation_id=state.operation_id or answer.operation_id)


def with_lease(state, call, late_s):
    """As it may stand at the moment of the call: with its lease alive, and with its lease over."""
    if state.status != "in_progress":
        yield state
        return
    if call.called <= state.over_by + late_s:
        yield state
    if call.returned >= state.over_from - EARLY_S:
        yield state._replace(status="unknown", over_from=math.inf, over_by=math.inf)


def says(answer, status, outcome):
    """Whether an answer's status and outcome are these, as far as it was seen."""
    return answer is None or (answer.status == status and answer.outcome == outcome)


def begin(state, call):
    if state.status == "absent":
        yield from granted(state, call)
    elif call.fingerprint != state.fingerprint:
        yield "conflict_rejected", state
    else:
        for at in with_lease(state, call, LATE_S):
            yield from begin_again(at, call)


def begin_again(state, call):
    if state.status == "released" or (state.status == "unknown" and call.takeover):
        yield from granted(state, call)
    elif state.status == "in_progress":
        yield from (("in_progress", at) for at in shown(state, call.answer))
    elif state.status == "unknown":
        yield from (("held_unknown", at) for at in shown(state, call.answer))
    elif says(call.answer, state.status, state.outcome):
        yield from (("duplicate_replayed", at) for at in shown(state, call.answer))


def holders(state, call):
    """A seal, release or unknown: first whether it is about this operation and this grant."""
    if state.status == "absent" or state.operation_id not in (None, call.operation_id):
        yield "not_found", state
        return
    if state.operation_id is None:
        yield "not_found", state
        state = state._replace(operation_id=call.operation_id)
    if state.fence != call.fence:
        yield "stale_fence", state
    if state.fence == call.fence or (state.fence is None and call.fence > state.floor):
        yield from by_holder(state._replace(fence=call.fence, floor=call.fence), call)


def by_holder(state, call):
    if state.status in SEALED:
        same = call.kind == "seal" and (call.status, call.outcome) == (state.status, state.outcome)
        yield ("sealed" if same else "already_sealed"), state
    elif state.status == "released":
        yield ("released" if call.kind == "release" else "stale_fence"), state
    else:
        over = state._replace(over_from=math.inf, over_by=math.inf)
        if call.kind == "seal":
            yield "sealed", over._replace(status=call.status, outcome=call.outcome)
        else:
            status = "released" if call.kind == "release" else "unknown"
            yield status, over._replace(status=status)


def get(state, call):
    if state.status == "absent" or (call.operation_id and state.operation_id and
            call.operation_id != state.operation_id):
        yield "not_found", state
        return
    for at in with_lease(state, call, LATE_LOOK_S):
        if says(call.answer, at.status, at.outcome):
            yield from (("found", known) for known in shown(at, call.answer))


MODEL = {"begin": begin, "seal": holders, "release": holders, "unknown": holders, "get": get}


# --- The search -----------------------------------------------------------------------------------


def next_calls(calls, done):
    """Those that may come next: made before any other that is left was answered."""
    first_answer, found = math.inf, []
    for place, call in enumerate(calls):
        if call.called > first_answer:
            break
        if not done >> place & 1:
            first_answer = min(first_answer, call.returned)
            found.append(place)
    return sorted(found, key=lambda place: calls[place].returned)


def moves(calls, done, state):
    """(done, state) after each call that may come next. One that changes nothing and was answered
    so may as well come at once; one that nobody saw and that changes nothing need not come."""
    found = []
    for place in next_calls(calls, done):
        for after in successors(state, calls[place]):
            if after != state:
                found.append((done | 1 << place, after))
            elif calls[place].answer is not None:
                return [(done | 1 << place, state)]
    return found


def check(history):
    """None when the history of one key is linearizable; otherwise a text that says why not."""
    calls = sorted(history, key=lambda call: call.called)
    answered = sum(1 << place for place, call in enumerate(calls) if call.answer is not None)
    seen, farthest = set(), (0, State())
    stack = [(0, State())]
    while stack:
        done, state = node = stack.pop()
        if done & answered == answered:
            return None
        if node in seen:
            continue
        seen.add(node)
        if len(seen) > STATES_MAX:
            raise TooHard(f"{len(calls)} calls")
        if bin(done).count("1") > bin(farthest[0]).count("1"):
            farthest = node
        stack.extend(reversed(moves(calls, done, state)))
    return explain(calls, *farthest)


def explain(calls, done, state):
    lines = [f"no order of these {len(calls)} calls explains their answers; with those marked +",
        f"it stands at {state}, and none of the others may come next:"]
    lines += [f"{'+' if done >> place & 1 else '-'} {call}" for place, call in enumerate(calls)]
    return "\n".join(lines)


def fences_grow(history):
    """None when no fence was granted twice, on any key, and each is above all that were answered
    before it was asked for; otherwise a text (P4)."""
    grants = [call for call in history if call.kind == "begin" and call.answer is not None and
        call.answer.decision == "first_seen"]
    fences = [call.answer.fence for call in grants]
    if len(set(fences)) != len(fences):
        return f"fences granted twice: {sorted(f for f in set(fences) if fences.count(f) > 1)}"
    highest, answered = 0, sorted(grants, key=lambda call: call.returned)
    for call in sorted(grants, key=lambda call: call.called):
        while answered and answered[0].returned < call.called:
            highest = max(highest, answered.pop(0).answer.fence)
        if call.answer.fence <= highest:
            return f"fence {call.answer.fence} was granted after {highest}"
    return None

"""The checker itself: what is right is accepted, what is wrong is refused. No server is asked."""
import math
import random

import pytest

from linearize import Answer, Call, check, fences_grow

A, B = "payload a", "payload b"
OUT, OTHER = '"paid"', '"refused"'


def begin(at, decision=None, fence=None, to=None, op="op1", attempt=None, status=None, outcome=None,
        **how):
    how.setdefault("fingerprint", A)
    if decision == "first_seen":
        attempt = attempt or 1
    return timed("begin", at, to, decision, Answer(decision or "", op, fence, attempt, status,
        outcome), **how)


def timed(kind, at, to, decision, answer, **how):
    """Answered a tenth later, unless told when; never, when no decision is given."""
    if decision is None:
        return Call(kind, at, **how)
    return Call(kind, at, to or at + 0.1, answer, **how)


def seal(at, decision=None, fence=1, to=None, op="op1", status="executed", outcome=OUT):
    return timed("seal", at, to, decision, Answer(decision or ""), operation_id=op, fence=fence,
        status=status, outcome=outcome)


def release(at, decision=None, fence=1, to=None, kind="release"):
    return timed(kind, at, to, decision, Answer(decision or ""), operation_id="op1", fence=fence)


def unknown(at, decision=None, fence=1, to=None):
    return release(at, decision, fence, to, kind="unknown")


def get(at, status, fence=None, to=None, outcome=None, attempt=None, op="op1"):
    if status is None:
        return timed("get", at, to, "not_found", Answer("not_found"), operation_id=op)
    return timed("get", at, to, "found", Answer("found", op, fence, attempt, status, outcome),
        operation_id=op)


def replay(at, to=None, outcome=OUT, status="executed", **how):
    return begin(at, "duplicate_replayed", to=to, outcome=outcome, status=status, **how)


GOOD = {
    "nothing happened": [],
    "begin, seal, replay": [begin(0, "first_seen", 1), seal(1, "sealed"), replay(2)],
    "a duplicate while it runs": [begin(0, "first_seen", 1), begin(1, "in_progress"),
        seal(2, "sealed"), replay(3)],
    "two at once, one granted": [begin(0, "first_seen", 1, to=5), begin(0, "in_progress", to=5)],
    "the grant comes second": [begin(0, "in_progress", to=9), begin(1, "first_seen", 1, to=8)],
    "a replay that overlaps the seal": [begin(0, "first_seen", 1), seal(1, "sealed", to=9),
        replay(2, to=3)],
    "in progress while the seal is under way": [begin(0, "first_seen", 1), seal(1, "sealed", to=9),
        begin(2, "in_progress", to=3)],
    "the same seal again": [begin(0, "first_seen", 1), seal(1, "sealed"), seal(2, "sealed")],
    "a seal that nobody saw happened": [begin(0, "first_seen", 1), seal(1), replay(5)],
    "a seal that nobody saw did not happen": [begin(0, "first_seen", 1), seal(1),
        begin(5, "in_progress")],
    "a seal that nobody saw happened late": [begin(0, "first_seen", 1), seal(1),
        begin(5, "in_progress"), replay(6)],
    "a grant that nobody saw": [begin(0), begin(5, "in_progress", op="op7"),
        get(6, "in_progress", 3, op="op7"), begin(9, "in_progress", op="op7")],
    "a grant that nobody saw did not happen": [begin(0), begin(5, "first_seen", 4)],
    "released and granted again": [begin(0, "first_seen", 1), release(1, "released"),
        begin(2, "first_seen", 2, attempt=2), seal(3, "sealed", 2), replay(4)],
    "released twice": [begin(0, "first_seen", 1), release(1, "released"), release(2, "released")],
    "the old fence is stale": [begin(0, "first_seen", 1), release(1, "released"),
        begin(2, "first_seen", 2, attempt=2), seal(3, "stale_fence", 1)],
    "another payload": [begin(0, "first_seen", 1), begin(1, "conflict_rejected", fingerprint=B),
        seal(2, "sealed"), begin(3, "conflict_rejected", fingerprint=B)],
    "unknown is held": [begin(0, "first_seen", 1), unknown(1, "unknown"), begin(2, "held_unknown")],
    "unknown and sealed by its holder after all": [begin(0, "first_seen", 1),
        unknown(1, "unknown"), seal(2, "sealed"), replay(3)],
    "unknown and taken over": [begin(0, "first_seen", 1), unknown(1, "unknown"),
        begin(2, "first_seen", 2, attempt=2, takeover=True), seal(3, "stale_fence", 1),
        seal(4, "sealed", 2)],
    "a lease that is over": [begin(0, "first_seen", 1, lease_s=1), begin(0.5, "in_progress"),
        begin(2, "held_unknown"), get(3, "unknown", 1), seal(4, "sealed"), replay(5)],
    "a lease that ends about now": [begin(0, "first_seen", 1, to=0.5, lease_s=1),
        begin(1.2, "in_progress"), begin(1.2, "held_unknown")],
    "sealed otherwise": [begin(0, "first_seen", 1), seal(1, "sealed"),
        seal(2, "already_sealed", outcome=OTHER), release(3, "already_sealed"), replay(4)],
    "two seals race": [begin(0, "first_seen", 1), seal(1, "sealed", to=9),
        seal(1, "already_sealed", to=9, outcome=OTHER), replay(10)],
    "looked at": [get(0, None), begin(1, "first_seen", 1), get(2, "in_progress", 1, attempt=1),
        seal(3, "sealed"), get(4, "executed", 1, outcome=OUT)],
    "somebody else's operation": [begin(0, "first_seen", 1), seal(1, "not_found", op="op9")],
}

BAD = {
    "two grants": [begin(0, "first_seen", 1), begin(1, "first_seen", 2, attempt=2)],
    "two grants at once": [begin(0, "first_seen", 1, to=9), begin(0, "first_seen", 2, to=9)],
    "a second grant after the seal": [begin(0, "first_seen", 1), seal(1, "sealed"),
        begin(2, "first_seen", 2, attempt=2)],
    "a second grant when the lease is over": [begin(0, "first_seen", 1, lease_s=1),
        begin(5, "first_seen", 2, attempt=2)],
    "a grant of what is unknown": [begin(0, "first_seen", 1), unknown(1, "unknown"),
        begin(2, "first_seen", 2, attempt=2)],
    "a replay before any seal": [begin(0, "first_seen", 1), replay(1), seal(2, "sealed")],
    "a replay of what was never begun": [replay(0)],
    "a replay of another outcome": [begin(0, "first_seen", 1), seal(1, "sealed"),
        replay(2, outcome=OTHER)],
    "a replay of another status": [begin(0, "first_seen", 1), seal(1, "sealed"),
        replay(2, status="failed")],
    "a lost seal": [begin(0, "first_seen", 1), seal(1, "sealed"), begin(2, "in_progress")],
    "a lost grant": [begin(0, "first_seen", 1), begin(1, "first_seen", 2, op="op2")],
    "a lost grant, looked at": [begin(0, "first_seen", 1), get(1, None)],
    "a seal that nobody saw, visible and then gone": [begin(0, "first_seen", 1), seal(1), replay(5),
        begin(6, "in_progress")],
    "a stale fence accepted": [begin(0, "first_seen", 1), release(1, "released"),
        begin(2, "first_seen", 2, attempt=2), seal(3, "sealed", 1)],
    "a fence that was never given": [begin(0, "first_seen", 1), seal(1, "sealed", 7)],
    "a stale release accepted": [begin(0, "first_seen", 1), unknown(1, "unknown"),
        begin(2, "first_seen", 2, attempt=2, takeover=True), release(3, "released", 1)],
    "its own fence called stale": [begin(0, "first_seen", 1), seal(1, "stale_fence")],
    "a fence given again": [begin(0, "first_seen", 1), release(1, "released"),
        begin(2, "first_seen", 1, attempt=2)],
    "a fence below an older one": [begin(0, "first_seen", 5), release(1, "released", 5),
        begin(2, "first_seen", 4, attempt=2)],
    "a get that goes back in time": [begin(0, "first_seen", 1), seal(1, "sealed", to=9),
        get(2, "executed", 1, to=3, outcome=OUT), get(4, "in_progress", 1, to=5)],
    "a get of the future": [begin(0, "first_seen", 1), get(1, "executed", 1, outcome=OUT),
        seal(2, "sealed")],
    "a get with another fence": [begin(0, "first_seen", 1), get(1, "in_progress", 2)],
    "a second seal that overwrites": [begin(0, "first_seen", 1), seal(1, "sealed"),
        seal(2, "sealed", outcome=OTHER)],
    "two different seals, both taken": [begin(0, "first_seen", 1), seal(1, "sealed", to=9),
        seal(1, "sealed", to=9, outcome=OTHER)],
    "a conflict that was let in": [begin(0, "first_seen", 1),
        begin(1, "in_progress", fingerprint=B)],
    "a conflict that was shown the outcome": [begin(0, "first_seen", 1), seal(1, "sealed"),
        replay(2, fingerprint=B)],
    "a conflict with the same payload": [begin(0, "first_seen", 1), begin(1, "conflict_rejected")],
    "unknown though the lease is alive": [begin(0, "first_seen", 1), begin(1, "held_unknown")],
    "in progress though the lease is over": [begin(0, "first_seen", 1, lease_s=1),
        begin(9, "in_progress")],
    "in progress again after unknown": [begin(0, "first_seen", 1, to=1, lease_s=1),
        begin(1, "held_unknown", to=1.5), begin(1.6, "in_progress", to=1.7)],
    "released and then sealed": [begin(0, "first_seen", 1), release(1, "released"),
        seal(2, "sealed")],
    "sealed and then released": [begin(0, "first_seen", 1), seal(1, "sealed"),
        release(2, "released")],
    "an attempt that was not counted": [begin(0, "first_seen", 1), release(1, "released"),
        begin(2, "first_seen", 2, attempt=1)],
    "another operation under the same key": [begin(0, "first_seen", 1),
        begin(1, "in_progress", op="op2")],
    "held though nothing was begun": [begin(0, "held_unknown")],
    "one grant that nobody saw cannot be two": [begin(0), begin(5, "in_progress", op="op7"),
        begin(6, "first_seen", 9, op="op7", attempt=2)],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_is_accepted(name):
    assert check(GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_refused(name):
    assert "no order" in check(BAD[name])


def test_fences_of_all_keys_grow():
    one, two = begin(0, "first_seen", 1), begin(1, "first_seen", 2)
    assert fences_grow([one, two]) is None
    assert fences_grow([begin(0, "first_seen", 2, to=9), begin(1, "first_seen", 1, to=8)]) is None
    assert "twice" in fences_grow([one, begin(1, "first_seen", 1)])
    assert "after" in fences_grow([begin(0, "first_seen", 2), begin(1, "first_seen", 1)])


class Plain:
    """The record again, one call after another, to make histories from: a second reading."""

    def __init__(self, source):
        self.source, self.status, self.fence, self.attempt = source, None, 0, 0
        self.fingerprint, self.sealed, self.now = None, None, 0.0
        self.history = []

    def note(self, kind, decision, answer=None, **how):
        self.now += 1
        if kind != "begin":
            how["operation_id"] = "op1"
        self.history.append(Call(kind, self.now, self.now + 0.5, answer or Answer(decision),
            lease_s=1e9, **how))

    def begin(self):
        fingerprint, takeover = self.source.choice([A, A, A, B]), self.source.random() < 0.3
        how = {"fingerprint": fingerprint, "takeover": takeover}
        if self.status is not None and fingerprint != self.fingerprint:
            self.note("begin", "conflict_rejected", **how)
        elif self.status in (None, "released") or (self.status == "unknown" and takeover):
            self.status, self.fingerprint = "in_progress", fingerprint
            self.fence, self.attempt = self.fence + self.source.randint(1, 3), self.attempt + 1
            self.note("begin", "", Answer("first_seen", "op1", self.fence, self.attempt), **how)
        elif self.sealed is not None:
            self.note("begin", "", Answer("duplicate_replayed", "op1", None, None, *self.sealed),
                **how)
        else:
            self.note("begin", "in_progress" if self.status == "in_progress" else "held_unknown",
                **how)

    def finish(self):
        kind = self.source.choice(["seal", "seal", "release", "unknown"])
        fence = self.source.choice([self.fence, self.fence, self.fence + 5, 1])
        ends = (self.source.choice(["executed", "failed"]), self.source.choice([OUT, OTHER]))
        how = {"fence": fence}
        if kind == "seal":
            how.update(status=ends[0], outcome=ends[1])
        self.note(kind, self.finished(kind, fence, ends), **how)

    def finished(self, kind, fence, ends):
        if self.status is None:
            return "not_found"
        if fence != self.fence:
            return "stale_fence"
        if self.sealed is not None:
            return "sealed" if kind == "seal" and ends == self.sealed else "already_sealed"
        if self.status == "released":
            return "released" if kind == "release" else "stale_fence"
        self.status = {"seal": ends[0], "release": "released", "unknown": "unknown"}[kind]
        self.sealed = ends if kind == "seal" else None
        return {"seal": "sealed"}.get(kind, self.status)

    def get(self):
        answer = Answer("not_found")
        if self.status is not None:
            answer = Answer("found", "op1", self.fence, self.attempt, self.status,
                self.sealed[1] if self.sealed else None)
        self.note("get", "", answer)

    def run(self, count):
        for _ in range(count):
            self.source.choice([self.begin, self.begin, self.finish, self.get])()
        return self.history


DECISIONS = {"begin": ["first_seen", "in_progress", "duplicate_replayed", "conflict_rejected",
    "held_unknown"], "get": ["found", "not_found"]}
HOLDERS = ["sealed", "released", "unknown", "stale_fence", "already_sealed", "not_found"]


def corrupted(call, source):
    """The same call with an answer that one call after another cannot have given it."""
    answer = call.answer
    others = [name for name in DECISIONS.get(call.kind, HOLDERS) if name != answer.decision]
    ways = [answer._replace(decision=source.choice(others))]
    if answer.attempt is not None:
        ways.append(answer._replace(attempt=answer.attempt + source.choice([-1, 1])))
    if answer.status is not None:
        ways.append(answer._replace(status=source.choice([status for status in
            ("in_progress", "unknown", "released", "executed", "failed")
            if status != answer.status])))
    if answer.outcome is not None:
        ways.append(answer._replace(outcome='"something else"'))
    if call.kind == "get" and answer.fence is not None:
        ways.append(answer._replace(fence=answer.fence + source.choice([-1, 1])))
    return call._replace(answer=source.choice(ways))


def overlapping(history, source):
    """Each call longer than its moment, so that neighbours overlap."""
    return [call._replace(called=call.called - 2 * source.random(),
        returned=call.returned + 2 * source.random()) for call in history]


@pytest.mark.parametrize("seed", range(300))
def test_one_wrong_answer_in_a_sequential_history_is_found(seed):
    source = random.Random(seed)
    history = Plain(source).run(source.randint(2, 40))
    assert check(history) is None
    place = source.randrange(len(history))
    history[place] = corrupted(history[place], source)
    assert check(history) is not None


@pytest.mark.parametrize("seed", range(100))
def test_what_overlaps_or_was_not_seen_is_accepted(seed):
    source = random.Random(seed)
    history = overlapping(Plain(source).run(60), source)
    assert check(history) is None
    unseen = {place for place, call in enumerate(history) if source.random() < 0.15}
    assert check([call._replace(answer=None, returned=math.inf) if place in unseen else call
        for place, call in enumerate(history)]) is None

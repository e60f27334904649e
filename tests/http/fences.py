"""The fence calls over HTTP, their answers in a form that tests compare, and many at once.

An answer is a linearize.Answer; a refusal that took no effect (429, 503) is None; a connection that
died, or a commit that nobody could be asked about, is once_server.Broken, and then nobody knows.
"""
import json
import select

from linearize import Answer
from once_server import Broken, request_bytes

# Duplicates of one key are not limited.
NO_LIMITS = "limits: {duplicate_rate: 0}\n"
ANSWER_S = 60  # far above what any answer takes

DECISIONS = {
    (201, None): "first_seen",
    (200, None): "duplicate_replayed",
    (202, None): "in_progress",
    (409, "idempotency_conflict"): "conflict_rejected",
    (409, "outcome_unknown"): "held_unknown",
}
HOLDERS = {"seal": "sealed", "release": "released", "unknown": "unknown"}


class Unexpected(AssertionError):
    """An answer that the call cannot have."""


def text(value):
    """JSON in one spelling, to compare."""
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def refused(status, document):
    """Whether it is a refusal without effect, as floods and a full disk get."""
    if status == 500 and document.get("code") == "commit_unknown":
        raise Broken("commit_unknown")
    if status not in (429, 503):
        return False
    if document.get("effect") != "no":
        raise Unexpected(f"{status} {document}")
    return True


def begin_body(key, payload, lease="30s", scope="test", **more):
    return {"scope": scope, "key": key, "payload": payload, "lease": lease, **more}


def begin_answer(status, document):
    if refused(status, document):
        return None
    decision = DECISIONS.get((status, document.get("code")))
    if decision is None or document.get("decision", decision) != decision:
        raise Unexpected(f"{status} {document}")
    replayed = decision == "duplicate_replayed"
    return Answer(decision, document.get("operation_id"), document.get("fence"),
        document.get("attempt"), document["status"] if replayed else None,
        text(document.get("outcome")) if replayed else None)


def holder_answer(kind, status, document):
    if refused(status, document):
        return None
    if status == 200:
        return Answer(HOLDERS[kind])
    if status == 404:
        return Answer("not_found")
    if status == 409 and document["code"] in ("stale_fence", "already_sealed"):
        return Answer(document["code"])
    raise Unexpected(f"{kind}: {status} {document}")


def get_answer(status, document):
    if refused(status, document):
        return None
    if status == 404:
        return Answer("not_found")
    if status != 200:
        raise Unexpected(f"get: {status} {document}")
    return Answer("found", document["operation_id"], document["fence"], document["attempt"],
        document["status"], text(document.get("outcome")))


def begin(wire, key, payload, **how):
    status, _, document = wire.request("POST", "/v1/fences", begin_body(key, payload, **how))
    return begin_answer(status, document)


def holders(wire, kind, operation_id, fence, **more):
    """Seal, release or unknown."""
    status, _, document = wire.request("POST", f"/v1/fences/{operation_id}/{kind}",
        {"fence": fence, **more})
    return holder_answer(kind, status, document)


def seal(wire, operation_id, fence, outcome, status="executed"):
    return holders(wire, "seal", operation_id, fence, status=status, outcome=outcome)


def get(wire, operation_id):
    status, _, document = wire.request("GET", f"/v1/operations/{operation_id}")
    return get_answer(status, document)


def begin_bytes(key, payload, **how):
    return request_bytes("POST", "/v1/fences", begin_body(key, payload, **how))


def pipelined(wire, requests):
    """Send all, then read all: (status, body's bytes) of each, in order."""
    wire.send(b"".join(requests))
    return [wire.answer_bytes()[::2] for _ in requests]


# --- Many connections from one thread -------------------------------------------------------------

def answers_in(data):
    """([(status, body's bytes)], the rest) of what has come on one connection."""
    found, at = [], 0
    while True:
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            return found, data[at:]
        head = data[at:end].lower()
        size = head.find(b"content-length:")
        length = int(head[size + 15:].split(b"\r\n", 1)[0])
        if len(data) < end + 4 + length:
            return found, data[at:]
        found.append((int(head[9:12]), data[end + 4:end + 4 + length]))
        at = end + 4 + length


def exchange_all(wires, requests):
    """Send requests[i] (bytes of any number of them) on wires[i], all at once, and read as many
    answers: a list of (status, body's bytes) for each wire."""
    poll = select.epoll()
    by_fd = {wire.socket.fileno(): place for place, wire in enumerate(wires)}
    answers, rests = [[] for _ in wires], [b"" for _ in wires]
    wanted = [request.count(b" HTTP/1.1\r\n") for request in requests]
    try:
        for wire, request in zip(wires, requests):
            poll.register(wire.socket.fileno(), select.EPOLLIN)
            wire.send(request)
        left = len(wires)
        while left:
            ready = poll.poll(ANSWER_S)
            if not ready:
                raise Broken("no answer")
            for fd, _ in ready:
                place = by_fd[fd]
                data = wires[place].socket.recv(1 << 18)
                if not data:
                    raise Broken("closed")
                found, rests[place] = answers_in(rests[place] + data)
                answers[place] += found
                if len(answers[place]) == wanted[place]:
                    poll.unregister(fd)
                    left -= 1
    finally:
        poll.close()
    return answers

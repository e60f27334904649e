"""A flood of duplicates of one key: 429 past the rate, counted, and nobody else is slowed."""
import hashlib
import multiprocessing
import time

import pytest

import fences
from once_server import Wire

TOKENS = {"flooder": "token-of-the-flooder", "neighbour": "token-of-the-neighbour"}
CONFIG = "auth:\n  tokens:\n" + "".join(
    f'    - {{sha256: "{hashlib.sha256(token.encode()).hexdigest()}", tenant: {tenant}, '
    'rights: [execute, audit]}\n' for tenant, token in TOKENS.items())
PROCESSES, CONNECTIONS, DEPTH = 2, 2, 200  # of the flood: 800 requests are in flight
DUPLICATES = 1000
NEIGHBOURS_KEYS = 300  # a begin and a seal each
BURST, RATE = 40, 20  # the defaults
NOTED_S = 20  # for the count to be in the evidence: it is about a second


def as_tenant(tenant):
    return {"Authorization": f"Bearer {TOKENS[tenant]}"}


def duplicate(tenant, key="flooded"):
    return fences.request_bytes("POST", "/v1/fences", fences.begin_body(key, 1, lease="1h"),
        as_tenant(tenant))


def flood(port, over, answered, refused, faults):
    """A process of its own: duplicates as fast as they are answered."""
    wires = [Wire(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    requests = [duplicate("flooder") * DEPTH] * CONNECTIONS
    try:
        while not over.is_set():
            answers = [one for each in fences.exchange_all(wires, requests) for one in each]
            with answered.get_lock():
                answered.value += len(answers)
            with refused.get_lock():
                refused.value += sum(status == 429 for status, _ in answers)
            wrong = [one for one in answers if one[0] not in (202, 429)]
            assert not wrong, wrong[0]
    except Exception as fault:
        faults.put(repr(fault))
    finally:
        for wire in wires:
            wire.close()


class Flood:
    def __init__(self, server):
        fork = multiprocessing.get_context("fork")
        self.over, self.faults = fork.Event(), fork.SimpleQueue()
        self.answered, self.refused = fork.Value("q", 0), fork.Value("q", 0)
        self.processes = [fork.Process(target=flood, args=(server.port, self.over, self.answered,
            self.refused, self.faults)) for _ in range(PROCESSES)]

    def __enter__(self):
        for process in self.processes:
            process.start()
        until = time.monotonic() + 60
        while self.refused.value == 0:  # it has begun
            assert self.faults.empty() and time.monotonic() < until
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        self.over.set()
        for process in self.processes:
            process.join(60)
            if process.is_alive():
                process.kill()
        assert self.faults.empty(), self.faults.get()


@pytest.fixture
def server(make_server):
    return make_server(config=CONFIG)


def begin(wire, tenant, key):
    status, headers, document = wire.request("POST", "/v1/fences",
        fences.begin_body(key, 1, lease="1h"), as_tenant(tenant))
    return status, headers, document


def seal(wire, tenant, grant):
    return wire.request("POST", f"/v1/fences/{grant['operation_id']}/seal",
        {"fence": grant["fence"], "status": "executed", "outcome": 1}, as_tenant(tenant))


def counted(wire, operation_id):
    """The counts of the entries that stand for several duplicates."""
    status, _, page = wire.request("GET", f"/v1/evidence?operation_id={operation_id}&limit=1000",
        headers=as_tenant("flooder"))
    assert status == 200, page
    return [entry["count"] for entry in page["entries"]
        if entry["type"] == "observation.emitted" and "count" in entry]


def test_past_the_rate_is_429_and_the_evidence_has_the_count(server):
    with server.wire() as wire:
        status, _, grant = begin(wire, "flooder", "flooded")
        assert status == 201
        began = time.monotonic()
        wire.send(duplicate("flooder") * DUPLICATES)
        answers = [wire.answer() for _ in range(DUPLICATES)]
        seconds = time.monotonic() - began
        answered = sum(status == 202 for status, _, _ in answers)
        refused = [(headers, problem) for status, headers, problem in answers if status == 429]
        assert answered + len(refused) == DUPLICATES
        assert BURST <= answered <= BURST + RATE * seconds + 1, (answered, seconds)
        for headers, problem in refused:
            assert int(headers["Retry-After"]) >= 1
            assert (problem["effect"], problem["retry"]) == ("no", "after"), problem
        # Another key of the same tenant, and the same key of another tenant, are not meant.
        assert begin(wire, "flooder", "another")[0] == 201
        assert begin(wire, "flooder", "another")[0] == 202
        assert begin(wire, "neighbour", "flooded")[0] == 201
        assert begin(wire, "neighbour", "flooded")[0] == 202
        until = time.monotonic() + NOTED_S
        while sum(counted(wire, grant["operation_id"])) < len(refused):
            assert time.monotonic() < until, counted(wire, grant["operation_id"])
            time.sleep(0.1)
        counts = counted(wire, grant["operation_id"])
        assert sum(counts) == len(refused), counts
        assert len(counts) <= 2 + seconds, counts  # about one a second
        time.sleep(1.0 / RATE + 1)  # the bucket fills again
        assert begin(wire, "flooder", "flooded")[0] == 202


def test_one_tenants_flood_does_not_hold_up_another(server):
    with server.wire() as wire:
        assert begin(wire, "flooder", "flooded")[0] == 201
        with Flood(server) as flood_:
            before = flood_.answered.value
            for number in range(NEIGHBOURS_KEYS):
                status, _, grant = begin(wire, "neighbour", f"key-{number}")
                assert status == 201, (number, status, grant)
                assert seal(wire, "neighbour", grant)[0] == 200
            meanwhile = flood_.answered.value - before
        per_call = meanwhile / (2 * NEIGHBOURS_KEYS)
        in_flight = PROCESSES * CONNECTIONS * DEPTH
        print(f"{per_call:.0f} of the flood's answers for each of the neighbour's, "
            f"{in_flight} in flight")
        # A call waits for what was in flight before it, and not for all that comes after.
        assert per_call <= 2 * in_flight

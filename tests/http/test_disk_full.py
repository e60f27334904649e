"""The disk fills up under load: refused with 503 and its reason, nothing lost, and it goes on.

The small file systems are mounted in a mount namespace of this process, so nothing of them outlives
it. Without the right to mount the tests are skipped.
"""
import ctypes
import json
import os
import subprocess
import threading
import time

import pytest

import fences
import promise
from once_server import request_bytes

CLIENTS = 4
OUTCOME = "x" * 3000  # so that some thousand operations fill it
FILLER_BYTES = 4 << 20  # somebody else's file, removed to make room
REFUSALS = 20  # of each client while it is full
SMALL_MAX = 2000  # begins until not one block is left
KEYS_MAX = 4096  # of one client: far more than fit
ROOM_S = 30  # to go on by itself once there is room
CLONE_NEWNS, MS_PRIVATE_ALL = 0x00020000, 0x4000 | (1 << 18)


def namespace_entered():
    """A place for mounts that nobody else sees, for this thread and what it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.unshare(CLONE_NEWNS) == 0 and \
        libc.mount(b"none", b"/", None, MS_PRIVATE_ALL, None) == 0


def mount_tmpfs(place):
    return ["mount", "-t", "tmpfs", "-o", "size=16m", "once-test", str(place)]


def mount_ext4(place):
    """It gives out space when it writes back, as most disks do. The loop device goes with it."""
    return ["sh", "-ec", 'truncate -s 32M "$0.img"; PATH=$PATH:/sbin:/usr/sbin; '
        'mkfs.ext4 -q -F "$0.img"; mount -o loop "$0.img" "$0"; rm -f "$0.img"', str(place)]


# What there is no room for: the next segment, or more zeros ahead in the only one.
SMALL_SEGMENTS, ONE_SEGMENT = "?segment=2MiB&snapshot=1MiB", ""


@pytest.fixture(params=[(mount_tmpfs, SMALL_SEGMENTS), (mount_tmpfs, ONE_SEGMENT),
    (mount_ext4, SMALL_SEGMENTS)], ids=["tmpfs", "one segment", "ext4"])
def small_disk(request, tmp_path):
    """A directory with some megabytes of room, of which somebody else's file takes a part."""
    if os.geteuid() != 0 or not namespace_entered():
        pytest.skip("mounting a small file system is not permitted here")
    place = tmp_path / "disk"
    place.mkdir()
    mount, options = request.param
    done = subprocess.run(mount(place), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    (place / "filler").write_bytes(b"x" * FILLER_BYTES)
    yield place, options
    subprocess.run(["umount", "-l", str(place)], check=True)


class Client(threading.Thread):
    """Begins and seals one key after another until it was refused often enough."""

    def __init__(self, number, server):
        super().__init__()
        self.number, self.server = number, server
        self.sealed = []  # (key, operation_id, fence), all answered
        self.grant = None  # of the key after these
        self.refusals, self.fault = 0, None

    def key(self):
        return f"full-{self.number}-{len(self.sealed)}"

    def step(self, wire):
        """One call. False: it was refused."""
        if self.grant is None:
            status, _, document = wire.request("POST", "/v1/fences",
                fences.begin_body(self.key(), self.number, lease="1h"))
        else:
            status, _, document = wire.request("POST", f"/v1/fences/{self.grant[0]}/seal",
                {"fence": self.grant[1], "status": "executed", "outcome": OUTCOME})
        if status == 503:
            assert document["effect"] == "no", document
            assert "space" in document["detail"].lower(), document
            assert "/" not in document["detail"], "it tells where the store is"
            return False
        if self.grant is None:
            assert status == 201, (status, document)
            self.grant = document["operation_id"], document["fence"]
        else:
            assert status == 200, (status, document)
            self.sealed.append((self.key(), *self.grant))
            self.grant = None
        return True

    def run(self):
        try:
            with self.server.wire() as wire:
                while self.refusals < REFUSALS and len(self.sealed) < KEYS_MAX:
                    self.refusals += not self.step(wire)
        except Exception as fault:  # told by the main thread
            self.fault = fault

    def goes_on(self):
        """What was refused is taken, once there is room."""
        until = time.monotonic() + ROOM_S
        with self.server.wire() as wire:
            while not self.step(wire):
                assert time.monotonic() < until, "it does not go on though there is room"
                time.sleep(0.02)

    def check(self):
        """Everything it was told is there, and what was refused is not. A look needs no space."""
        with self.server.wire() as wire:
            for at in range(0, len(self.sealed), 50):
                part = self.sealed[at:at + 50]
                looks = [request_bytes("GET", f"/v1/operations/{key[1]}") for key in part]
                for (key, operation_id, fence), (status, body) in zip(part,
                        fences.pipelined(wire, looks)):
                    found = fences.get_answer(status, json.loads(body))
                    assert (found.operation_id, found.fence, found.status, found.outcome) == \
                        (operation_id, fence, "executed", fences.text(OUTCOME)), key
            status, _, page = wire.request("GET", f"/v1/operations?scope=test&key={self.key()}")
            assert status == 200, page
            fences_found = [operation["fence"] for operation in page["operations"]]
            assert fences_found == ([] if self.grant is None else [self.grant[1]]), self.key()


def fill(server):
    clients = [Client(number, server) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    for client in clients:
        if client.fault is not None:
            raise client.fault
        assert client.refusals == REFUSALS, f"{len(client.sealed)} keys did not fill it"
    assert sum(len(client.sealed) for client in clients) > 100
    return clients


@promise.kept()
def check_all(clients):
    for client in clients:
        client.check()


def verify(server):
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stdout + done.stderr


def make_full(make_server, small_disk):
    place, options = small_disk
    server = make_server(data_dir=place / "data", store_options=options)
    return server, fill(server), place / "filler"


def refused_small(server):
    """A key that is refused. There may be room for some begins yet where a large outcome has none:
    it takes one block each."""
    for number in range(SMALL_MAX):
        key = f"small-{number}"
        status, headers, document = server.request("POST", "/v1/fences", fences.begin_body(key, 0))
        if status == 503:
            assert (document["effect"], document["retry"]) == ("no", "safe"), document
            assert int(headers["Retry-After"]) >= 1
            return key
        assert status == 201, document
    raise AssertionError("it is not full")


def check_while_full(server, clients):
    """What docs/operate.md says of it: who looks is served, and what leaves a trace is not. Returns
    a key that was refused."""
    refused = refused_small(server)
    for path in ("/livez", "/readyz", "/metrics", "/v1/operations?limit=1", "/v1/evidence/head"):
        assert server.request("GET", path)[0] == 200, path
    duplicate = fences.begin_body(clients[0].sealed[0][0], 0)
    status, _, problem = server.request("POST", "/v1/fences", duplicate)
    assert (status, problem["effect"]) == (503, "no"), problem
    status, _, problem = server.request("GET", "/v1/evidence?limit=1")
    assert (status, problem.get("effect")) == (503, "no"), problem
    return refused


def check_after(server, clients, refused):
    """The same process does all of it again."""
    key, operation_id, _ = clients[0].sealed[0]
    status, _, replay = server.request("POST", "/v1/fences", fences.begin_body(key, 0))
    assert (status, replay["operation_id"], replay["outcome"]) == (200, operation_id, OUTCOME)
    status, _, grant = server.request("POST", "/v1/fences", fences.begin_body(refused, 0))
    assert (status, grant["attempt"]) == (201, 1), grant
    assert server.request("GET", "/v1/evidence?limit=1")[0] == 200


def test_a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_room(make_server, small_disk):
    server, clients, filler = make_full(make_server, small_disk)
    refused = check_while_full(server, clients)
    check_all(clients)
    filler.unlink()
    for client in clients:
        client.goes_on()
    check_after(server, clients, refused)
    check_all(clients)
    server.stop()
    server.restart()
    check_all(clients)
    server.stop()
    verify(server)


def test_killed_while_the_disk_is_full(make_server, small_disk):
    server, clients, filler = make_full(make_server, small_disk)
    server.kill9()
    filler.unlink()
    server.restart()
    check_all(clients)
    for client in clients:
        client.goes_on()
    server.stop()
    verify(server)

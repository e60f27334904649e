"""The disk fills up under the gateway: what it says of the effect is true, and it goes on.

Nothing is sent without a durable grant (P6, P11). What was sent and could not be sealed is said to
have happened, or may have; its key stays held, and nothing runs twice.
"""
import signal
import time

import pytest
from once_server import Broken
from once_gateway import DUPLICATES_FREE, request_for
from test_disk_full import SMALL_SEGMENTS, mount_tmpfs
from test_disk_full import small_disk  # noqa: F401 (a fixture)

KEYS_MAX = 20000  # far more than fit
REFUSALS = 30  # while it is full
ROOM_S = 30  # to go on by itself once there is room
RELOADS_MAX = 500  # each takes a little of the room that is left
TOTAL_S = 1
# Where it makes no difference how the disk is full.
ONE_DISK = pytest.mark.parametrize("small_disk", [(mount_tmpfs, SMALL_SEGMENTS)], indirect=True)


def fill(gateway):
    """Until a grant is refused; then there is no room for a seal with a body either."""
    with gateway.peer() as peer:
        for number in range(KEYS_MAX):
            peer.send(request_for("POST", "/pay", {"a": 1}, f"k{number}", do="size=3000"))
            if peer.read().status == 503:
                return
    raise AssertionError("it is not full")


def wait_for_room(gateway, place):
    (place / "filler").unlink()
    until = time.monotonic() + ROOM_S
    while gateway.post("again").status != 200:
        assert time.monotonic() < until, "it does not go on though there is room"
        time.sleep(0.1)


def test_what_is_said_of_the_effect_is_true_when_the_disk_is_full(make_gateway, origin,
        small_disk):  # noqa: F811
    place, options = small_disk
    gateway = make_gateway(routes=[{"match": "POST /**", "lease": "1s",
        "timeout": {"connect": "1s", "first_byte": "1s", "total": f"{TOTAL_S}s"}}],
        gateway={"spool_dir": "/tmp"}, limits=DUPLICATES_FREE, data_dir=place / "data",
        store_options=options)
    sealed, refused, unsealed = {}, [], []
    with gateway.peer() as peer:
        while len(refused) + len(unsealed) < REFUSALS and len(sealed) < KEYS_MAX:
            key = f"k{len(sealed) + len(refused) + len(unsealed)}"
            peer.send(request_for("POST", "/pay", {"for": key}, key, do="size=3000"))
            answer = peer.read()
            if answer.status == 200:
                sealed[key] = answer.body
                continue
            assert answer.status == 503, answer
            effect = answer.json["effect"]
            assert effect == answer.fields["Once-Effect"]
            if effect == "no":
                assert not origin.seen(key), f"{key} was sent and is said to have had no effect"
                refused.append(key)
            else:
                assert origin.effects[key] == 1, answer
                unsealed.append(key)
    assert len(refused) + len(unsealed) == REFUSALS, f"{len(sealed)} fit"
    for key in list(sealed)[::50]:  # a replay may need room for its evidence; never lost
        answer = gateway.post(key, {"for": key})
        assert answer.status == 503 or (answer.is_replay and answer.body == sealed[key]), answer
    wait_for_room(gateway, place)
    for key in refused:
        answer = gateway.post(key, {"for": key})
        assert answer.status == 200 and answer.decision == "first_seen", answer
    for key in unsealed:
        gateway.wait_status(key, "unknown")
        assert gateway.post(key, {"for": key}).decision == "held_unknown"
    for key in list(sealed)[::20]:
        answer = gateway.post(key, {"for": key})
        assert answer.is_replay and answer.body == sealed[key]
    print(f"{len(sealed)} fit, {len(refused)} refused, {len(unsealed)} sent and not sealed")
    assert max(origin.effects.values()) == 1
    gateway.stop()
    done = gateway.cli("verify", "--redecide", "--store", gateway.store)
    assert done.returncode == 0, done


def test_an_operation_in_flight_while_the_disk_fills_is_held(make_gateway, origin,
        small_disk):  # noqa: F811
    place, options = small_disk
    gateway = make_gateway(routes=[{"match": "POST /**", "timeout": {"connect": "1s",
        "first_byte": "60s", "total": "60s"}}], gateway={"spool_dir": "/tmp"},
        limits=DUPLICATES_FREE, data_dir=place / "data", store_options=options)
    with gateway.peer() as held:
        held.send(request_for("POST", "/pay", {"a": 1}, "held", do="hold=1&size=500000"))
        origin.wait_for("held")
        fill(gateway)
        origin.let_go("held")
        answer = held.read()
        assert answer.status == 503 and answer.json["effect"] in ("yes", "unknown"), answer
        assert answer.json["operation_id"]
    wait_for_room(gateway, place)
    assert gateway.post("held", {"a": 1}).status == 409 and origin.effects["held"] == 1


@ONE_DISK
def test_a_stream_whose_seal_fails_breaks_off_and_is_held(make_gateway, origin,
        small_disk):  # noqa: F811
    """The client has had all events and not the end; nobody gets a second effect, or a replay of
    what was not sealed."""
    place, options = small_disk
    gateway = make_gateway(routes=[{"match": "POST /**", "lease": "10s",
        "timeout": {"connect": "1s", "first_byte": "10s", "total": "10s"}}],
        gateway={"spool_dir": "/tmp"}, limits=DUPLICATES_FREE, data_dir=place / "data",
        store_options=options)
    events = "data: x\n\n" * 20000
    origin.does["s"] = f"type=text/event-stream&chunked=1&hold_body=1&text={events}"
    with gateway.peer() as peer:
        peer.send(request_for("POST", "/pay", {"a": 1}, "s"))
        status, lines = peer.head()
        assert status == 200 and ("Once-Decision", "first_seen") in lines, lines
        origin.wait_for("s")
        fill(gateway)
        origin.let_go("s")
        with pytest.raises(Broken):  # without its last chunk
            peer.chunks()
    assert gateway.send("POST", "/pay", {"a": 1}, "s", headers={"Prefer": "wait=0"}).status in \
        (409, 503)  # held; or its evidence finds no room
    wait_for_room(gateway, place)
    gateway.wait_status("s", "unknown")
    again = gateway.post("s", {"a": 1})
    assert again.status == 409 and again.decision == "held_unknown"
    assert again.fields["Once-Effect"] == "unknown" and origin.effects["s"] == 1


@ONE_DISK
def test_the_health_path_of_a_gateway_with_a_full_disk(make_gateway, origin,
        small_disk):  # noqa: F811
    """As /readyz: a restart would not help, and reads are served."""
    place, options = small_disk
    gateway = make_gateway(gateway={"health": "/healthz", "spool_dir": "/tmp"},
        limits=DUPLICATES_FREE, data_dir=place / "data", store_options=options)
    fill(gateway)
    assert gateway.send("GET", "/healthz").status == 200
    assert gateway.send("GET", "/anything").status == 200


def reload_onto(gateway, place, settings):
    """Route everything to this upstream. Returns whether the gateway accepted it."""
    before = gateway.stderr()
    gateway.rewrite(routes=[{"match": "POST /**", "upstream": place.url}], **settings)
    gateway.signal(signal.SIGHUP)
    until = time.monotonic() + ROOM_S
    while True:
        now = gateway.stderr()
        if now.count('"event":"reloaded"') > before.count('"event":"reloaded"'):
            return True
        if now.count("reload_failed") > before.count("reload_failed"):
            return False
        assert time.monotonic() < until, "the reload neither happened nor failed"
        time.sleep(0.01)


def test_a_reload_that_cannot_leave_evidence_changes_nothing(make_gateway, make_origin, origin,
        small_disk):  # noqa: F811
    """The new policy needs an entry, for which there is no room: the routes stay with it."""
    place, options = small_disk
    settings = {"gateway": {"spool_dir": "/tmp"}, "limits": DUPLICATES_FREE}
    used, other = origin, make_origin()
    gateway = make_gateway(routes=[{"match": "POST /**"}], data_dir=place / "data",
        store_options=options, **settings)
    fill(gateway)
    for _ in range(RELOADS_MAX):  # where an answer does not fit, some small entries still may
        if not reload_onto(gateway, other, settings):
            break
        used, other = other, used
    else:
        raise AssertionError(f"{RELOADS_MAX} reloads on a full disk left evidence")
    wait_for_room(gateway, place)
    assert used.effects["again"] == 1 and not other.seen("again")
    assert reload_onto(gateway, other, settings)
    assert gateway.post("later").status == 200 and other.effects["later"] == 1

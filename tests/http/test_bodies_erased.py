"""The body of an effect is encrypted until the effect is settled, and then erased
(docs/effects.md). Not one byte of the plain text is ever in the store, and none of the encrypted
one a while after the end. What stays is the redacted form."""
import re
import struct
import subprocess
import sys
import time

import pytest

import stores
from once_server import BINARY, ROOT, until
from provider import Provider

SECRET = "planted-secret-4111111111111111"
ERASE_S = 1
KEYS = "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"


def config_of(provider, *keys):
    return f"""
secrets: {{key_file: [{', '.join(str(key) for key in keys)}]}}
connectors:
  pay:
    url: {provider.url}
    idempotency: {{header: Idempotency-Key, keeps: 24h}}
    timeout: {{connect: 1s, first_byte: 5s, total: 6s}}
effects:
  payment.capture:
    connector: pay
    provider_ref: /id
    redact: [/card]
    retry: {{attempts: 3, backoff: 50ms, backoff_max: 100ms}}
    compensate:
      effect: payment.refund
      payload: {{charge: "{{provider_ref}}", card: "{{payload.card}}"}}
  payment.refund: {{connector: pay, redact: [/card]}}
"""


@pytest.fixture
def provider():
    made = Provider(keeps=True)
    yield made
    made.end()


@pytest.fixture
def keys(tmp_path):
    made = []
    for number, text in enumerate(KEYS):
        path = tmp_path / f"{number}.key"
        path.write_text(text * 2 + "\n")
        path.chmod(0o600)
        made.append(path)
    return made


def put(server, key, **more):
    envelope = {"effect_type": "payment.capture", "idempotency_key": key,
        "payload": {"amount": 5, "card": SECRET}, **more}
    status, _, answer = server.request("POST", "/v1/effects", envelope)
    assert status == 202, answer
    return answer["effect_id"]


def status_of(server, effect_id):
    return server.request("GET", f"/v1/effects/{effect_id}")[2]["status"]


# --- What the stores hold ---


def frames(directory):
    """(kind, payload) of every frame of a journal."""
    for path in sorted(directory.glob("segment-*")):
        data, at = path.read_bytes(), 4096
        while data[at:at + 4] == b"ONCB":
            length, content = struct.unpack("<II", data[at + 16:at + 24])
            place = at + 64
            while place < at + content:
                size, kind, _ = struct.unpack("<III", data[place:place + 12])
                yield kind, data[place + 12:place + 12 + size]
                place += 12 + size
            at += length


def everything(server):
    """All bytes that the store has, wherever it has them."""
    if stores.KIND == "journal":
        return b"".join(path.read_bytes() for path in sorted(server.data_dir.rglob("*"))
            if path.is_file())
    if stores.KIND == "postgres":
        program = stores.servers.Postgres.program("pg_dump")
        url = re.sub(r"\?.*", "", server.store)
        schema = re.search(r"schema=(\w+)", server.store).group(1)
        return subprocess.run([program, "--inserts", "--schema", schema, url], check=True,
            capture_output=True, timeout=120).stdout
    name = re.search(r"name=(\w+)", server.store).group(1)
    port = re.search(r":(\d+)", server.store).group(1)
    script = ("local all = {} for _, k in ipairs(redis.call('KEYS', '*" + name + "*')) do "
        "local is_string = redis.call('TYPE', k).ok == 'string' "  # DUMP may compress it
        "all[#all + 1] = redis.call(is_string and 'GET' or 'DUMP', k) end return table.concat(all)")
    return subprocess.run(["redis-cli", "-p", port, "--raw", "EVAL", script, "0"], check=True,
        capture_output=True, timeout=60).stdout


def sealed_bodies(server):
    """The encrypted bodies that the store has now, in the form that `everything` shows."""
    if stores.KIND == "journal":
        return [payload[32:] for kind, payload in frames(server.data_dir) if kind == 4]
    if stores.KIND == "postgres":
        schema = re.search(r"schema=(\w+)", server.store).group(1)
        shown = stores.server().sql(f"SELECT encode(request_body, 'hex') FROM {schema}.records "
            "WHERE kind = 'effect' AND request_body IS NOT NULL")
        return [line.encode() for line in shown.split()]
    name = re.search(r"name=(\w+)", server.store).group(1)
    port = re.search(r":(\d+)", server.store).group(1)
    script = ("local all = {} for _, k in ipairs(redis.call('KEYS', '*" + name + "*')) do "
        "local kind, q = redis.call('TYPE', k).ok, nil "
        "if kind == 'hash' then q = redis.call('HGET', k, 'q') end "
        "if kind == 'string' and string.find(k, ':r:', 1, true) then "
        "local text = redis.call('GET', k) local m, r, at = string.match(text, '^(%d+) (%d+) ()') "
        "q = string.sub(text, at + m + r) if q == '' then q = nil end end "
        "if q then for i = 1, #q do all[#all + 1] = string.format('%02x', string.byte(q, i)) end "
        "all[#all + 1] = ' ' end end return table.concat(all)")
    found = subprocess.run(["redis-cli", "-p", port, "--raw", "EVAL", script, "0"], check=True,
        capture_output=True, timeout=60).stdout
    return [bytes.fromhex(line) for line in found.decode().split()]


def verify(server):
    done = subprocess.run([BINARY, "verify", "--redecide", "--store", server.store],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    if stores.KIND == "journal":
        done = subprocess.run([sys.executable, str(ROOT / "tools/verify_journal.py"),
            str(server.data_dir)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def make(make_server, provider, keys):
    def one(*which, **more):
        return make_server(config=config_of(provider, *(keys[i] for i in which or (0,))),
            store_options=f"?erase={ERASE_S}s" if stores.KIND == "journal" else "", **more)
    return one


# --- Erased when settled ---


def erased(server, bodies):
    def is_so():
        whole = everything(server)
        return not any(body in whole for body in bodies)
    until(is_so, "an encrypted body is still there", 60)


@pytest.mark.parametrize("end", ["acknowledged", "failed", "cancelled", "resolved"])
def test_a_settled_effect_leaves_no_body(make, provider, end):
    server = make()
    provider.script("k", *{"failed": ["402"]}.get(end, ["503"]))
    if end == "resolved":
        provider.script("k", *["lost"] * 9)
        provider.hides = True
    later = {"not_before": "2999-01-01T00:00:00.000Z"} if end == "cancelled" else {}
    waits = put(server, "waits", not_before="2999-01-01T00:00:00.000Z")
    # What is there before the end: the effect is held until its body was seen.
    provider.slow_s = 1.0
    if end in ("acknowledged", "failed"):
        held = put(server, "held", not_before="2999-01-01T00:00:00.000Z")
        bodies = sealed_bodies(server)
        assert len(bodies) == 2
        provider.script("held", *{"failed": ["402"]}.get(end, []))
        assert server.request("POST", f"/v1/effects/{held}/retry")[0] == 200
        until(lambda: status_of(server, held) == end, "it does not end")
    else:
        held = put(server, "k", **later)
        if end == "resolved":
            until(lambda: server.request("GET", f"/v1/effects/{held}")[2]["uncertain"], "certain")
        bodies = sealed_bodies(server)
        assert len(bodies) == 2
        action = "cancel" if end == "cancelled" else "resolve"
        body = {"reason": "a test"} if end == "cancelled" else {"status": "acknowledged",
            "provider_ref": "ch_1", "reason": "a test"}
        assert server.request("POST", f"/v1/effects/{held}/{action}", body)[0] == 200
    whole = everything(server)
    assert SECRET.encode() not in whole
    shown = server.request("GET", f"/v1/effects/{held}")[2]
    assert shown["payload"] == {"amount": 5, "card": "[redacted]"}
    alive = sealed_bodies_of(server, waits, bodies)
    erased(server, [body for body in bodies if body not in alive])
    assert all(body in everything(server) for body in alive)  # the one that waits keeps its own
    verify_open(server)


def sealed_bodies_of(server, waits, bodies):
    """Of these, the body of the effect that waits: the only one that stays."""
    del waits
    until(lambda: len(set(sealed_bodies(server)) & set(bodies)) == 1, "more than one body stays",
        60)
    return list(set(sealed_bodies(server)) & set(bodies))


def verify_open(server):
    server.stop()
    verify(server)
    server.start()


def test_the_body_survives_retries_restarts_and_other_segments(make, provider):
    """What is not settled is kept, whatever is erased around it."""
    server = make()
    waits = put(server, "waits", not_before="2999-01-01T00:00:00.000Z")
    for number in range(20):
        done = put(server, f"done-{number}")
        until(lambda done=done: status_of(server, done) == "acknowledged", "it is not sent")
        if number % 7 == 3:
            time.sleep(1.2 * ERASE_S)
        if number % 9 == 5:
            server.kill9()
            server.start()
    assert server.request("POST", f"/v1/effects/{waits}/retry")[0] == 200
    until(lambda: status_of(server, waits) == "acknowledged", "its body was lost")
    assert SECRET in provider.of("waits")[0]["body"]
    assert SECRET.encode() not in everything(server)
    if stores.KIND == "journal":
        until(lambda: not sealed_bodies(server), "bodies stay", 60)
    else:
        assert not sealed_bodies(server)
    verify_open(server)


def test_a_compensation_after_the_end_has_what_it_needs(make, provider):
    server = make()
    effect_id = put(server, "k")
    until(lambda: status_of(server, effect_id) == "acknowledged", "it is not sent")
    if stores.KIND == "journal":
        until(lambda: not sealed_bodies(server), "bodies stay", 60)
    server.kill9()
    server.start()
    assert server.request("POST", f"/v1/effects/{effect_id}/compensate", {"reason": "r"})[0] == 202
    until(lambda: status_of(server, effect_id) == "compensated", "it is not compensated")
    refund = provider.requests[-1]
    assert SECRET in refund["body"] and "ch_k" in refund["body"]
    assert SECRET.encode() not in everything(server)


# --- Keys ---


def test_a_key_is_rotated_while_effects_wait(make, provider, keys):
    """The first key writes, all of them open; without the old one its bodies are not sent."""
    server = make(0)
    old = put(server, "old", not_before="2999-01-01T00:00:00.000Z")
    server.stop()
    (server.directory / "once.yaml").write_text(config_of(provider, keys[1], keys[0]))
    server.start()
    new = put(server, "new", not_before="2999-01-01T00:00:00.000Z")
    ids = {body[1:5] for body in map(raw, sealed_bodies(server))}
    assert len(ids) == 2  # the key's id is in front of what it sealed
    assert server.request("POST", f"/v1/effects/{old}/retry")[0] == 200
    until(lambda: status_of(server, old) == "acknowledged", "the old key does not open")
    server.stop()
    (server.directory / "once.yaml").write_text(config_of(provider, keys[1]))
    server.start()
    assert server.request("POST", f"/v1/effects/{new}/retry")[0] == 200
    until(lambda: status_of(server, new) == "acknowledged", "the new key does not open")
    assert all(SECRET in request["body"] for request in provider.requests)


def raw(body):
    return bytes.fromhex(body.decode()) if stores.KIND == "postgres" else body

"""The other side of every boundary: at each limit, one below it and one above it.

What is within is taken whole and unchanged; what is one past is refused by the name of the limit,
or handled the other way, and in no case cut, doubled or half done (P3, P14).
"""
import json

import pytest
from fences import NO_LIMITS, begin_body, begin_bytes, pipelined
from once_gateway import DUPLICATES_FREE

NAME_BYTES = 255
LEASE_MAX_MS, WINDOW_MAX_MS, WAIT_MAX_MS = 604800000, 315360000000, 60000
PAGE_MAX = 1000
KEPT_BYTES = 64 << 10  # of a first request, to explain conflicts
HEAD_BYTES, TARGET_BYTES, FIELDS = 16 << 10, 8000, 100
TURN_BYTES = 256 << 10  # of an answer in one turn of a loop
AROUND = (-1, 0, 1)


@pytest.fixture
def free(make_server):
    return make_server(config=NO_LIMITS)


def begin(server, key, payload=None, **more):
    body = begin_body(key, payload or {}, **more)
    status, _, document = server.request("POST", "/v1/fences", body)
    return status, document


def long_name(size, character="x"):
    """Of exactly so many bytes, with as many characters of several bytes as fit."""
    width = len(character.encode())
    return "y" * (size % width) + character * (size // width)


# --- Values of the API ---


@pytest.mark.parametrize("character", ["x", "é", "𝄞"])
@pytest.mark.parametrize("name", ["key", "scope", "principal"])
def test_a_name_has_255_bytes_at_most(free, name, character):
    for size in (NAME_BYTES - 1, NAME_BYTES):
        value = long_name(size, character)
        body = {**begin_body("k", {}), name: value}
        status, _, made = free.request("POST", "/v1/fences", body)
        assert status == 201, made
        shown = free.request("GET", f"/v1/operations/{made['operation_id']}")[2]
        assert shown[name] == value
    body = {**begin_body("k", {}), name: long_name(NAME_BYTES + 1, character)}
    status, _, problem = free.request("POST", "/v1/fences", body)
    assert status == 400 and f"{name}_bytes_max" in problem["detail"], problem


@pytest.mark.parametrize("name", ["type", "id", "version"])
def test_a_part_of_a_source_has_255_bytes_at_most(free, name):
    for size, expected in ((NAME_BYTES, 201), (NAME_BYTES + 1, 400)):
        source = {"type": "t", "id": "i", "version": "1", name: "7" * size}
        assert begin(free, f"k{size}", source=source)[0] == expected


def test_a_reason_has_255_bytes_at_most(free):
    for size, expected in ((NAME_BYTES + 1, 400), (NAME_BYTES, 200)):
        one = begin(free, f"k{size}")[1]
        status, _, document = free.request("POST", f"/v1/fences/{one['operation_id']}/unknown",
            {"fence": one["fence"], "reason": "r" * size})
        assert status == expected, document
    shown = free.request("GET", f"/v1/operations/{one['operation_id']}")[2]
    assert shown["reason"] == "r" * NAME_BYTES


@pytest.mark.parametrize("name, least_ms, most_ms", [
    ("lease", 10, LEASE_MAX_MS), ("ttl", 1, WINDOW_MAX_MS), ("wait", 0, WAIT_MAX_MS)])
def test_a_duration_is_taken_at_its_bounds_and_refused_past_them(free, name, least_ms, most_ms):
    for number, ms in enumerate((least_ms, most_ms)):
        assert begin(free, f"{name}{number}", **{name: f"{ms}ms"})[0] == 201
    for ms in (least_ms - 1, most_ms + 1):
        if ms >= 0:
            status, problem = begin(free, "k", **{name: f"{ms}ms"})
            assert status == 400 and name in problem["detail"], problem


def all_pages(server, path, name, limit):
    found, after = [], None
    while after is not None or not found:
        query = f"?limit={limit}" + (f"&after={after}" if after else "")
        page = server.request("GET", path + query)[2]
        assert len(page[name]) <= limit
        found.append(page[name])
        after = page["next"]
    return found


def test_pages_that_end_exactly_with_the_list_lose_and_repeat_nothing(free):
    keys = {f"k{number}" for number in range(12)}
    for key in sorted(keys):
        begin(free, key)
    for limit in (1, 3, 4, 5, 6, 11, 12, 13):
        pages = all_pages(free, "/v1/operations", "operations", limit)
        listed = [one["key"] for page in pages for one in page]
        assert sorted(listed) == sorted(keys), limit
    for path, name in (("/v1/operations", "operations"), ("/v1/evidence", "entries")):
        for limit, expected in ((0, 400), (1, 200), (PAGE_MAX, 200), (PAGE_MAX + 1, 400)):
            assert free.request("GET", f"{path}?limit={limit}")[0] == expected, (path, limit)


@pytest.mark.parametrize("more", AROUND)
def test_a_first_request_is_kept_up_to_64_kib_to_explain_conflicts(free, more):
    text = "x" * (KEPT_BYTES + more - len('{"t":""}'))
    assert begin(free, "k", {"t": text})[0] == 201
    assert begin(free, "k", {"t": text})[0] == 202
    status, problem = begin(free, "k", {"t": "another"})
    assert status == 409 and (problem.get("diff") is not None) == (more <= 0), problem.keys()


@pytest.mark.parametrize("more", AROUND)
def test_an_outcome_is_kept_up_to_its_limit(make_server, more):
    server = make_server(config="limits: {outcome_bytes_max: 2000, duplicate_rate: 0}\n")
    one = begin(server, "k")[1]
    outcome = "x" * (2000 + more - 2)  # and two quotes
    assert server.request("POST", f"/v1/fences/{one['operation_id']}/seal",
        {"fence": one["fence"], "status": "executed", "outcome": outcome})[0] == 200
    replay = begin(server, "k")[1]
    assert replay["decision"] == "duplicate_replayed"
    if more <= 0:
        assert replay["outcome"] == outcome and "outcome_retained" not in replay
    else:
        assert replay["outcome_retained"] is False and replay.get("outcome") is None


# --- Bytes of a request ---


def padded(size):
    """A begin whose body has exactly so many bytes."""
    body = json.dumps(begin_body("k", {"t": ""}))
    return body.replace('""', '"' + "x" * (size - len(body)) + '"').encode()


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("more", AROUND)
def test_a_body_may_have_the_limits_bytes_and_not_one_more(make_server, more, is_chunked):
    server = make_server(config="limits: {body_bytes_max: 2KiB}\n")
    body = padded(2048 + more)
    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    with server.wire() as wire:
        wire.send(b"POST /v1/fences HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            + framing + b"\r\n\r\n" + data)
        assert wire.answer()[0] == (201 if more <= 0 else 413)


def head_of(size=None, target=None, fields=None):
    lines = [b"GET %s HTTP/1.1" % (target or b"/livez"), b"Host: a"]
    lines += [b"X-%d: x" % number for number in range((fields or 1) - 1)]
    data = b"\r\n".join(lines) + b"\r\n"
    return data + (b"X: " + b"x" * (size - len(data) - 7) + b"\r\n" if size else b"") + b"\r\n"


@pytest.mark.parametrize("more", AROUND)
def test_a_head_may_have_the_limits_bytes_and_fields_and_not_one_more(server, more):
    heads = {431: [head_of(size=HEAD_BYTES + more), head_of(fields=FIELDS + more)],
        414: [head_of(target=b"/livez?" + b"x" * (TARGET_BYTES + more - 7))]}
    for status, refused in heads.items():
        for head in refused:
            with server.wire() as wire:
                wire.send(head)
                given = wire.answer()[0]
                assert given in ((200, 400) if more <= 0 else (status,)), (given, len(head))


# --- Numbers ---


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65])
def test_any_number_at_once_is_answered_each_once_and_in_order(free, count):
    with free.wire() as wire:
        answers = pipelined(wire, [begin_bytes(f"k{count}-{number}", number, lease="1h")
            for number in range(count)])
        assert [status for status, _ in answers] == [201] * count
        fences = [json.loads(body)["fence"] for _, body in answers]
        assert fences == sorted(set(fences))
        again = pipelined(wire, [begin_bytes(f"k{count}-{number}", number, lease="1h")
            for number in range(count)])
    assert [json.loads(body)["operation_id"] for _, body in again] == \
        [json.loads(body)["operation_id"] for _, body in answers]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_keys_max_keys_are_taken_and_the_next_is_refused(make_server, most):
    server = make_server(config=f"limits: {{keys_max: {most}, duplicate_rate: 0}}\n")
    assert [begin(server, f"k{number}")[0] for number in range(most)] == [201] * most
    status, problem = begin(server, "one more")
    assert status == 503 and "keys_max" in problem["detail"]
    assert [begin(server, f"k{number}")[0] for number in range(most)] == [202] * most


def test_keys_max_is_named_by_the_gateway_too(origin, make_gateway):
    gateway = make_gateway(limits={**DUPLICATES_FREE, "keys_max": 1})
    assert gateway.post("a").status == 200
    refused = gateway.post("b")
    assert (refused.status, refused.json["code"], origin.effects["b"]) == (503, "limit_reached", 0)
    assert "keys_max (1)" in refused.json["detail"]
    assert (refused.json["effect"], refused.json["retry"]) == ("no", "after")
    assert gateway.post("a").is_replay


@pytest.mark.parametrize("burst", [1, 2, 5])
def test_a_burst_of_duplicates_is_taken_and_the_next_is_refused(make_server, burst):
    config = f"limits: {{duplicate_rate: 1, duplicate_burst: {burst}}}\n"
    server = make_server(config=config)
    begin(server, "k")
    with server.wire() as wire:  # at once: a second would give one more
        answers = pipelined(wire, [begin_bytes("k", {})] * (burst + 3))
    statuses = [status for status, _ in answers]
    taken = statuses.count(202)
    assert taken == burst and statuses[taken:] == [429] * 3


# --- Bytes through the gateway ---


def numbers(size):
    """Bytes of which no piece looks like another."""
    data = b"".join(b"%07d\n" % number for number in range(size // 8 + 1))
    return data[:size]


SPOOL_BYTES, OUTCOME_BYTES = 16 << 10, 96 << 10
SIZES = sorted({size + more for more in AROUND for size in
    (1, SPOOL_BYTES, 64 << 10, OUTCOME_BYTES, TURN_BYTES, 2 * TURN_BYTES, 4 * TURN_BYTES)})


@pytest.fixture(scope="module")
def sizes():
    return {size: numbers(size) for size in SIZES}


@pytest.mark.parametrize("do", ["", "chunked=1", "until_close=1", "pieces=5&piece_ms=3"])
def test_an_answer_of_any_size_reaches_the_client_byte_for_byte(origin, make_gateway, sizes, do):
    gateway = make_gateway(gateway={"spool_memory": SPOOL_BYTES}, routes=[{"match": "POST /**"}],
        limits={**DUPLICATES_FREE, "outcome_bytes_max": OUTCOME_BYTES})
    plain = origin._make_body
    origin._make_body = lambda request, does: (
        sizes[int(request.key)] if request.key in map(str, SIZES) else plain(request, does))
    for size, expected in sizes.items():
        answer = gateway.post(str(size), do=do)
        assert (answer.status, len(answer.body)) == (200, size)
        assert answer.body == expected
        again = gateway.post(str(size), do=do)
        if size <= OUTCOME_BYTES:
            assert again.is_replay and again.body == expected
        else:
            assert again.status == 410
    assert origin.effects == {str(size): 1 for size in sizes}


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_of_any_size_reaches_the_upstream_byte_for_byte(origin, make_gateway, sizes,
        is_chunked):
    limit = 2 * TURN_BYTES
    gateway = make_gateway(gateway={"spool_memory": SPOOL_BYTES}, routes=[{"match": "POST /**"}],
        limits={**DUPLICATES_FREE, "body_bytes_max": limit})
    for size, body in sizes.items():
        framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {size}"
        data = b"".join(b"%x\r\n%s\r\n" % (len(body[at:at + 9999]), body[at:at + 9999])
            for at in range(0, size, 9999)) + b"0\r\n\r\n" if is_chunked else body
        with gateway.peer() as peer:
            try:
                peer.send(f"POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {size}\r\n"
                    f"Content-Type: text/plain\r\n{framing}\r\n\r\n".encode() + data)
            except Exception:
                assert size > limit  # it may be refused while it is sent
            status = peer.read("POST").status
        assert status == (200 if size <= limit else 413), size
        if size <= limit:
            assert bytes(origin.seen(str(size))[0].body) == body
        else:
            assert origin.effects[str(size)] == 0


@pytest.mark.parametrize("size, expected", [(1, 200), (254, 200), (255, 200), (256, 400)])
def test_a_key_field_has_255_bytes_at_most(origin, gateway, size, expected):
    for key in ("k" * size, '"' + "q" * size + '"'):
        assert gateway.post(key).status == expected
    assert origin.total == (2 if expected == 200 else 0)

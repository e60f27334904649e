"""What the server logs of a decision (OPS-12): one line of JSON, with the ids to search for."""
import json
import time

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def lines_of(server, event, count):
    """The lines of an event; they are written a moment after the answer."""
    deadline = time.monotonic() + 60
    while True:
        whole = [line for line in server.stderr().split("\n")[:-1] if line]
        lines = [line for line in map(json.loads, whole) if line["event"] == event]
        if len(lines) >= count or time.monotonic() > deadline:
            return lines
        time.sleep(0.02)


def test_a_decisions_line_has_every_id(server):
    begin = {"scope": "orders", "key": "k-1", "payload": {"card": "4242424242424242"},
        "source": {"type": "webhook", "id": "evt_7"}}
    _, _, grant = server.request("POST", "/v1/fences", begin,
        {"Request-Id": "req-1", "traceparent": TRACEPARENT})
    server.request("POST", f"/v1/fences/{grant['operation_id']}/seal", {"fence": grant["fence"],
        "status": "executed", "effect_id": "ch_1", "outcome": {"secret": "s3cret"}})
    server.request("POST", "/v1/fences", begin)
    first, sealed, replayed = lines_of(server, "decision", 3)
    assert first["idempotency_key"] == "k-1" and first["scope"] == "orders"
    assert first["decision"] == "first_seen" and first["operation_id"] == grant["operation_id"]
    assert first["source_type"] == "webhook" and first["source_id"] == "evt_7"
    assert first["request_id"] == "req-1" and first["tenant"] == "default"
    assert first["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert first["status"] == 201 and first["duration_us"] > 0
    assert "effect_id" not in first
    assert (sealed["decision"], sealed["effect_id"]) == ("sealed", "ch_1")
    assert (replayed["decision"], replayed["effect_id"]) == ("duplicate_replayed", "ch_1")
    assert all(line["idempotency_key"] == "k-1" for line in (sealed, replayed))
    assert "4242424242424242" not in server.stderr() and "s3cret" not in server.stderr()


def test_decisions_are_not_logged_where_the_file_says_so(make_server):
    server = make_server(config="log: {decisions: false}\n")
    for number in range(3):
        begin = {"scope": "s", "key": f"k-{number}", "payload": number}
        assert server.request("POST", "/v1/fences", begin)[0] == 201
    server.stop()
    assert lines_of(server, "decision", 0) == []
    assert lines_of(server, "started", 1)

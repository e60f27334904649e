"""The inbox over the real binary: senders that sign, a handler that counts."""
import concurrent.futures
import gzip
import hashlib
import json
import random
import threading
import time

import pytest

import stores
from inbox_help import SECRET, body_of, signed, source_yaml
from once_server import LIGHT, LONG, until
from test_openapi import check

PRESETS = ["stripe", "github", "shopify", "slack", "meta", "standard_webhooks", "svix", "hmac",
           "cloudevents", "effect", "none"]
QUICK = "retry: {attempts: 4, backoff: 20ms, backoff_max: 50ms}\n"


@pytest.fixture
def inbox(make_server, handler, secret):
    """A server with sources: inbox(name=preset) or inbox(name=(preset, more YAML))."""
    def make(extra="", **sources):
        text = "inbox:\n  sources:\n"
        for name, what in sources.items():
            preset, more = what if isinstance(what, tuple) else (what, "")
            text += source_yaml(name, preset, handler, secret, more)
        return make_server(config=text + extra)

    return make


def send(server, source, preset, event_id="e1", value=1, **how):
    body = body_of(preset, event_id, value)
    return server.request("POST", f"/in/{source}", body, signed(preset, body, event_id, **how))


def deliveries(server, **filters):
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    status, _, page = server.request("GET", f"/v1/deliveries?{query}")
    assert status == 200, page
    return page["deliveries"]


def settled(server, status="executed", count=1, **filters):
    until(lambda: len(deliveries(server, status=status, **filters)) == count,
          f"not {count} {status}")
    return deliveries(server, status=status, **filters)


@pytest.mark.parametrize("preset", PRESETS)
def test_an_event_of_each_sender_is_delivered_once(inbox, handler, preset):
    server = inbox(s=(preset, "key: {json: /id}" if preset == "hmac" else ""))
    is_sync = preset == "effect"
    first = send(server, "s", preset)
    assert first[0] == 200, first
    if not is_sync:
        assert [r["decision"] for r in first[2]["receipts"]] == ["first_seen"]
        assert first[2]["receipts"][0]["delivery_id"].startswith("dlv_")
    until(lambda: handler.count() == 1, "not delivered")
    one = settled(server)[0]
    assert one["source"] == "s" and one["attempt"] == 1 and one["handler_status"] == 200
    again = send(server, "s", preset)
    assert again[0] == 200
    if is_sync:
        assert again[2] == first[2] == {"did": 1}
        assert again[1]["Once-Decision"] == "duplicate_replayed"
    else:
        assert again[2]["receipts"] == [{"delivery_id": one["delivery_id"],
            "decision": "duplicate_replayed", "receipt": {"did": 1}}]
    time.sleep(0.3)
    assert handler.count() == 1
    call = handler.calls[0]
    assert json.loads(call["body"]) == json.loads(body_of(preset))
    assert call["headers"]["Once-Delivery-Id"] == one["delivery_id"]
    assert call["headers"]["Once-Source"] == "s" and call["path"] == "/s"
    assert call["key"] == one["key"]
    if preset == "github":
        assert call["headers"]["X-GitHub-Event"] == "push"


def test_a_compressed_event_is_named_as_such_to_its_handler(inbox, handler):
    server = inbox(s="github")
    body = gzip.compress(body_of("github"))
    fields = {**signed("github", body), "Content-Type": "application/json",
        "Content-Encoding": "gzip"}
    assert server.request("POST", "/in/s", body, fields)[0] == 200
    settled(server)
    call = handler.calls[0]
    assert call["body"] == body and call["headers"]["Content-Encoding"] == "gzip"
    assert call["headers"]["Content-Type"] == "application/json"


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_not_signed_is_refused_and_nothing_is_remembered(inbox, handler, preset):
    server = inbox(s=preset)
    good = body_of(preset)
    fields = signed(preset, good)
    changed = good.replace(b"1", b"2")
    refused = [server.request("POST", "/in/s", good, signed(preset, good, key=b"x" * 24)),
               server.request("POST", "/in/s", good)]
    if preset not in ("cloudevents", "effect", "none"):
        refused.append(server.request("POST", "/in/s", changed, fields))
    if preset in ("stripe", "slack", "standard_webhooks", "svix"):
        now = int(time.time())
        refused += [server.request("POST", "/in/s", good, signed(preset, good, at=now + off))
                    for off in (-400, 400)]
    for status, _, problem in refused:
        assert status == 401
        assert problem["code"] == "signature_invalid"
        assert problem["detail"] == refused[0][2]["detail"]  # one answer for every reason
    assert deliveries(server) == [] and handler.count() == 0
    assert server.request("GET", "/v1/evidence")[2]["entries"] == []


# What the signature covers, beside the body; a bearer token is covered by itself.
SIGNED_FIELDS = {"stripe": ["Stripe-Signature"], "github": ["X-Hub-Signature-256"],
    "shopify": ["X-Shopify-Hmac-SHA256"], "slack": ["X-Slack-Request-Timestamp",
    "X-Slack-Signature"], "meta": ["X-Hub-Signature-256"], "hmac": ["X-Signature"],
    "standard_webhooks": ["webhook-id", "webhook-timestamp", "webhook-signature"],
    "svix": ["svix-id", "svix-timestamp", "svix-signature"]}
MUTATIONS = 1250 if LONG else 100  # of each: 10,000 in all
TAMPERED_AT_ONCE = 50


def changed_text(source, text):
    """A byte more, less or different."""
    at, byte = source.randrange(len(text)), bytes([source.choice(range(0x21, 0x7f))])
    return source.choice([text[:at] + text[at + 1:], text[:at] + byte + text[at + 1:],
        text[:at] + byte + text[at:], text[:at] + text[at:at + 2][::-1] + text[at + 2:]])


def tampered(source, preset, body, fields):
    """The bytes of a request that differs from the signed one in one place that is signed."""
    pairs = [(name, value.encode()) for name, value in fields.items()]
    while True:
        place = source.choice(["body", *SIGNED_FIELDS[preset]])
        bad = body if place != "body" else changed_text(source, body)
        made = [(name, value if name != place else changed_text(source, value))
            for name, value in pairs]
        doubled = [pair for pair in pairs if pair[0] == place]
        if doubled and source.random() < 0.1:
            bad, made = body, pairs + doubled
        elif doubled and source.random() < 0.05:
            bad, made = body, [pair for pair in pairs if pair[0] != place]
        if (bad, made) != (body, pairs):
            break
    head = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in made)
    return (b"POST /in/s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(bad) + head +
        b"\r\n" + bad)


@pytest.mark.parametrize("preset", SIGNED_FIELDS)
def test_no_tampered_request_is_accepted(inbox, handler, preset):
    server, source = inbox(s=preset), random.Random(14)
    body = body_of(preset)
    with server.wire() as wire:
        for _ in range(0, MUTATIONS, TAMPERED_AT_ONCE):
            fields = signed(preset, body)  # young enough, however slow the machine is
            asked = [tampered(source, preset, body, fields) for _ in range(TAMPERED_AT_ONCE)]
            wire.send(b"".join(asked))
            for request in asked:
                status, _, answer = wire.answer_bytes("POST")
                assert status in (401, 429), (status, request, answer)
    assert deliveries(server) == [] and handler.count() == 0
    assert server.request("GET", "/v1/evidence")[2]["entries"] == []
    assert send(server, "s", preset)[0] == 200  # and the one as it was


def test_any_of_several_secrets_verifies(make_server, handler, tmp_path):
    (tmp_path / "new").write_text("a new secret\n")
    server = make_server(config=f"""
inbox:
  sources:
    s:
      preset: github
      secrets: [{{file: {tmp_path / 'new'}}}, {{env: OLD_SECRET}}]
      handler: {handler.url}/s
""", env={"OLD_SECRET": SECRET})
    assert send(server, "s", "github", "a")[0] == 200
    assert send(server, "s", "github", "b", key=b"a new secret")[0] == 200
    assert send(server, "s", "github", "c", key=b"another")[0] == 401


def test_an_unknown_source_is_404(inbox):
    server = inbox(s="github")
    assert server.request("POST", "/in/t", b"{}")[2]["code"] == "unknown_source"


def test_what_a_sender_puts_into_its_query_is_ignored(inbox, handler):
    """Senders let a URL be registered with a query, and add to it themselves."""
    server = inbox(g="github", m=("meta", "verify_token: typed"), c="cloudevents")
    body = body_of("github")
    queries = "?tenant=acme&tenant=2", "?", "?%ff=%fe", "?a=" + 400 * "b&a="
    for number, query in enumerate(queries):
        status, _, answer = server.request(
            "POST", f"/in/g{query}", body, signed("github", body))
        assert status == 200, (query, answer)
        assert answer["receipts"][0]["decision"] == \
            ("duplicate_replayed" if number else "first_seen"), query
        if number == 0:
            settled(server)
    query = "x=1&hub.mode=subscribe&hub.challenge=42&hub.verify_token=typed"
    assert server.request("GET", f"/in/m?{query}")[::2] == (200, "42")
    assert server.request("GET", f"/in/m?{query}&hub.mode=subscribe")[0] == 400
    assert server.request("OPTIONS", "/in/c?x=1", None,
        {"WebHook-Request-Origin": "example.com"})[0] == 200
    one = deliveries(server)[0]
    assert one["operation_id"] == one["delivery_id"]
    assert handler.count() == 1


def test_another_payload_under_one_id_is_409(inbox, handler):
    server = inbox(s="stripe")
    handler.answers = [(200, {"Once-Effect-Id": "receipt-of-the-first"})]
    assert send(server, "s", "stripe", value=1)[0] == 200
    settled(server)
    status, _, problem = send(server, "s", "stripe", value=2)
    assert status == 409 and problem["code"] == "idempotency_conflict"
    assert "receipt-of-the-first" not in json.dumps(problem)
    assert handler.count() == 1


def test_an_id_that_is_not_signed_does_not_dedupe_alone(inbox, handler):
    server = inbox(s="github")
    assert send(server, "s", "github", "same", 1)[2]["receipts"][0]["decision"] == "first_seen"
    assert send(server, "s", "github", "same", 2)[2]["receipts"][0]["decision"] == "first_seen"
    settled(server, count=2)
    assert handler.count() == 2


def test_a_body_with_several_events_is_several_deliveries_in_one_commit(inbox, handler):
    server = inbox(s="meta", c="cloudevents")
    messages = [{"id": f"wamid.{i}"} for i in range(5)]
    body = json.dumps({"object": "page", "entry": [{"id": "1", "changes": [
        {"field": "messages", "value": {"metadata": {"n": 1}, "messages": messages}}]}]}).encode()
    status, _, answer = server.request("POST", "/in/s", body, signed("meta", body))
    assert status == 200 and len(answer["receipts"]) == 5
    settled(server, count=5)
    for call in handler.calls:
        inner = json.loads(call["body"])["entry"][0]["changes"][0]["value"]
        assert inner["metadata"] == {"n": 1}
        assert [m["id"] for m in inner["messages"]] == [call["key"]]
    events = [json.loads(body_of("cloudevents", f"c{i}")) for i in range(3)]
    body = json.dumps(events).encode()
    fields = {**signed("cloudevents", body), "Content-Type": "application/cloudevents-batch+json"}
    assert len(server.request("POST", "/in/c", body, fields)[2]["receipts"]) == 3
    settled(server, count=3, source="c")
    # One that was sent again beside a new one: only the new one is delivered.
    body = json.dumps(events[:1] + [json.loads(body_of("cloudevents", "c9"))]).encode()
    answer = server.request("POST", "/in/c", body, {**fields, **signed("cloudevents", body),
        "Content-Type": "application/cloudevents-batch+json"})[2]
    assert [r["decision"] for r in answer["receipts"]] == ["duplicate_replayed", "first_seen"]


def test_a_batch_of_which_one_does_not_fit_is_refused_and_sent_again(inbox, handler):
    """The sender repeats all of it; what was stored is then a duplicate."""
    server = inbox("limits: {keys_max: 1}\n", c="cloudevents")
    body = json.dumps([json.loads(body_of("cloudevents", f"c{i}")) for i in range(2)]).encode()
    fields = {**signed("cloudevents", body), "Content-Type": "application/cloudevents-batch+json"}
    for _ in range(2):
        status, _, problem = server.request("POST", "/in/c", body, fields)
        assert status == 503 and "keys_max" in problem["detail"], problem
    settled(server, count=1)
    assert [call["key"] for call in handler.calls] == [settled(server)[0]["key"]]


def test_handshakes_answer_and_remember_nothing(inbox):
    server = inbox(m=("meta", "verify_token: typed"), k="slack", c="cloudevents", g="github")
    query = "hub.mode=subscribe&hub.challenge=42&hub.verify_token="
    assert server.request("GET", f"/in/m?{query}typed")[::2] == (200, "42")
    assert server.request("GET", f"/in/m?{query}wrong")[0] == 403
    assert server.request("GET", "/in/m?hub.mode=subscribe&hub.challenge=42")[0] == 403
    assert server.request("GET", f"/in/g?{query}typed")[0] == 404
    body = b'{"type":"url_verification","challenge":"c4"}'
    assert server.request("POST", "/in/k", body, signed("slack", body))[::2] == (200, "c4")
    assert server.request("POST", "/in/k", body)[0] == 401
    status, fields, _ = server.request("OPTIONS", "/in/c", None,
        {"WebHook-Request-Origin": "example.com"})
    assert status == 200 and fields["WebHook-Allowed-Origin"] == "example.com"
    assert deliveries(server) == []


def test_the_handlers_contract(inbox, handler):
    server = inbox(s=("stripe", QUICK))
    for event_id, answers, status, calls in [
            ("a", [500, 503, 429], "executed", 4), ("b", [404], "failed", 1),
            ("c", [(200, {"Once-Effect": "no"})], "executed", 2),
            ("d", [500, 500, 500, 500], "dead_letter", 4),
            ("e", [(500, {"Once-Effect": "unknown"})], "unknown", 1),
            ("f", ["drop"], "unknown", 1),
            ("g", [(200, {"Once-Effect-Id": "receipt-7"})], "executed", 1)]:
        handler.answers = list(answers)
        assert send(server, "s", "stripe", event_id)[0] == 200
        one = settled(server, status, 1, key=event_id)[0]
        assert handler.count(event_id) == calls, event_id
        fences = [call["fence"] for call in handler.calls if call["key"] == event_id]
        assert fences == sorted(set(fences)) and one["attempt"] == calls
    assert deliveries(server, key="g")[0]["receipt"] == "receipt-7"


def test_a_handler_that_is_not_there_is_tried_again(inbox, handler):
    server = inbox(s=("stripe", QUICK))
    handler.close()
    assert send(server, "s", "stripe")[0] == 200
    one = settled(server, "dead_letter")[0]
    assert one["attempt"] == 4 and "reason" in one


def test_an_unknown_one_is_held_and_resolved_by_a_person(inbox, handler):
    server = inbox(s="stripe")
    handler.answers = ["drop"]
    send(server, "s", "stripe")
    one = settled(server, "unknown")[0]
    path = f"/v1/deliveries/{one['delivery_id']}"
    assert send(server, "s", "stripe")[2]["receipts"][0]["decision"] == "held_unknown"
    assert server.request("POST", path + "/redeliver", {})[2]["code"] == "outcome_unknown"
    status, _, done = server.request("POST", path + "/resolve",
        {"status": "not_executed", "reason": "asked the shop"})
    assert status == 200 and done["status"] == "pending"
    assert settled(server)[0]["attempt"] == 2
    assert handler.count() == 2


def test_redeliver_calls_again_with_a_higher_fence(inbox, handler):
    server = inbox(s=("stripe", "on_unknown: redeliver\n" + QUICK))
    handler.answers = ["drop", "drop"]
    send(server, "s", "stripe")
    assert settled(server)[0]["attempt"] == 3
    assert [c["attempt"] for c in handler.calls] == [1, 2, 3]


@pytest.mark.parametrize("answers", [["drop"] * 4, ["drop", 500, 500, 500],
    [(500, {"Once-Effect": "unknown"}), 500, 500, 500]])
def test_a_dead_letter_says_that_an_attempt_may_have_happened(inbox, handler, answers):
    server = inbox(s=("stripe", "on_unknown: redeliver\n" + QUICK))
    handler.answers = list(answers)
    send(server, "s", "stripe", "a")
    one = settled(server, "dead_letter", 1, key="a")[0]
    assert (one["uncertain"], one["attempt"]) == (True, 4)  # P5
    assert server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})[0] == 200
    assert "uncertain" not in settled(server, key="a")[0]  # it happened
    handler.answers = [500] * 4
    send(server, "s", "stripe", "b")
    assert "uncertain" not in settled(server, "dead_letter", 1, key="b")[0]


def test_a_late_answer_of_an_earlier_attempt_changes_nothing(inbox, handler):
    server = inbox(s=("stripe", "on_unknown: redeliver\nretry: {attempts: 100, backoff: 10ms}\n"
        "timeout: {first_byte: 1s, total: 1s}\n"))
    late = threading.Event()
    handler.answers = [late]
    send(server, "s", "stripe")
    path = "/v1/deliveries/" + settled(server)[0]["delivery_id"]
    one = server.request("GET", path)[2]
    assert one["attempt"] >= 2 and one["receipt"] == {"did": one["attempt"]}
    fences = [call["fence"] for call in handler.calls]
    assert fences == sorted(set(fences)) and one["fence"] == fences[-1]
    late.set()
    until(lambda: handler.is_answered(1), "the first call does not end")
    assert server.request("GET", path)[2] == one
    assert send(server, "s", "stripe")[2]["receipts"][0]["receipt"] == one["receipt"]


def test_reconcile_asks_the_handlers_server(inbox, handler):
    server = inbox(s=("stripe", 'on_unknown: reconcile\n'
        'reconcile: {get: "/by-key/{key}", executed: [200], not_executed: [404], quiet: 0s}\n'
        + QUICK))
    handler.known["/by-key/happened"] = 200
    handler.answers = ["drop"]
    send(server, "s", "stripe", "happened")
    settled(server, key="happened")
    assert handler.count("happened") == 1
    handler.answers = ["drop"]
    send(server, "s", "stripe", "lost")
    settled(server, key="lost")
    assert handler.count("lost") == 2
    # A process that is configured differently may have parked it, and delivered what follows (N9).
    entries = server.request("GET", "/v1/evidence?limit=100")[2]["entries"]
    again = [entry["decided"] for entry in entries if entry.get("decided", {}).get("request")
        == "resolve" and entry["decided"]["status"] == "pending"]
    assert len(again) == 1 and again[0]["wanted_version"] == again[0]["version"] > 0


def test_people_redeliver_and_skip_dead_letters(inbox, handler):
    server = inbox(s=("stripe", "retry: {attempts: 1}"))
    handler.answers = [500, 500]
    for event_id in ("a", "b"):
        send(server, "s", "stripe", event_id)
        settled(server, "dead_letter", 1, key=event_id)
    ids = {one["key"]: one["delivery_id"] for one in deliveries(server)}
    assert server.request("POST", f"/v1/deliveries/{ids['a']}/redeliver", {})[0] == 200
    settled(server, key="a")
    status, _, one = server.request("POST", f"/v1/deliveries/{ids['b']}/skip",
        {"reason": "not ours"})
    assert status == 200 and one["status"] == "failed" and one["reason"] == "not ours"
    assert server.request("POST", f"/v1/deliveries/{ids['a']}/skip", {})[0] == 409
    assert server.request("POST", "/v1/deliveries/dlv_none/skip", {})[0] == 404
    assert handler.count("b") == 1


def test_after_its_deadline_a_delivery_is_not_tried_again(inbox, handler):
    server = inbox(s=("stripe", "retry: {attempts: 100, backoff: 400ms, backoff_max: 400ms, "
        "deadline: 1s}"))
    handler.answers = [500] * 100
    begun = time.monotonic()
    send(server, "s", "stripe")
    settled(server, "dead_letter")
    assert time.monotonic() - begun < 5
    assert 1 < handler.count("e1") < 20 and handler.calls[-1]["at"] - handler.calls[0]["at"] < 1


RECONCILED = ("on_unknown: reconcile\n"
    'reconcile: {get: "/by-key/{key}", executed: [200], not_executed: [404], quiet: 0s}\n')


@pytest.mark.parametrize("limit,calls", [("deadline: 1s", 1), ("attempts: 2", 2)])
def test_what_did_not_happen_is_not_called_past_its_limits(inbox, handler, limit, calls):
    """The handler's server is asked, and says so a second after the call."""
    server = inbox(s=("stripe", RECONCILED + f"retry: {{backoff: 10ms, {limit}}}\n"))
    handler.answers = ["drop"] * 9
    send(server, "s", "stripe")
    one = settled(server, "dead_letter")[0]
    assert (one["attempt"], handler.count()) == (calls, calls)
    assert "uncertain" not in one
    handler.answers = []
    assert server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})[0] == 200
    settled(server)
    assert handler.count() == calls + 1


def test_a_call_that_a_kill_cut_is_not_repeated_after_its_deadline(inbox, handler):
    """The server was away. The handler may have done it, and a person decides."""
    server = inbox(s=("stripe", "on_unknown: redeliver\n"
        "retry: {attempts: 100, backoff: 10ms, deadline: 2s}\n"))
    handler.answers = [threading.Event()]
    send(server, "s", "stripe")
    until(lambda: handler.count() == 1, "it is not called")
    server.kill9()
    time.sleep(2.5)
    server.start()
    one = settled(server, "dead_letter")[0]
    assert (one["uncertain"], one["attempt"], handler.count()) == (True, 1, 1)  # P5
    assert server.request("POST", f"/v1/deliveries/{one['delivery_id']}/redeliver", {})[0] == 200
    settled(server)
    assert handler.count() == 2


def test_older_versions_are_stale_and_gaps_do_not_wait(inbox, handler):
    server = inbox(s=("stripe", "order: {source_id: /object, version: /created}"))

    def post(event_id, version, thing="pi_1"):
        body = json.dumps({"id": event_id, "created": version, "object": thing}).encode()
        return server.request("POST", "/in/s", body, signed("stripe", body))[2]["receipts"][0]

    assert post("a", 10)["decision"] == "first_seen"
    settled(server, key="a")
    assert post("b", 9)["decision"] == "stale_version"
    assert post("c", 30)["decision"] == "first_seen"
    settled(server, key="c")
    assert post("d", 20)["decision"] == "stale_version"
    assert post("e", 5, "pi_2")["decision"] == "first_seen"
    settled(server, key="e")
    assert [c["key"] for c in handler.calls] == ["a", "c", "e"]


def test_an_older_version_that_waited_is_dropped_as_stale(inbox, handler):
    server = inbox(s=("stripe", "order: {source_id: /object, version: /created}"))
    handler.gate.clear()
    for event_id, version in (("new", 20), ("old", 10), ("newer", 30)):
        body = json.dumps({"id": event_id, "created": version, "object": "x"}).encode()
        answer = server.request("POST", "/in/s", body, signed("stripe", body))[2]
        assert answer["receipts"][0]["decision"] == "first_seen"
    handler.gate.set()
    settled(server, count=2)
    one = settled(server, "failed", 1, key="old")[0]
    assert one["attempt"] == 0 and one["reason"].startswith("stale")
    assert [c["key"] for c in handler.calls] == ["new", "newer"]
    entries = server.request("GET", "/v1/evidence?limit=100")[2]["entries"]
    assert "delivery.stale" in [entry["type"] for entry in entries]


def test_a_poison_head_is_parked_and_those_after_it_go_on(inbox, handler):
    server = inbox(s=("stripe", "order: {source_id: /object, version: /created}\n" + QUICK))
    handler.answers = [500] * 4
    for version in (1, 2, 3):
        body = json.dumps({"id": f"v{version}", "created": version, "object": "x"}).encode()
        server.request("POST", "/in/s", body, signed("stripe", body))
    settled(server, "dead_letter", 1, key="v1")
    settled(server, count=2)
    assert [c["key"] for c in handler.calls] == ["v1"] * 4 + ["v2", "v3"]


def test_a_skipped_version_does_not_outdate_the_ones_before_it(inbox, handler):
    server = inbox(s=("stripe", "order: {source_id: /object, version: /created}\n" + QUICK))
    handler.answers = [500] * 4

    def post(version):
        body = json.dumps({"id": f"v{version}", "created": version, "object": "x"}).encode()
        return server.request("POST", "/in/s", body, signed("stripe", body))[2]["receipts"][0]

    assert post(9)["decision"] == "first_seen"
    one = settled(server, "dead_letter", 1, key="v9")[0]
    server.request("POST", f"/v1/deliveries/{one['delivery_id']}/skip", {"reason": "not ours"})
    assert post(7)["decision"] == "first_seen"
    settled(server, key="v7")
    assert post(6)["decision"] == "stale_version"
    assert [c["key"] for c in handler.calls] == ["v9"] * 4 + ["v7"]


def test_the_evidence_has_each_step_of_a_delivery(inbox, handler):
    server = inbox(s=("stripe", "retry: {attempts: 2, backoff: 20ms}"))
    handler.answers = [500, 500]
    send(server, "s", "stripe")
    one = settled(server, "dead_letter")[0]
    server.request("POST", f"/v1/deliveries/{one['delivery_id']}/skip", {"reason": "r"})
    entries = server.request("GET", "/v1/evidence?limit=100")[2]["entries"]
    assert [entry["type"] for entry in entries if entry["type"] != "access.read"] == [
        "delivery.received", "execution.started", "delivery.retried", "execution.started",
        "delivery.dead_lettered", "delivery.skipped"]
    decided = entries[-1]["decided"]
    assert decided["wanted_version"] == decided["version"] > 0  # only what was read is skipped
    server.stop()
    done = server.cli("verify", "--redecide", "--store", server.store)
    assert done.returncode == 0, done.stderr


def test_versions_of_one_thing_are_delivered_one_at_a_time(inbox, handler):
    server = inbox(s=("stripe", "order: {source_id: /object, version: /created}"))
    handler.pause_s = 0.3
    for version in range(1, 5):
        body = json.dumps({"id": f"v{version}", "created": version, "object": "x"}).encode()
        assert server.request("POST", "/in/s", body, signed("stripe", body))[0] == 200
    body = json.dumps({"id": "other", "created": 1, "object": "y"}).encode()
    server.request("POST", "/in/s", body, signed("stripe", body))
    settled(server, count=5)
    times = [c["at"] for c in handler.calls if c["key"] != "other"]
    assert [c["key"] for c in handler.calls if c["key"] != "other"] == ["v1", "v2", "v3", "v4"]
    assert all(b - a >= 0.29 for a, b in zip(times, times[1:]))


def test_sync_gives_the_handlers_answer(inbox, handler):
    server = inbox(s=("stripe", "mode: sync\n" + QUICK))
    handler.answers = [(201, {"X-Odd": "1"})]
    status, fields, answer = send(server, "s", "stripe")
    assert (status, answer) == (201, {"did": 1}) and fields["Once-Decision"] == "first_seen"
    status, fields, answer = send(server, "s", "stripe")
    assert (status, answer) == (201, {"did": 1})
    assert fields["Once-Decision"] == "duplicate_replayed"
    handler.answers = ["drop"]
    assert send(server, "s", "stripe", "b")[0] == 504
    handler.answers = [503]
    status, fields, problem = send(server, "s", "stripe", "c")
    assert status == 503 and problem["code"] == "delivery_pending" and "Retry-After" in fields
    settled(server, key="c")
    assert send(server, "s", "stripe", "c")[0] == 200


@stores.journal_only("its files are read")
def test_bodies_are_not_readable_at_rest(inbox, handler):
    server = inbox(s=("stripe", QUICK))
    handler.answers = [503] * 3
    body = b'{"id":"evt","card":"4242424242424242"}'
    assert server.request("POST", "/in/s", body, signed("stripe", body))[0] == 200
    settled(server)
    server.stop()
    for path in server.data_dir.rglob("*"):
        if path.is_file():
            assert b"4242424242424242" not in path.read_bytes(), path
    assert (server.data_dir / "body.key").stat().st_mode & 0o777 == 0o600


def test_many_duplicates_at_once_are_delivered_once(inbox, handler):
    server = inbox(s="github")
    events, copies = (10, 20) if LIGHT else (50, 200) if not LONG else (1000, 200)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        def one(number):
            return send(server, "s", "github", f"e{number % events}", number % events)[2]
        answers = list(pool.map(one, range(events * copies)))
    firsts = sum(r["decision"] == "first_seen" for a in answers for r in a["receipts"])
    assert firsts == events
    until(lambda: handler.count() == events, "not all delivered")
    time.sleep(0.3)
    assert handler.count() == events


def test_a_flood_of_bad_signatures_does_not_starve_good_ones(inbox, handler):
    server = inbox(s="github")
    body = body_of("github")
    bad = signed("github", body, key=b"wrong")
    with server.wire() as wire:
        statuses = [wire.request("POST", "/in/s", body, bad)[0] for _ in range(300)]
        assert set(statuses) == {401, 429}
        assert send(server, "s", "github")[0] == 200


def test_people_use_the_command_line(inbox, handler, tmp_path):
    server = inbox(s=("stripe", "retry: {attempts: 1}"))
    where = server.reached
    handler.answers = [500, 500, "drop"]
    ids = {}
    for event_id, status in (("a", "dead_letter"), ("b", "dead_letter"), ("c", "unknown")):
        send(server, "s", "stripe", event_id)
        ids[event_id] = settled(server, status, 1, key=event_id)[0]["delivery_id"]
    listed = server.cli("ls", "deliveries", "--status", "dead_letter", *where)
    assert listed.returncode == 0 and listed.stdout.count("dlv_") == 2, listed
    assert len(json.loads(server.cli("ls", "deliveries", "--json", *where).stdout)) == 3
    shown = server.cli("show", ids["a"], *where)
    assert "dead_letter" in shown.stdout and "delivery.dead_lettered" in shown.stdout, shown
    assert server.cli("redeliver", ids["a"], *where).returncode == 0
    settled(server, key="a")
    assert server.cli("skip", ids["b"], "--reason", "r", *where).returncode == 0
    assert server.cli("skip", ids["a"], *where).returncode != 0
    assert server.cli("redeliver", ids["c"], *where).returncode != 0
    done = server.cli("resolve", ids["c"], "--status", "executed", "--reason", "asked",
        *where)
    assert done.returncode == 0 and "executed" in done.stdout, done
    assert server.cli("skip", "op_1", *where).returncode == 64


def test_the_beginning_of_a_delivery_s_id_is_enough(inbox, handler):
    server = inbox(s=("stripe", "retry: {attempts: 1}"))

    def cli(*words):
        return server.cli(*words, *server.reached)
    handler.answers = [500, "drop"]
    send(server, "s", "stripe", "a")
    dead = settled(server, "dead_letter", 1, key="a")[0]["delivery_id"]
    for beginning in ("dlv_", dead[:-1]):
        assert json.loads(cli("show", beginning, "--json").stdout)["delivery_id"] == dead
        assert cli("why", beginning).returncode == 0
    send(server, "s", "stripe", "b")
    unknown = settled(server, "unknown", 1, key="b")[0]["delivery_id"]
    for verb in ("show", "why", "redeliver", "skip", "resolve"):
        more = ["--status", "executed", "--reason", "r"] if verb == "resolve" else []
        several = cli(verb, "dlv_", *more)
        assert (several.returncode, several.stdout) == (65, ""), several
        assert several.stderr.startswith("once: 2 deliveries match; name one of them\n")
        assert f'  {unknown}  unknown  source "s", key "b"\n' in several.stderr
        absent = cli(verb, "dlv_ffff", *more)
        assert absent.returncode == 65 and "no delivery that begins with" in absent.stderr
    done = cli("resolve", unknown[:-1], "--status", "executed", "--reason", "asked")
    assert (done.returncode, done.stdout) == (0, f"{unknown} is executed\n"), done
    assert cli("redeliver", dead[:-1]).returncode == 0
    settled(server, key="a")
    handler.answers = [500]
    send(server, "s", "stripe", "c")
    third = settled(server, "dead_letter", 1, key="c")[0]["delivery_id"]
    assert cli("skip", third[:-1]).stdout.startswith(third)


def test_a_source_is_tried_out_without_a_server(inbox, handler, tmp_path):
    server = inbox(s=("stripe", "order: {source_id: /object, version: /created}"))
    config, body, head = server.directory / "once.yaml", tmp_path / "body", tmp_path / "headers"
    body.write_text('{"id":"evt_9","created":7,"object":"pi_1"}')
    (tmp_path / "secret").write_text(SECRET)
    made = server.cli("inbox", "sign", "stripe", "--secret-file", tmp_path / "secret", "--body",
        f"@{body}")
    assert made.returncode == 0, made
    head.write_text(made.stdout)
    test = ["inbox", "test", "s", "--config", config, "--body", f"@{body}", "--header"]
    done = server.cli(*test, f"@{head}")
    assert done.returncode == 0 and "key evt_9  version 7 of pi_1" in done.stdout, done
    said = json.loads(server.cli(*test, f"@{head}", "--json").stdout)
    assert said["accepted"] and said["window"] == "744h" and said["signature"] == "ok"
    assert SECRET not in json.dumps(said)
    done = server.cli(*test, "Stripe-Signature: t=1,v1=00")
    assert done.returncode == 65 and "malformed" in done.stdout
    assert server.cli("inbox", "sign", "nobody", "--secret-file", head).returncode == 64
    assert deliveries(server) == [] and handler.count() == 0
    fields = dict(line.split(": ", 1) for line in made.stdout.splitlines())
    assert server.request("POST", "/in/s", body.read_bytes(), fields)[0] == 200


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_signed_for_a_trial_is_accepted(inbox, handler, tmp_path, preset):
    """As somebody does it who tries out a source: sign, test, send."""
    server = inbox(s=preset)
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "body").write_bytes(body_of(preset))
    made = server.cli("inbox", "sign", preset, "--secret-file", tmp_path / "secret", "--body",
        f"@{tmp_path / 'body'}")
    assert made.returncode == 0, made
    (tmp_path / "headers").write_text(made.stdout)
    done = server.cli("inbox", "test", "s", "--config", server.directory / "once.yaml", "--json",
        "--body", f"@{tmp_path / 'body'}", "--header", f"@{tmp_path / 'headers'}")
    said = json.loads(done.stdout)
    assert done.returncode == 0 and said["accepted"] and len(said["events"]) == 1, done
    assert said["secret_file"] == str(tmp_path / "secret") and said["preset"] == preset
    fields = dict(line.split(": ", 1) for line in made.stdout.splitlines())
    assert server.request("POST", "/in/s", body_of(preset), fields)[0] == 200
    one = settled(server)[0]
    assert one["key"] == said["events"][0]["key"]
    if preset == "cloudevents":
        assert fields["Content-Type"] == "application/cloudevents+json"
        batch = server.cli("inbox", "sign", preset, "--secret-file", tmp_path / "secret", "--body",
            "[" + body_of(preset).decode() + "]")
        assert "Content-Type: application/cloudevents-batch+json\n" in batch.stdout


def test_every_answer_is_as_the_document_says(inbox, handler):
    server = inbox(s=("stripe", "retry: {attempts: 1}"))
    check("receive", send(server, "s", "stripe", "a"))
    settled(server, key="a")
    check("receive", send(server, "s", "stripe", "a"))
    check("receive", send(server, "s", "stripe", "a", 2))
    check("receive", server.request("POST", "/in/s", b"{}"))
    check("receive", server.request("POST", "/in/none", b"{}"))
    handler.answers = ["drop", 500, 500]
    ids = {}
    for event_id, status in (("b", "unknown"), ("c", "dead_letter"), ("d", "dead_letter")):
        send(server, "s", "stripe", event_id)
        ids[event_id] = settled(server, status, 1, key=event_id)[0]["delivery_id"]
    check("listDeliveries", server.request("GET", "/v1/deliveries?limit=2"))
    check("listDeliveries", server.request("GET", "/v1/deliveries?status=wrong"))
    for one in ids.values():
        check("getDelivery", server.request("GET", f"/v1/deliveries/{one}"))
    check("getDelivery", server.request("GET", "/v1/deliveries/dlv_0"))
    for name, event_id, body in (("resolve", "b", {"status": "executed", "reason": "r",
            "outcome": {"a": 1}}), ("resolve", "b", {"status": "maybe", "reason": "r"}),
            ("resolve", "c", {"status": "executed", "reason": "r"}), ("redeliver", "c", {}),
            ("skip", "d", {"reason": "r"}), ("skip", "b", {}), ("skip", "b", {"odd": 1})):
        check(name + "Delivery",
            server.request("POST", f"/v1/deliveries/{ids[event_id]}/{name}", body))


def test_deliveries_ask_for_their_rights_and_stay_with_their_tenant(make_server, handler, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    rows = "".join(f'    - {{sha256: "{hashlib.sha256(name.encode()).hexdigest()}", '
                   f'tenant: {tenant}, rights: [{right}]}}\n' for name, tenant, right in
                   (("mine", "acme", "operate"), ("reads", "acme", "audit"),
                    ("other", "rival", "operate")))
    server = make_server(config="auth:\n  tokens:\n" + rows + "inbox:\n  sources:\n" +
        source_yaml("s", "stripe", handler, tmp_path / "secret", "tenant: acme"))

    def ask(token, method, path, body=None):
        return server.request(method, path, body, {"Authorization": f"Bearer {token}"})

    assert send(server, "s", "stripe")[0] == 200  # no token: the signature is what counts
    until(lambda: ask("reads", "GET", "/v1/deliveries?status=executed")[2]["deliveries"], "late")
    one = ask("mine", "GET", "/v1/deliveries")[2]["deliveries"][0]["delivery_id"]
    assert server.request("GET", "/v1/deliveries")[0] == 401
    assert ask("other", "GET", "/v1/deliveries")[2]["deliveries"] == []
    assert ask("other", "GET", f"/v1/deliveries/{one}")[0] == 404
    assert ask("other", "POST", f"/v1/deliveries/{one}/skip", {})[0] == 404
    assert ask("reads", "POST", f"/v1/deliveries/{one}/skip", {})[0] == 403

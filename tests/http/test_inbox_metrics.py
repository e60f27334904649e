"""What senders of webhooks were answered, counted by source and reason."""
import hashlib
import hmac
import time

from inbox_help import SECRET, body_of, signed, source_yaml
from once_server import until
from test_inbox import settled


def figures(server, name):
    """{labels: value} of those that are not 0."""
    page = server.request("GET", "/metrics")[2]
    page = page if isinstance(page, str) else page.decode()
    lines = [line for line in page.splitlines() if line.startswith(f"once_inbox_{name}{{")]
    assert lines, name
    return {line[line.index("{") + 1:line.rindex("}")]: int(line.split()[-1]) for line in lines
        if int(line.split()[-1]) > 0}


def test_each_answer_is_counted_by_its_reason(make_server, handler, tmp_path):
    (tmp_path / "secret").write_text("s3cret")
    server = make_server(config=f"""
inbox:
  sources:
    shop:
      preset: stripe
      secrets: [{{file: {tmp_path / "secret"}}}]
      handler: {handler.url}/shop
    open: {{preset: cloudevents, handler: "{handler.url}/open"}}
""")

    def sign(body, seconds=0, key=b"s3cret"):
        at = str(int(time.time()) + seconds)
        mac = hmac.new(key, f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
        return {"Stripe-Signature": f"t={at},v1={mac}"}

    def post(body, headers, source="shop", kind="application/json"):
        return server.request("POST", f"/in/{source}", body.encode(),
            headers={"Content-Type": kind, **headers})[0]

    event = '{"id": "evt_1", "object": "event", "created": 1}'
    assert figures(server, "received_total") == {}
    assert post(event, sign(event)) == 200
    settled(server)
    assert post(event, sign(event)) == 200
    assert post(event, {}) == 401
    assert post(event, sign(event, key=b"other")) == 401
    assert post(event, sign(event, seconds=-4000)) == 401
    changed = event.replace("1}", "2}")
    assert post(changed, sign(changed)) == 409
    assert post("{}", {}, "open", "application/cloudevents+json") == 422
    source = 'source="shop"'
    until(lambda: figures(server, "received_total") == {source: 3}, "not counted")
    assert figures(server, "duplicates_total") == {source: 1}
    assert figures(server, "refused_total") == {
        'source="open",reason="invalid_event"': 1,
        **{f'{source},reason="{reason}"': 1 for reason in ("signature_missing",
            "signature_mismatch", "signature_too_old", "idempotency_conflict")}}
    assert figures(server, "stale_total") == {}
    server.signal(1)  # a reload forgets none of it
    time.sleep(0.5)
    assert figures(server, "received_total") == {source: 3}


def test_the_time_that_a_handler_takes_is_shown(make_server, handler, tmp_path):
    (tmp_path / "secret").write_text(SECRET + "\n")
    server = make_server(config="inbox:\n  sources:\n" +
        source_yaml("shop", "stripe", handler, tmp_path / "secret"))
    handler.pause_s = 0.3
    body = body_of("stripe")
    assert server.request("POST", "/in/shop", body, signed("stripe", body))[0] == 200
    name = "once_dispatch_call_seconds"
    mine = 'kind="deliveries",target="shop"'

    def value(which, more=""):
        page = server.request("GET", "/metrics")[2]
        page = page if isinstance(page, str) else page.decode()
        return float(next(line.split()[-1] for line in page.splitlines()
            if line.startswith(f"{name}_{which}{{{mine}{more}")))

    until(lambda: value("count") == 1, "the call is not counted")
    assert value("sum") >= 0.3
    assert value("bucket", ',le="0.25"') == 0 and value("bucket", ',le="+Inf"') == 1

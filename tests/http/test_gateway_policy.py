"""once gateway --policy with the policy template of the source document, as it stands (OPS-11)."""
import datetime
import json
import subprocess
import time

import pytest

from once_server import BINARY, ROOT

TEMPLATES = ["idempotency.yml", "indented.yml"]  # its indentation lost, and as it was meant
WAIT_S = 30


@pytest.fixture(params=TEMPLATES)
def policy(request):
    return ROOT / "tests/vectors/opsdeploy" / request.param


@pytest.fixture
def gateway(make_gateway, policy):
    return make_gateway("--policy", str(policy))


def test_a_write_without_a_key_is_refused(gateway, origin):
    answer = gateway.send("POST", "/pay", {"amount": 1})
    assert answer.status == 400 and answer.json["code"] == "idempotency_key_missing", answer
    assert origin.total == 0


def test_a_conflict_is_409_with_a_json_diff_and_nothing_is_applied(gateway, origin):
    assert gateway.post("k", {"amount": 1, "to": "Ann"}).status == 200
    answer = gateway.post("k", {"amount": 2, "to": "Ann"})
    assert answer.status == 409 and answer.decision == "conflict_rejected", answer
    assert answer.json["code"] == "idempotency_conflict"
    assert answer.json["diff"] == [{"op": "replace", "path": "/amount", "value": 2}]
    assert origin.total == 1


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_the_first_answer_is_remembered_for_48_hours(gateway):
    gateway.post("k")
    first = gateway.shown("k")
    kept = moment(first["window_expires_at"]) - moment(first["sealed_at"])
    assert kept == datetime.timedelta(hours=48), first
    again = gateway.post("k")
    assert again.is_replay and again.status == 200


def decisions(gateway, count):
    """Lines of the log about decisions, once there are so many: it is written behind."""
    until = time.monotonic() + WAIT_S
    while True:
        lines = [json.loads(line) for line in gateway.stderr().splitlines(keepends=True)
            if line.startswith("{") and line.endswith("\n")]
        found = [line for line in lines if line["event"] == "decision"]
        if len(found) >= count:
            return found
        assert time.monotonic() < until, lines
        time.sleep(0.02)


def test_the_log_has_the_fields_that_the_policy_names_and_a_gateway_knows(gateway):
    """A request through a gateway has no source."""
    gateway.post("k", do="field=Once-Effect-Id:pay_1")
    gateway.post("k")
    lines = decisions(gateway, 3)
    assert [line["decision"] for line in lines] == ["first_seen", "sealed", "duplicate_replayed"]
    assert all(line["idempotency_key"] == "k" for line in lines)
    assert [line.get("effect_id") for line in lines] == [None, "pay_1", "pay_1"]


def test_a_policy_that_is_wrong_is_told_and_nothing_starts(tmp_path, origin):
    bad = tmp_path / "bad.yml"
    bad.write_text("ttl: {api_hours: 96}\nreject_on_body_mismatch: false\n")
    done = subprocess.run([BINARY, "gateway", "--listen", "127.0.0.1:0", "--upstream", origin.url,
        "--store", f"journal:{tmp_path}/data", "--policy", str(bad)], capture_output=True,
        text=True, timeout=60, check=False)
    assert done.returncode == 78, done
    assert f"{bad}:1:18: " in done.stderr and f"{bad}:2:26: " in done.stderr, done
    assert not (tmp_path / "data").exists()


def test_a_route_says_otherwise_than_the_policy(make_gateway, origin):
    path = str(ROOT / "tests/vectors/opsdeploy" / TEMPLATES[0])
    gateway = make_gateway("--policy", path,
        routes=[{"match": "POST /mail", "key": "optional", "window": "24h"}, {"match": "POST /**"}])
    assert gateway.send("POST", "/mail", {}).status == 200 and origin.total == 1
    assert gateway.send("POST", "/pay", {}).status == 400
    gateway.post("k", path="/mail")
    first = gateway.shown("k")
    kept = moment(first["window_expires_at"]) - moment(first["sealed_at"])
    assert kept == datetime.timedelta(hours=24), first

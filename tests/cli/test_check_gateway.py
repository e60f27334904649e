"""once check and once serve --test on the gateway's section, and on policy files."""
import json
import re

import pytest
from conftest import ROOT

VECTORS = ROOT / "tests/vectors/opsdeploy"
DESIGN = """gateway:
  listen: 127.0.0.1:8080
  routes:
    - match: "POST,PUT /v1/payments/**"
      upstream: http://127.0.0.1:3000
      profile: guardia
      window: 24h
      principal: auto
      ignore: [/client_time]
      redact: [/card/number]
      on_status: {500: unknown, 503: release}
      on_unknown: hold
      reconcile: {get: "/v1/payments/by-key/{key}", executed: [200], not_executed: [404]}
      lease: 60s
      timeout: {connect: 2s, first_byte: 30s, total: 60s}
    - {match: /hooks/**, upstream: "http://127.0.0.1:3001", profile: ops, kind: webhook}
"""
BAD = """gateway:
  upstream: http://127.0.0.1:3000
  routes:
    - {match: "GET /v1/**"}
    - {match: /v2/**, widow: 3h}
    - {match: /v3/**, reconcile: {get: /x}}
"""


def write(once, text, name="once.yaml"):
    (once.directory / name).write_text(text)
    return name


def gateway(once, text):
    done = once("check", "--json", write(once, text))
    assert done.code == 0, done
    return json.loads(done.out)["gateway"]


ON_500 = ("        500 from the API leaves the operation unknown until it is settled; on_status: "
    "{5xx: release} says that the API rolls back")
AUTO = ("        a key belongs to its Authorization, else X-Api-Key or Api-Key; set principal if "
    "tokens are renewed (JWT) or clients have only cookies or nothing")


def test_each_route_is_shown_with_upstream_profile_and_window(once):
    done = once("check", write(once, DESIGN))
    assert (done.code, done.err) == (0, b"")
    assert done.text.splitlines()[4:] == [
        "gateway 127.0.0.1:8080",
        "route   POST,PUT /v1/payments/** -> http://127.0.0.1:3000",
        "        guardia, window 24h, key required (a UUID), fences POST PUT",
        ON_500,
        AUTO,
        "        note: reconcile asks by {key}, which two principals may share: have the API "
        "check Once-Operation-Id, or ask by {operation_id}",
        "route   /hooks/** -> http://127.0.0.1:3001",
        "        ops, window 336h, key required, fences POST PUT PATCH DELETE",
        ON_500,
        AUTO,
        "others  no route matches -> http://127.0.0.1:3000, not fenced",
    ]


def test_json_has_every_setting_of_every_route(once):
    found = gateway(once, DESIGN)
    first, second = found["routes"]
    assert found["listen"] == ["127.0.0.1:8080"]
    assert found["otherwise"] == ["http://127.0.0.1:3000"]
    assert (first["match"], first["line"]) == ("POST,PUT /v1/payments/**", 4)
    assert (first["methods"], first["fenced"]) == (["POST", "PUT"], ["POST", "PUT"])
    assert (first["profile"], first["window"], first["key"]) == ("guardia", "24h", "required")
    assert first["key_is_uuid"] is True and first["conflict_status"] == 409
    assert (first["ignore"], first["redact"]) == (["/client_time"], ["/card/number"])
    assert first["reconcile"]["not_executed"] == [404]
    assert first["timeout"] == {"connect": "2s", "first_byte": "30s", "total": "1m",
        "upgraded": "5m"}
    assert first["limits"]["body_bytes_max"] == 10 << 20
    assert (second["kind"], second["methods"]) == ("webhook", [])
    assert second["fenced"] == ["POST", "PUT", "PATCH", "DELETE"]


def test_without_routes_there_is_one_for_everything(once):
    done = once("check", write(once, "gateway: {upstream: 'http://127.0.0.1:3000'}\n"))
    assert done.code == 0
    assert done.text.splitlines()[5:] == ["route   (default) -> http://127.0.0.1:3000",
        "        ietf, window 24h, key required, fences POST PUT PATCH DELETE", ON_500, AUTO]


@pytest.mark.parametrize("members, says", [
    ("on_status: {5xx: release}", "500 from the API frees the key: on_status says that the API"),
    ("profile: stripe", "500 from the API is final: every duplicate gets it"),
    ("on_status: {5xx: release, 500: seal}", "500 from the API is final"),
    ("profile: stripe, on_status: {500: unknown}", "500 from the API leaves the operation unknown"),
])
def test_what_500_means_is_said_in_one_sentence(once, members, says):
    done = once("check", write(once, f"gateway: {{upstream: 'http://a', {members}}}\n"))
    assert done.code == 0 and says in done.text


@pytest.mark.parametrize("members, says", [
    ("on_unknown: takeover", "an unknown operation runs again, and its effect may happen twice"),
    ("key: generated", "a write without a key gets a new one: its retries run again"),
    ("profile: stripe", "a write without a key passes through, not fenced"),
    ("principal: none", "all clients share their keys (principal: none)"),
])
def test_what_weakens_one_effect_a_key_is_named(once, members, says):
    def lines(settings):
        done = once("check", write(once, f"gateway: {{upstream: 'http://a'{settings}}}\n"))
        assert done.code == 0
        return done.text
    assert says in lines(", " + members) and says not in lines("")


def test_the_old_name_of_on_status_is_read_with_a_warning(once):
    done = once("check", write(once, "gateway:\n  upstream: http://a\n  on_5xx: release\n"))
    assert done.code == 0 and "500 from the API frees the key" in done.text
    assert done.message == ("once.yaml:3:3: warning: on_5xx was replaced by on_status, and is read "
        "as that\n      on_5xx: release\n      ^\nhint: on_status: {5xx: release}\n")
    document = json.loads(once("check", "--json", "once.yaml").out)
    assert document["ok"] and document["warnings"][0]["line"] == 3
    assert document["gateway"]["routes"][0]["on_status"]["5xx"] == "release"
    assert "on_5xx" not in document["gateway"]["routes"][0]


def test_rules_of_a_flag_win_over_those_of_a_file(once):
    name = write(once, "gateway: {upstream: 'http://a', on_status: {5xx: seal, 404: unknown}}\n")
    def rules(*words, **more):
        done = once("gateway", "--test", "--json", "--config", name, *words, **more)
        assert done.code == 0, done
        return json.loads(done.out)["gateway"]["routes"][0]["on_status"]
    usual = {"408": "release", "425": "release", "429": "release", "2xx": "seal", "3xx": "seal",
        "4xx": "seal"}
    assert rules() == {**usual, "5xx": "seal", "404": "unknown"}
    assert rules("--on-status", "5xx=release,500=unknown", "--on-status", "302=unknown") == {
        **usual, "5xx": "release", "500": "unknown", "302": "unknown"}
    assert rules(env={"ONCE_GATEWAY_ON_STATUS": "500=seal"}) == {**usual, "503": "release",
        "500": "seal", "5xx": "unknown"}
    done = once("gateway", "--test", "--config", name, "--on-status", "5xx")
    assert done.code == 78 and "'5xx' is not a rule such as 5xx=release" in done.message


def test_faults_are_told_at_their_places_with_what_was_meant(once):
    done = once("check", write(once, BAD))
    assert done.code == 78 and done.out == b""
    assert re.findall(r"^once\.yaml:(\d+:\d+): (.*)$", done.message, re.M) == [
        ("4:15", "gateway.match: GET cannot be fenced: reads are never subject to idempotency "
            "keys"),
        ("5:23", "unknown key 'widow'"),
        ("6:40", "gateway.reconcile.get: '/x' has no {key}: it would ask the same of every "
            "operation"),
    ]
    assert "hint: did you mean 'window'?\n" in done.message
    assert '    - {match: /v2/**, widow: 3h}\n                          ^\n' in done.message


@pytest.mark.parametrize("members, says", [
    ("profile: guardia, window: 25h", "a window of 25h is more than 24h"),
    ("profile: ops, window: 12h", "a window of 12h is less than 24h"),
    ("kind: webhook, window: 24h", "a window of 24h is less than 168h"),
    ("principal: 'jwt:sub'", "needs jwt.alg and jwt.key_file"),
    ("on_unknown: reconcile", "on_unknown: reconcile needs reconcile.get"),
    ("upstream: http://a/b", "has a path or a query"),
    ("lease: 10ms", "'10ms' is less than 1s"),
    ("on_status: seal", "gateway.on_status must be a map of statuses"),
    ("on_status: {5xx: keep}", "'keep' is not one of seal, release, unknown"),
    ("on_status: {600: seal}", "'600' is not a status or a class"),
    ("on_status: {99x: seal}", "'99x' is not a status or a class"),
    ("on_status: {200: release}", "200 cannot be released: it says that it was done"),
    ("on_status: {5xx: [seal]}", "gateway.on_status must be a map of statuses"),
    ("on_5xx: keep", "on_5xx must be one of seal, release, unknown"),
    ("on_5xx: seal, on_status: {500: seal}", "gateway.on_status is set twice"),
    ("on_status: {500: seal}, on_5xx: seal", "gateway.on_status is set twice"),
])
def test_what_a_route_may_not_say(once, members, says):
    text = f"gateway:\n  upstream: http://a\n  routes:\n    - match: /x\n      {members}\n"
    text = text.replace(", ", "\n      ")
    done = once("check", write(once, text))
    assert done.code == 78 and done.out == b""
    assert re.match(r"once\.yaml:[456]:\d+: ", done.message) and says in done.message


def test_a_gateway_may_listen_where_others_reach_it(once):
    name = write(once, "gateway: {listen: 0.0.0.0:8080, upstream: 'http://127.0.0.1:3000'}\n")
    assert once("check", name).code == 0
    assert once("serve", "--test", "--config", name).code == 0
    done = once("serve", "--test", "--config", name, "--listen", "0.0.0.0:1")
    assert done.code == 78 and "without auth" in done.message


def test_variables_reach_the_gateway(once):
    env = {"ONCE_GATEWAY_UPSTREAM": "http://127.0.0.1:3000", "ONCE_GATEWAY_PROFILE": "stripe",
        "ONCE_GATEWAY_LISTEN": "127.0.0.1:9"}
    done = once("serve", "--test", "--json", env=env)
    assert done.code == 0, done
    found = json.loads(done.out)["gateway"]
    assert found["listen"] == ["127.0.0.1:9"]
    assert found["routes"][0]["profile"] == "stripe"
    assert found["routes"][0]["upstream"] == ["http://127.0.0.1:3000"]
    done = once("serve", "--test", env={**env, "ONCE_GATEWAY_PROFILE": "fast"})
    assert done.code == 78
    assert "ONCE_GATEWAY_PROFILE: gateway.profile: 'fast' is not one of ietf" in done.message
    assert "gateway" not in json.loads(once("serve", "--test", "--json").out)


# ---- policy files --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["idempotency.yml", "indented.yml"])
def test_the_policy_of_the_source_is_taken_and_explained_line_by_line(once, name):
    text = (VECTORS / name).read_text()
    done = once("check", write(once, text, "idempotency.yml"))
    assert (done.code, done.err) == (0, b"")
    lines = done.text.splitlines()
    assert lines[0] == "idempotency.yml: ok, a policy for once gateway --policy"
    assert lines[1:3] == ["idempotency.yml:3: require_headers: Idempotency-Key",
        "    a write without an Idempotency-Key is refused with 400"]
    assert "    note: this process keeps fences in 'journal:./once-data'" in done.text
    document = json.loads(once("check", "--json", "idempotency.yml").out)
    assert (document["ok"], document["kind"], document["faults"]) == (True, "policy", [])
    told = {line["line"]: line for line in document["lines"]}
    # Every line that says something is there, with its number.
    said = {number for number, line in enumerate(text.splitlines(), 1)
        if not line.startswith("#") and not line.rstrip().endswith(":")}
    assert set(told) == said
    assert told[9]["setting"] == "ttl.api_hours" and told[9]["value"] == "48"
    assert "48 hours" in told[9]["meaning"]
    assert [line["line"] for line in document["lines"] if line["note"]] == [6]


@pytest.mark.parametrize("text, place, says", [
    ("ttl: {api_hours: 96}\n", "1:18", "ttl.api_hours: 96 is more than 72 hours"),
    ("ttl: {webhook_days: 3}\n", "1:21", "ttl.webhook_days: 3 is less than 7 days"),
    ("reject_on_body_mismatch: false\n", "1:26", "is refused: a different body under the same key"),
    ("logging:\n  include_fields: [desicion]\n", "2:20", "is not a field of the log"),
    ("ttl: {}\nrequire_header: [a]\n", "2:1", "unknown key 'require_header'"),
])
def test_a_wrong_policy_is_78_with_its_place(once, text, place, says):
    done = once("check", write(once, text, "policy.yml"))
    assert done.code == 78 and done.out == b""
    assert done.message.startswith(f"policy.yml:{place}: ") and says in done.message
    done = once("check", "--json", "policy.yml")
    document = json.loads(done.out)
    assert done.code == 78 and document["ok"] is False and document["lines"] == []
    assert says in document["faults"][0]["message"]


def test_a_policy_is_no_configuration(once):
    name = write(once, (VECTORS / "indented.yml").read_text(), "idempotency.yml")
    done = once("serve", "--test", "--config", name)
    assert done.code == 78
    assert "'require_headers' belongs in a policy file" in done.message
    assert "hint: once gateway --policy FILE" in done.message


def test_a_gateway_takes_a_policy_and_tells_the_faults_of_each_file(once):
    if once("help", "gateway").code != 0:
        pytest.skip("there is no once gateway")
    write(once, "gateway: {upstream: 'http://a',\n"
        "  routes: [{match: /a}, {match: /b, window: 24h}]}\n")
    write(once, (VECTORS / "idempotency.yml").read_text(), "idempotency.yml")
    words = ("gateway", "--test", "--config", "once.yaml", "--policy", "idempotency.yml")
    done = once(*words)
    assert done.code == 0 and "ops, window 48h" in done.text and "ops, window 24h" in done.text
    assert "note    stores.fence: redis: this process keeps fences in 'journal:" in done.text
    found = json.loads(once(*words, "--json").out)["gateway"]
    assert [route["window"] for route in found["routes"]] == ["48h", "24h"]
    assert len(found["policy"]) == 13
    write(once, "ttl: {api_hours: 96}\n", "wrong.yml")
    done = once("gateway", "--test", "--config", "once.yaml", "--policy", "wrong.yml")
    assert done.code == 78 and done.message.startswith("wrong.yml:1:18: ttl.api_hours: 96 is more")
    write(once, "gateway: {upstream: 'http://a',\n  routes: [{match: /a, profile: guardia}]}\n")
    done = once(*words)
    assert done.code == 78
    assert done.message.startswith("once.yaml:2:12: a window of 48h (line 9 of the policy file)")
    done = once("gateway", "--test", "--upstream", "http://a", "--policy", "nowhere.yml")
    assert done.code == 78 and "cannot read the policy file 'nowhere.yml'" in done.message

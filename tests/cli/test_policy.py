"""once policy test: request fixtures against expected decisions, through the real gateway."""
import json
import subprocess

import pytest
from conftest import BINARY, ROOT

PAY = "{path: /pay, headers: {Idempotency-Key: k1}, json: {amount: 1}}"


@pytest.fixture
def policy(once):
    """Run cases, given as text, with options in front of them."""
    def run(cases, *options, **how):
        (once.directory / "cases.yaml").write_text(cases)
        return once("policy", "test", *options, "cases.yaml", **how)
    return run


def case(steps, name="it"):
    lines = "".join(f"    - {step}\n" for step in steps)
    return f"- name: {name}\n  steps:\n{lines}"


def test_the_example_holds_under_the_default_configuration(once):
    done = once("policy", "test", ROOT / "examples/policy-cases.yaml")
    assert done.code == 0 and done.text.endswith("7 cases, 0 failed\n") and done.err == b"", done


@pytest.mark.parametrize("name", ["idempotency.yml", "indented.yml"])
def test_the_example_holds_under_the_policy_of_the_source_document(once, name):
    """As it stands, its indentation lost, and as it was meant."""
    done = once("policy", "test", "--policy", ROOT / "tests/vectors/opsdeploy" / name,
        ROOT / "examples/policy-cases.yaml")
    assert done.code == 0, done


def test_the_policy_of_the_source_document_answers_a_conflict_with_a_diff(policy):
    cases = case([
        f"{{request: {PAY}, expect: {{status: 200}}}}",
        "{request: {path: /pay, headers: {Idempotency-Key: k1}, json: {amount: 2}}, "
        "expect: {status: 409, decision: conflict_rejected, code: idempotency_conflict, "
        "body_contains: '\"path\":\"/amount\"', effects: 1}}"])
    at = ROOT / "tests/vectors/opsdeploy/idempotency.yml"
    done = policy(cases, "--policy", at)
    assert done.code == 0, done
    assert policy(cases).code == 65, "without the policy it is 422"


WRONG = [  # what is expected wrongly, and what it is
    ("status: 201", "status is 200, expected 201"),
    ("decision: duplicate_replayed", "decision is first_seen, expected duplicate_replayed"),
    ("replayed: true", "replayed is false, expected true"),
    ("effects: 0", "effects is 1, expected 0"),
    ("effects: 2", "effects is 1, expected 2"),
    ("code: some", "code is none, expected some"),
    ("route: POST /pay", "route is (default), expected POST /pay"),
    ("body_contains: sold", 'body is {"call":1}, expected sold'),
    ("header: {Once-Decision: none}", "header Once-Decision is first_seen, expected none"),
    ("header: {Location: /a}", "header Location is none, expected /a"),
    ("header: {once-decision: null}", "header once-decision is first_seen, expected none"),
]


@pytest.mark.parametrize("expected, said", WRONG)
def test_whatever_is_expected_wrongly_is_told(policy, expected, said):
    done = policy(case([f"{{request: {PAY}, expect: {{{expected}}}}}"]))
    assert done.code == 65, done
    assert done.text == f"FAIL  it\n      step 1 (cases.yaml:3): {said}\n1 case, 1 failed\n", done


RESULTS = [  # what the upstream does; what its client gets; what a repetition gets
    ("{status: 201}", "status: 201, decision: first_seen", "decision: duplicate_replayed"),
    ("{status: 404}", "status: 404, decision: first_seen", "decision: duplicate_replayed"),
    ("{status: 204}", "status: 204", "status: 204, decision: duplicate_replayed"),
    ("{status: 500}", "status: 500, decision: first_seen", "decision: held_unknown, effects: 1"),
    ("{status: 503}", "status: 503, decision: first_seen", "status: 200, decision: first_seen"),
    ("{status: 429}", "status: 429", "status: 200, decision: first_seen, effects: 2"),
    ("{fail: refuse}", "status: 502, effects: 0, header: {Once-Effect: 'no'}",
        "status: 200, decision: first_seen, effects: 1"),
    ("{fail: reset}", "header: {Once-Effect: unknown}, effects: 1",
        "decision: held_unknown, effects: 1"),
    ("{fail: timeout}", "status: 504, header: {Once-Effect: unknown}, effects: 1",
        "decision: held_unknown, effects: 1"),
    ("{fail: half}", "status: 504, header: {Once-Effect: unknown}, effects: 1",
        "decision: held_unknown, effects: 1"),
]


@pytest.mark.parametrize("upstream, first, second", RESULTS)
def test_an_upstream_does_what_a_case_says(policy, upstream, first, second):
    done = policy(case([f"{{request: {PAY}, upstream: {upstream}, expect: {{{first}}}}}",
        f"{{expect: {{{second}}}}}"]))
    assert done.code == 0, done


def test_a_request_that_waits_is_found_in_progress_and_answered_in_the_end(policy):
    done = policy(case([
        f"{{request: {PAY}, upstream: {{waits: true, status: 202}}, "
        "expect: {status: 202, decision: first_seen, effects: 1}}",
        "{repeat: 3, expect: {status: 409, decision: in_progress, effects: 1}}"]))
    assert done.code == 0, done
    done = policy(case([f"{{request: {PAY}, upstream: {{waits: true}}, expect: {{status: 201}}}}"]))
    assert done.code == 65 and "status is 200, expected 201" in done.text, done


RECONCILE = """gateway:
  routes:
    - match: POST /pay
      on_unknown: reconcile
      reconcile: {get: "/by-key/{key}", executed: [200], not_executed: [404], every: 1m,
        quiet: 0s}
"""
ASKED = [  # what the API says of an unknown operation; what a repetition gets then
    ("{}", "decision: held_unknown, effects: 1"),
    ("{reconcile: {status: 200, json: {id: 7}}}",
        "status: 200, decision: duplicate_replayed, body_contains: '\"id\":7', effects: 1"),
    ("{reconcile: {status: 404}, status: 201}", "status: 201, decision: first_seen, effects: 2"),
]


@pytest.mark.parametrize("upstream, second", ASKED)
def test_the_gateways_own_question_is_answered_and_no_effect(once, policy, upstream, second):
    (once.directory / "once.yaml").write_text(RECONCILE)
    done = policy(case([f"{{request: {PAY}, upstream: {{fail: reset}}, expect: {{effects: 1}}}}",
        f"{{upstream: {upstream}, expect: {{{second}}}}}"]), "--config", "once.yaml")
    assert done.code == 0, done


def test_a_repetition_is_compared_each_time(policy):
    done = policy(case([f"{{request: {PAY}, repeat: 3, expect: {{decision: first_seen}}}}"]))
    assert done.code == 65, done
    assert "decision is duplicate_replayed, expected first_seen" in done.text, done


def test_cases_do_not_see_each_other(policy):
    one = case([f"{{request: {PAY}, expect: {{decision: first_seen, effects: 1}}}}"])
    assert policy(one * 5).text == "ok    it\n" * 5 + "5 cases, 0 failed\n"


def test_requests_arrive_as_they_are_written(policy):
    """JSON as YAML has it, a text as it is, a field twice, a method of one's own."""
    steps = [
        '{request: {path: /a, headers: {Idempotency-Key: a}, '
        'json: {"ä\\"": [1.50, "1", null, true, yes, {}], b: -0}}, expect: {status: 200}}',
        # The same, in other words, is no conflict; a number as a text is one.
        '{request: {path: /a, headers: {Idempotency-Key: a, Content-Type: application/json}, '
        'body: \'{"b":0,"ä\\"":[1.5,"1",null,true,"yes",{}]}\'}, '
        'expect: {decision: duplicate_replayed}}',
        '{request: {path: /a, headers: {Idempotency-Key: a}, '
        'json: {"ä\\"": [1.50, 1, null, true, yes, {}], b: 0}}, '
        'expect: {decision: conflict_rejected}}',
        '{request: {path: /a, headers: {Idempotency-Key: [a, b]}, json: {}}, '
        'expect: {status: 400, decision: refused, effects: 1}}',
        '{request: {method: REPORT, path: /a}, expect: {decision: passed_through, effects: 2}}',
        '{request: {method: HEAD, path: /a}, expect: {status: 200, body_contains: ""}}',
        '{request: {method: GET, path: "/a?x=1"}, expect: {route: (default), effects: 4}}',
    ]
    done = policy(case(steps))
    assert done.code == 0, done


def test_a_route_is_expected_by_its_match(once, policy):
    (once.directory / "once.yaml").write_text(
        "gateway:\n  upstream: https://never.called.invalid\n  routes:\n"
        "    - {match: POST /v1/payments/*, window: 72h}\n"
        "    - {match: /v1/**, profile: guardia, key: optional}\n")
    def expect(request, wanted):
        return f"{{request: {request}, expect: {{{wanted}}}}}"
    done = policy(case([
        expect("{path: /v1/payments/1, headers: {Idempotency-Key: a}}",
            "route: POST /v1/payments/*, decision: first_seen, effects: 1"),
        expect("{path: /v1/../v1/%70ayments/2}", "route: POST /v1/payments/*, status: 400"),
        expect("{path: /v1/payments/1/refund}", "route: /v1/**, decision: passed_through"),
        expect("{method: PUT, path: /v1/x, headers: {Idempotency-Key: a}}",
            "route: /v1/**, status: 400, code: ERR400_INVALID_ARGUMENT"),
        expect("{path: /v2}", "route: (no route), decision: passed_through"),
    ]), "--config", "once.yaml")
    assert done.code == 0, done


CODES = [("ietf", "idempotency_key_missing"), ("ops", "idempotency_key_missing"),
    ("guardia", "ERR400_INVALID_ARGUMENT")]


@pytest.mark.parametrize("profile, code", CODES)
def test_a_code_is_found_in_the_form_of_each_profile(policy, profile, code):
    done = policy(case([f"{{request: {{path: /pay}}, expect: {{status: 400, code: {code}}}}}"]),
        "--profile", profile)
    assert done.code == 0, done


CONFLICTS = [("adr007", "409", "idempotency_mismatch"), ("stripe", "400", "idempotency_conflict")]


@pytest.mark.parametrize("profile, status, code", CONFLICTS)
def test_a_conflict_has_the_code_of_each_profile(policy, profile, status, code):
    key = "2b1d5ab1-5b0a-4d2b-9e5c-0e6f2a3f4b5c"
    done = policy(case([f"{{request: {{path: /pay, headers: {{Idempotency-Key: {key}, "
        f"Request-Id: r{amount}}}, json: {{amount: {amount}}}}}, expect: {{{wanted}}}}}"
        for amount, wanted in ((1, "status: 200"), (2, f"status: {status}, code: {code}"))]),
        "--profile", profile)
    assert done.code == 0, done


def test_with_json_there_is_one_document(policy):
    done = policy(case([f"{{request: {PAY}, expect: {{status: 201}}}}"]) +
        case([f"{{request: {PAY}}}"], "fine"), "--json")
    assert done.code == 65
    assert json.loads(done.out) == {"file": "cases.yaml", "ok": False, "count": 2, "failed": 1,
        "cases": [
            {"name": "it", "line": 1, "ok": False, "differences": [{"step": 1, "line": 3,
                "what": "status", "got": "200", "expected": "201"}]},
            {"name": "fine", "line": 4, "ok": True, "differences": []}]}


FAULTS = [  # a file that is wrong, and where
    ("", "cases.yaml:1:1: the file must be a list of at least one"),
    ("a: b\n", "cases.yaml:1:1: the file must be a list of at least one"),
    ("- steps: [{request: {path: /}}]\n", "cases.yaml:1:3: the case has no name"),
    ("- name: x\n", "cases.yaml:1:3: the case has no steps"),
    ("- name: x\n  steps: [{expect: {status: 200}}]\n",
        "cases.yaml:2:11: the first step needs a request"),
    (case(["{request: {path: /}, expcet: {status: 200}}"]),
        "cases.yaml:3:28: unknown key 'expcet'"),
    (case(["{request: {path: /}, expect: {stauts: 200}}"]),
        "cases.yaml:3:37: unknown key 'stauts'"),
    (case(["{request: {path: /}, expect: {status: 99}}"]),
        "cases.yaml:3:45: status: '99' is less than 200"),
    (case(["{request: {path: /}, expect: {decision: done}}"]),
        "cases.yaml:3:47: decision: 'done' is not one of any, first_seen"),
    (case(["{request: {path: /}, expect: {}}"]), "cases.yaml:3:36: expect is empty"),
    (case(["{request: {path: a}}"]), "cases.yaml:3:24: path: 'a' is not a path"),
    (case(["{request: {path: /, headers: {Content-Length: 1}}}"]),
        "cases.yaml:3:37: 'Content-Length' is set by the body itself"),
    (case(["{request: {path: /, body: a, json: b}}"]), "cases.yaml:3:36: there is a body already"),
    (case(["{request: {path: /}, upstream: {fail: slow}}"]),
        "cases.yaml:3:45: fail: 'slow' is not one of none, refuse"),
    (case(["{request: {path: /}, upstream: {waits: true, fail: half}}"]),
        "cases.yaml:3:38: the upstream either fails or waits"),
    ("- name: {\n", "cases.yaml:2:1: not YAML"),
]


@pytest.mark.parametrize("text, said", FAULTS)
def test_a_file_that_is_wrong_is_told_at_its_place(policy, text, said):
    done = policy(text)
    assert done.code == 78 and done.out == b"", done
    assert said in done.message, done
    told = policy(text, "--json")
    assert told.code == 78 and told.err == b"", told
    first = json.loads(told.out)["faults"][0]
    assert json.loads(told.out)["ok"] is False
    assert said.startswith(f"{first['file']}:{first['line']}:{first['column']}: ")


def test_the_configuration_and_the_policy_are_checked_with_the_cases(once, policy):
    (once.directory / "once.yaml").write_text("gateway: {profil: ops}\n")
    (once.directory / "policy.yml").write_text("ttl: {api_hours: 96}\n")
    good = case(["{request: {path: /}}"])
    done = policy(good, "--config", "once.yaml")
    assert done.code == 78 and "once.yaml:1:11: unknown key 'profil'" in done.message, done
    done = policy(good, "--policy", "policy.yml")
    assert done.code == 78 and "policy.yml:1:18: ttl.api_hours" in done.message, done
    done = policy(good, "--config", "nowhere.yaml")
    assert done.code == 78 and "cannot read the configuration 'nowhere.yaml'" in done.message, done
    done = once("policy", "test", "nowhere.yaml")
    assert done.code == 78 and "cannot read the cases 'nowhere.yaml'" in done.message, done


def test_cases_come_from_standard_input_too(once):
    done = once("policy", "test", "-", stdin=case([f"{{request: {PAY}}}"]).encode())
    assert done.code == 0 and done.text == "ok    it\n1 case, 0 failed\n", done


def test_a_wrong_command_line_is_told(once):
    assert once("policy", "check", "cases.yaml").code == 64
    assert once("policy", "test").code == 64


def test_nothing_is_left_behind_and_nothing_else_is_called(once, policy):
    """Neither the store nor the upstream nor the certificate of the file is touched."""
    (once.directory / "once.yaml").write_text(
        "store: journal:./data\ngateway:\n  listen: 127.0.0.1:1\n"
        "  tls: {cert: none.pem, key: none.pem}\n"
        "  upstream: https://never.called.invalid\n  ca_file: none.pem\n")
    done = policy(case([f"{{request: {PAY}, expect: {{status: 200}}}}"]), "--config", "once.yaml")
    assert done.code == 0, done
    assert sorted(path.name for path in once.directory.iterdir()) == ["cases.yaml", "once.yaml"]


def test_a_failed_case_is_seen_by_a_shell(once):
    """What CI looks at."""
    (once.directory / "cases.yaml").write_text(
        case([f"{{request: {PAY}, expect: {{effects: 9}}}}"]))
    done = subprocess.run(["sh", "-ec", f"{BINARY} policy test cases.yaml; echo not reached"],
        cwd=once.directory, env=once.env, capture_output=True, check=False)
    assert done.returncode == 65 and b"not reached" not in done.stdout

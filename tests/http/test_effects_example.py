"""examples/effects: capture and refund against the small provider, which counts (CCO-12)."""
import json
import subprocess
import sys
import threading
import urllib.request

import pytest

from once_server import ROOT, until

EXAMPLE = ROOT / "examples/effects"


class Provider:
    """The example's provider, on a port of its own."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, EXAMPLE / "provider.py", "0"],
            stdout=subprocess.PIPE, text=True)
        self.url = "http://" + self.process.stdout.readline().split()[-1]

    def counts(self):
        with urllib.request.urlopen(self.url + "/counts", timeout=10) as answer:
            return json.load(answer)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def provider():
    one = Provider()
    yield one
    one.close()


@pytest.fixture
def server(make_server, provider):
    config = (EXAMPLE / "once.yaml").read_text().replace("http://127.0.0.1:9000", provider.url)
    return make_server(config=config)


CAPTURE = {"effect_type": "payment.capture", "command_id": "order-1", "wait": "20s",
           "target": {"order_id": "A1"}, "payload": {"amount": 1200, "card": "4111111111111111"}}


def test_forty_duplicates_at_once_charge_once(server, provider):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(
        server.request("POST", "/v1/effects", CAPTURE))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [answer[2] for answer in answers if answer[0] == 200]
    assert {answer[0] for answer in answers} <= {200, 429} and good
    assert {one["acknowledgement"]["provider_ref"] for one in good} == {"ch_1"}
    assert provider.counts() == {"charges": 1, "refunds": 0}


def test_a_capture_is_refunded_once(server, provider):
    status, _, made = server.request("POST", "/v1/effects", CAPTURE)
    assert (status, made["status"]) == (200, "acknowledged")
    path = "/v1/effects/" + made["effect_id"]
    for _ in range(3):
        assert server.request("POST", path + "/compensate", {"reason": "returned"})[0] in (200, 202)
    until(lambda: server.request("GET", path)[2]["status"] == "compensated", "the refund")
    shown = server.request("GET", path)[2]
    assert shown["compensation"]["status"] == "acknowledged"
    refund = server.request("GET", "/v1/effects/" + shown["compensation"]["effect_id"])[2]
    assert (refund["compensates"], refund["payload"]) == (
        made["effect_id"], {"charge": "ch_1", "amount": 1200})
    assert provider.counts() == {"charges": 1, "refunds": 1}
    for file in server.data_dir.rglob("*"):
        assert not file.is_file() or b"4111111111111111" not in file.read_bytes(), file
    types = [entry["type"] for entry in server.request("GET", "/v1/evidence")[2]["entries"]]
    for wanted in ("effect.created", "effect.dispatched", "effect.acknowledged",
                   "compensation.started", "effect.compensated"):
        assert wanted in types


def test_evidence_links_the_command_the_effect_and_the_provider(server, provider):
    made = server.request("POST", "/v1/effects", {**CAPTURE, "effect_id": "capture-1"})[2]
    own = made["once_effect_id"]
    server.request("POST", f"/v1/effects/{own}/compensate", {"reason": "returned"})
    until(lambda: server.request("GET", "/v1/effects/" + own)[2]["status"] == "compensated",
          "the refund")
    undo = server.request("GET", "/v1/effects/" + own)[2]["compensation"]["effect_id"]
    story = server.request("GET", "/v1/evidence?operation_id=" + own)[2]["entries"]
    # The first call waited for the end: that is one arrival, and no duplicate.
    told = [(entry["type"], entry.get("provider_ref")) for entry in story]
    assert told == [("effect.created", None), ("effect.dispatched", None),
        ("effect.acknowledged", "ch_1"), ("compensation.started", "ch_1"),
        ("effect.compensated", "ch_1")]
    assert {(entry["command_id"], entry["effect_id"]) for entry in story} == {
        ("order-1", "capture-1")}
    assert (made["decision"], made["duplicates"]) == ("first_seen", 0)
    refund = server.request("GET", "/v1/evidence?operation_id=" + undo)[2]["entries"]
    assert {(entry["command_id"], entry["effect_id"]) for entry in refund} == {("order-1", undo)}
    assert refund[-1]["provider_ref"] == "re_1"
    server.stop()
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0 and "decided again" in checked.stdout, checked.stdout
    stranger = subprocess.run([sys.executable, ROOT / "tools/verify_journal.py", server.data_dir],
        capture_output=True, text=True, check=False, timeout=120)
    assert stranger.stdout.startswith("ok"), stranger.stdout


def test_what_the_provider_rejects_has_failed_and_is_not_sent_again(server, provider):
    status, _, made = server.request("POST", "/v1/effects", {**CAPTURE, "payload": {"amount": -1}})
    assert (status, made["status"], made["uncertain"]) == (200, "failed", False)
    assert server.request("POST", "/v1/effects/" + made["effect_id"] + "/retry")[0] == 409
    assert provider.counts() == {"charges": 0, "refunds": 0}


def test_effects_of_a_seal_are_sent(server, provider):
    grant = server.request("POST", "/v1/fences", {"scope": "s", "key": "k", "payload": 1})[2]
    effect = {name: CAPTURE[name] for name in ("effect_type", "target", "payload")}
    sealed = server.request("POST", f"/v1/fences/{grant['operation_id']}/seal",
        {"fence": grant["fence"], "status": "executed", "effects": [effect]})[2]
    url = sealed["effects"][0]["status_url"]
    until(lambda: server.request("GET", url)[2]["status"] == "acknowledged", "its effect")
    assert provider.counts() == {"charges": 1, "refunds": 0}


def test_the_command_line_shows_and_undoes_effects(server, provider):
    made = server.request("POST", "/v1/effects", CAPTURE)[2]["effect_id"]

    def cli(*words):
        return server.cli(*words, "--server", f"http://127.0.0.1:{server.port}")
    assert made in cli("ls", "effects").stdout
    assert "effect.acknowledged" in cli("show", made).stdout
    assert json.loads(cli("show", made, "--json").stdout)["effect_id"] == made
    assert "compensated by eff_" in cli("compensate", made, "--reason", "x").stdout
    until(lambda: provider.counts()["refunds"] == 1, "the refund")
    refused = cli("retry", made)
    assert refused.returncode == 65 and "nothing changed" in refused.stderr
    assert cli("cancel", "op_x").returncode == 64


def test_the_beginning_of_an_effect_s_id_is_enough_when_only_one_has_it(server, provider):
    def cli(*words):
        return server.cli(*words, "--server", f"http://127.0.0.1:{server.port}")
    whole = server.request("POST", "/v1/effects", CAPTURE)[2]["effect_id"]
    for beginning in ("eff_", whole[:12], whole[:-1]):
        assert json.loads(cli("show", beginning, "--json").stdout)["effect_id"] == whole
        assert cli("why", beginning, "--json").stdout.count(whole) > 0
    for verb in ("retry", "cancel", "resolve"):
        more = ["--status", "failed"] if verb == "resolve" else []
        refused = cli(verb, whole[:-1], *more, "--reason", "x")  # it is found, and acknowledged
        assert refused.returncode == 65 and "begins with" not in refused.stderr, refused
        assert refused.stderr == cli(verb, whole, *more, "--reason", "x").stderr
    done = cli("compensate", whole[:-1], "--reason", "x")
    assert done.stdout.startswith(f"{whole} is ") and "compensated by eff_" in done.stdout, done
    for verb in ("show", "why", "retry", "cancel", "compensate"):  # now there are two
        several = cli(verb, "eff_")
        assert (several.returncode, several.stdout) == (65, ""), several
        assert several.stderr.startswith("once: 2 effects match; name one of them\n")
        assert f'  {whole}  ' in several.stderr and 'effect_type "payment.capture", ' \
            'command_id "order-1"\n' in several.stderr
        absent = cli(verb, "eff_ffff")
        assert absent.returncode == 65
        assert "there is no effect that begins with 'eff_ffff'" in absent.stderr
    assert provider.counts()["charges"] == 1

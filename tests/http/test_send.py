"""once send against a server that misbehaves: keys, ids, what is tried again, exit codes."""
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import uuid
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from flaky import IN_PROGRESS, Flaky
from once_server import BINARY

import servers

TIMEOUT_S = 120  # far above what they take; a hang is a failure, not a wait


class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def send(*words, stdin=b""):
    env = {name: value for name, value in os.environ.items()
        if not name.startswith("ONCE_") and not name.lower().endswith("_proxy")}
    done = subprocess.run([BINARY, "send", *words], input=stdin, capture_output=True, env=env,
        timeout=TIMEOUT_S)
    return Done(done.returncode, done.stdout, done.stderr.decode())


def sent_json(*words, **how):
    done = send(*words, "--json", **how)
    return done.code, json.loads(done.out)


@pytest.fixture
def flaky():
    server = Flaky()
    yield server
    server.end()


# --- Keys and request ids -------------------------------------------------------------------------


def test_a_key_is_made_once_and_told(flaky):
    flaky.moods = ["503", "reset_before", "reset_after"]
    done = send("POST", flaky.url, "--data", '{"cents":1}')
    assert done.code == 0
    assert len(flaky.requests) == 4
    (key,) = set(flaky.keys())
    assert uuid.UUID(key).version == 4
    assert f"the key of this operation is {key}\n" in done.err
    assert flaky.effects == {key: 1}


def test_each_attempt_has_a_request_id_of_its_own(flaky):
    flaky.moods = ["503", "500_after", "half"]
    code, shown = sent_json("POST", flaky.url, "-k", "order-7", "-d", "{}")
    ids = flaky.request_ids()
    assert (code, shown["attempts"], len(set(ids))) == (0, 4, 4)
    assert {uuid.UUID(one).version for one in ids} == {7}
    assert shown["request_id"] == ids[-1]
    assert sorted(ids, key=lambda one: uuid.UUID(one).int >> 80) == ids


def test_a_given_request_id_is_never_sent_twice(flaky):
    flaky.moods = ["503", "503"]
    assert send("POST", flaky.url, "-k", "k", "--request-id", "r-1").code == 0
    assert flaky.request_ids() == ["r-1", "r-1.2", "r-1.3"]


def test_the_same_key_again_is_a_replay(flaky):
    first = sent_json("POST", flaky.url, "-k", "order-7", "-d", '{"cents":1}')
    again = sent_json("POST", flaky.url, "-k", "order-7", "-d", '{"cents":1}')
    assert (first[0], again[0]) == (0, 0)
    assert (first[1]["replayed"], again[1]["replayed"]) == (False, True)
    assert (first[1]["decision"], again[1]["decision"]) == ("first_seen", "duplicate_replayed")
    assert first[1]["body"] == again[1]["body"] and flaky.effects == {"order-7": 1}
    assert first[1]["effect"] == again[1]["effect"] == "yes"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reads_have_no_key(flaky, method):
    flaky.moods = ["503", "reset_before"]
    done = send(method, flaky.url, "-k", "order-7")
    assert done.code == 0 and flaky.keys() == [None] * 3
    assert "the key is not sent" in done.err
    assert done.out == (b"read" if method == "GET" else b"")


def test_odd_keys_are_quoted(flaky):
    assert send("POST", flaky.url, "-k", 'a "b" \\c').code == 0
    assert send("POST", flaky.url, "-k", "plain:key/7").code == 0
    assert flaky.keys() == ['"a \\"b\\" \\\\c"', "plain:key/7"]


def test_a_connection_that_died_is_noticed_and_not_used_behind_our_back(flaky):
    """libcurl would send the request of a dead kept connection again, with the same request id."""
    flaky.moods = ["503", "close"]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["attempts"], len(flaky.requests)) == (0, 3, 3)
    assert len(set(flaky.request_ids())) == 3


def test_the_connection_is_kept_between_attempts(flaky):
    flaky.moods = ["503"] * 4
    assert send("POST", flaky.url, "-k", "k").code == 0
    assert (len(flaky.requests), flaky.connections) == (5, 1)


# --- What is tried again --------------------------------------------------------------------------


@pytest.mark.parametrize("mood", ["reset_before", "reset_after", "close", "half", "500_after",
    "500", "502", "503", "504", "429", "408", "garbage", "problem:503:overloaded:no:safe",
    "problem:504:outcome_unknown:unknown:no", "problem:504:upstream_timeout:unknown:no",
    "problem:409:outcome_unknown:unknown:no"])
def test_what_may_pass_is_tried_again(flaky, mood):
    flaky.moods = [mood, mood]
    code, shown = sent_json("POST", flaky.url, "-k", "k", "-d", "{}")
    assert (code, shown["status"], shown["effect"], shown["attempts"]) == (0, 201, "yes", 3)
    assert flaky.effects == {"k": 1}


@pytest.mark.parametrize("how", list(IN_PROGRESS))
def test_in_progress_is_waited_for_in_every_profile(flaky, how):
    flaky.moods = [f"in_progress:{how}"] * 2
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["attempts"], flaky.effects) == (0, 3, {"k": 1})
    flaky.moods = [f"in_progress:{how}"] * 2
    code, shown = sent_json("POST", flaky.url, "-k", "k", "--retries", "1")
    assert (code, shown["status"], shown["effect"]) == (75, 409, "unknown")


def test_slow_is_given_up_and_asked_again_with_the_same_key(flaky):
    flaky.moods = ["slow"]
    code, shown = sent_json("POST", flaky.url, "-k", "k", "--timeout", "300ms")
    assert (code, shown["replayed"], flaky.effects) == (0, True, {"k": 1})


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 422])
def test_a_refusal_is_final(flaky, status):
    flaky.moods = [str(status)]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["status"], shown["effect"], len(flaky.requests)) == (65, status, "no", 1)


def test_a_conflict_is_final(flaky):
    assert send("POST", flaky.url, "-k", "k", "-d", "1").code == 0
    done = send("POST", flaky.url, "-k", "k", "-d", "2")
    assert done.code == 65 and b"idempotency_conflict" in done.out
    assert "answered 409; nothing happened" in done.err
    assert len(flaky.requests) == 2


@pytest.mark.parametrize("status", [409, 422, 400, 503])
def test_a_conflict_of_any_profile_is_final(flaky, status):
    flaky.moods = [f"conflict:{status}"]
    assert sent_json("POST", flaky.url, "-k", "k")[1]["decision"] == "conflict_rejected"
    assert len(flaky.requests) == 1


def test_a_replayed_failure_is_final(flaky):
    flaky.moods = ["500", "replayed:500"]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["attempts"], shown["replayed"], shown["effect"]) == (75, 2, True, "unknown")


def test_what_once_calls_final_is_not_tried_again(flaky):
    flaky.moods = ["problem:503:store_failed:no:no"]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["attempts"], shown["effect"]) == (69, 1, "no")
    assert shown["operation_id"] == "op_7"


@pytest.mark.parametrize("status, effect, expected", [(301, "unknown", 75), (303, "yes", 65),
    (307, "no", 65)])
def test_redirects_are_not_followed(flaky, status, effect, expected):
    flaky.moods = [str(status)]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["status"], shown["effect"]) == (expected, status, effect)
    assert [path for _, path, _, _ in flaky.requests] == ["/charges"]


# --- How long -------------------------------------------------------------------------------------


def test_retries_are_counted(flaky):
    flaky.moods = ["503"] * 20
    assert sent_json("POST", flaky.url, "-k", "k", "--retries", "0")[1]["attempts"] == 1
    assert sent_json("POST", flaky.url, "-k", "k", "--retries", "3")[1]["attempts"] == 4
    assert sent_json("POST", flaky.url, "-k", "k")[1]["attempts"] == 6


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_obeyed(flaky, form):
    flaky.moods = ["429"]
    flaky.retry_after = "1" if form == "seconds" else format_datetime(
        datetime.now(timezone.utc) + timedelta(seconds=3), usegmt=True)
    began = time.monotonic()
    assert send("POST", flaky.url, "-k", "k").code == 0
    assert time.monotonic() - began >= 1


def test_a_retry_after_past_the_deadline_is_not_waited_for(flaky):
    flaky.moods, flaky.retry_after = ["503", "503"], "100"
    began = time.monotonic()
    done = send("POST", flaky.url, "-k", "k", "--deadline", "50s")
    assert time.monotonic() - began < 45
    assert (done.code, len(flaky.requests)) == (75, 1)


def test_the_deadline_is_over_everything(flaky):
    flaky.moods = ["slow"] * 50
    began = time.monotonic()
    done = send("POST", flaky.url, "-k", "k", "--timeout", "400ms", "--deadline", "1s",
        "--retries", "1000")
    assert time.monotonic() - began < 20
    assert done.code == 75 and "no answer after" in done.err and "may have happened" in done.err
    assert "hint: the same key 'k' continues it" in done.err


# --- What is known --------------------------------------------------------------------------------


def test_what_never_left_is_unavailable():
    with socket.socket() as held:  # and nobody listens
        held.bind(("127.0.0.1", 0))
        code, shown = sent_json("POST", f"http://127.0.0.1:{held.getsockname()[1]}/", "-k", "k",
            "--retries", "2")
    assert code == 69
    assert (shown["status"], shown["attempts"], shown["effect"]) == (0, 3, "no")
    assert shown["idempotency_key"] == "k"


def test_a_name_that_does_not_exist_is_unavailable():
    assert send("POST", "http://nobody.invalid/", "-k", "k", "--retries", "1").code == 69


def test_a_server_that_comes_late_is_waited_for():
    port = servers.free_port()
    listener = socket.socket()

    def answer():
        time.sleep(0.3)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    code, shown = sent_json("POST", f"http://127.0.0.1:{port}/", "-k", "k", "--retries", "50")
    thread.join()
    listener.close()
    assert code == 0 and shown["attempts"] > 1 and shown["body"] == "ok"


@pytest.mark.parametrize("mood", ["reset_before", "reset_after", "half", "slow"])
def test_no_answer_is_unknown_and_the_same_key_continues(flaky, mood):
    flaky.moods = [mood] * 3
    done = send("POST", flaky.url, "-d", "{}", "--retries", "2", "--timeout", "300ms")
    assert done.code == 75 and done.out == b""
    key = re.search(r"the key of this operation is (\S+)", done.err)[1]
    assert f"the same key '{key}' continues it" in done.err
    assert send("POST", flaky.url, "-d", "{}", "-k", key).code == 0
    assert flaky.effects == {key: 1}


def test_a_refusal_after_a_lost_attempt_does_not_say_that_nothing_happened(flaky):
    flaky.moods = ["reset_after", "401"]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["status"], shown["effect"]) == (75, 401, "unknown")


def test_a_refusal_that_is_the_outcome_says_it(flaky):
    flaky.moods = ["reset_after", "replayed:402"]
    code, shown = sent_json("POST", flaky.url, "-k", "k")
    assert (code, shown["status"], shown["effect"]) == (65, 402, "no")


@pytest.mark.parametrize("moods, expected", [
    (["429"] * 2, (69, "no")), (["503"] * 2, (75, "unknown")),
    (["problem:503:overloaded:no:safe"] * 2, (69, "no")),
    (["problem:502:upstream_unreachable:no:safe"] * 2, (69, "no")),
    (["reset_after", "problem:503:overloaded:no:safe"], (75, "unknown")),
    (["problem:410:outcome_not_retained:yes:no"], (65, "yes"))])
def test_the_exit_code_says_what_is_known(flaky, moods, expected):
    flaky.moods = moods
    code, shown = sent_json("POST", flaky.url, "-k", "k", "--retries", "1")
    assert (code, shown["effect"]) == expected


def test_an_answer_that_is_too_large_is_known_to_have_happened(flaky):
    flaky.moods = [f"large:{17 << 20}"]
    done = send("POST", flaky.url, "-k", "k")
    assert (done.code, done.out, flaky.effects) == (74, b"", {"k": 1})
    flaky.moods = [f"large:{9 << 20}"]
    assert send("POST", flaky.url, "-k", "j").out == b"x" * (9 << 20)


def test_too_many_headers_are_not_taken(flaky):
    flaky.moods = ["headers:200"]
    done = send("POST", flaky.url, "-k", "k")
    assert (done.code, len(flaky.requests)) == (75, 1)
    assert "headers_bytes_max" in done.err


# --- What is sent and shown -----------------------------------------------------------------------


def test_data_from_everywhere(flaky, tmp_path):
    (tmp_path / "body").write_bytes(b"from a file\0")
    for words, stdin in ((["-d", "text"], b""), (["-d", f"@{tmp_path}/body"], b""),
            (["-d", "-"], b"from standard input"), ([], b"")):
        assert send("POST", flaky.url, *words, stdin=stdin).code == 0
    assert [body for _, _, _, body in flaky.requests] == [b"text", b"from a file\0",
        b"from standard input", b""]
    assert flaky.requests[0][2]["Content-Type"] == "application/json"
    assert send("POST", flaky.url, "-d", "@/nowhere/at/all").code == 74


def test_headers_go_out_as_given(flaky):
    assert send("PUT", flaky.url, "-H", "X-One: 1", "-H", "content-type: text/plain", "-H",
        "X-Empty:", "-d", "x").code == 0
    method, _, fields, _ = flaky.requests[0]
    assert (method, fields["X-One"], fields["X-Empty"]) == ("PUT", "1", "")
    assert fields.get_all("Content-Type") == ["text/plain"] and fields["Expect"] is None


def test_headers_from_a_file_are_on_no_command_line(flaky, tmp_path):
    (tmp_path / "secret").write_bytes(b"Authorization: Bearer x\r\n\nX-Last: 2")
    assert send("POST", flaky.url, "-H", f"@{tmp_path}/secret", "-H", "X-One: 1").code == 0
    fields = flaky.requests[0][2]
    assert (fields["Authorization"], fields["X-Last"], fields["X-One"]) == ("Bearer x", "2", "1")
    (tmp_path / "many").write_text("A: b\n" * 129)
    assert send("POST", flaky.url, "-H", f"@{tmp_path}/many").code == 64
    assert send("POST", flaky.url, "-H", f"@{tmp_path}/none").code == 74


@pytest.mark.parametrize("words", [["post", "URL"], ["POST", "ftp://x/"], ["POST", "http://"],
    ["POST", "URL", "-H", "no colon"], ["POST", "URL", "-H", "A: b\r\nC: d"],
    ["POST", "URL", "-H", "Idempotency-Key: x"], ["POST", "URL", "-H", "request-id: x"],
    ["POST", "URL", "-k", "x\r\nA: b"], ["POST", "URL", "-k", "k" * 256],
    ["POST", "URL", "--request-id", "a b"], ["POST", "URL", "--deadline", "0s"],
    ["HEAD", "URL", "-d", "x"], ["POST"]])
def test_what_cannot_be_sent_is_refused_before(flaky, words):
    done = send(*[flaky.url if word == "URL" else word for word in words])
    assert (done.code, flaky.requests) == (64, [])


def test_verbose_tells_each_attempt(flaky):
    flaky.moods = ["503"]
    done = send("POST", flaky.url, "-k", "k", "--verbose")
    assert "attempt 1: 503" in done.err and "attempt 2: 201 first_seen" in done.err
    assert "replayed" in send("POST", flaky.url, "-k", "k", "-v").err
    assert send("POST", flaky.url, "-k", "k").err == ""


@pytest.fixture
def certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-keyout", tmp_path / "key", "-out", tmp_path / "cert", "-subj", "/CN=127.0.0.1",
        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    both = tmp_path / "both"
    both.write_bytes((tmp_path / "key").read_bytes() + (tmp_path / "cert").read_bytes())
    return both


def test_certificates_are_checked(tmp_path, certificate):
    server = Flaky(certificate=certificate)
    try:
        refused = send("POST", server.url, "-k", "k", "-v")
        assert refused.code == 69 and refused.err.count("attempt") == 2  # one, and the summary
        assert send("POST", server.url, "-k", "k", "--cacert", tmp_path / "cert").code == 0
        assert server.effects == {"k": 1}
    finally:
        server.end()


def test_a_tls_connection_may_die_too(tmp_path, certificate):
    server = Flaky(certificate=certificate)
    server.moods = ["503", "close", "reset_after", "503", "half"]
    try:
        code, shown = sent_json("POST", server.url, "-k", "k", "--cacert", tmp_path / "cert")
        assert (code, shown["attempts"], server.effects) == (0, 6, {"k": 1})
        assert len(set(server.request_ids())) == len(server.requests) == 6
    finally:
        server.end()


def test_after_a_kill_the_same_key_continues(flaky):
    """The key is told before anything is sent, so whoever starts again has it."""
    flaky.moods = ["slow"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ONCE_")}
    process = subprocess.Popen([BINARY, "send", "POST", flaky.url, "-d", "{}"], env=env,
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    key = process.stderr.readline().split()[-1]
    began = time.monotonic()
    while not flaky.effects and time.monotonic() - began < 20:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert flaky.effects == {key: 1}
    code, shown = sent_json("POST", flaky.url, "-d", "{}", "-k", key)
    assert (code, shown["replayed"], flaky.effects) == (0, True, {key: 1})

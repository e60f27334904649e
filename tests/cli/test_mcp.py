"""once mcp: calls of tools through the proxy, counted by the server that they are for."""
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta

import pytest

from mcp_client import SERVER, VERSIONS, WAIT_S, Client, config, decision, is_answer, words


# ---- everything else passes ------------------------------------------------------------------


def test_other_messages_pass_unchanged_in_both_directions(once):
    client = Client(once)
    lines = ['{"jsonrpc" : "2.0", "id":"a\\u0062", "method":"resources/read","params":{"x": 1.0}}',
             '{"jsonrpc":"2.0","method":"notifications/initialized"}',
             '{"id": 7, "method": "unknown/method", "jsonrpc": "2.0", "extra": [1e400]}',
             '{"jsonrpc":"2.0","id":"s9","result":{"roots":[]}}',
             '[{"jsonrpc":"2.0","id":8,"method":"ping"}, {"jsonrpc":"2.0","id":9,"method":"p"}]',
             '"a text"']
    for line in lines[:5]:
        client.send_line(line)
    assert json.loads(client.answer("ab")) == {"result": {"echo": "resources/read"},
                                               "jsonrpc": "2.0", "id": "ab"}
    assert client.answer(7) is not None
    batch = client.wait_line(lambda text: text.startswith("["))
    assert [one["id"] for one in json.loads(batch)] == [8, 9]
    assert client.end() == 0
    assert client.got() == lines[:5]


def test_server_output_that_is_not_json_passes(once):
    line = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}'
    server = once.directory / "talker.sh"
    server.write_text("#!/bin/sh\necho 'starting up'\necho '{broken'\nread line\necho \"$line\"\n")
    server.chmod(0o755)
    done = once("mcp", "--", server, stdin=line.encode() + b"\n")
    assert done.code == 0
    assert done.text.splitlines() == ["starting up", "{broken", line]


def test_requests_of_the_server_reach_the_client_during_a_call(once):
    client = Client(once)
    call = client.start_call("pay", {"amount": 1, "how": "asks"})
    asked = client.wait_line(lambda text: "sampling/createMessage" in text)
    assert json.loads(asked)["id"] == "s1"
    client.send_line('{"jsonrpc":"2.0","id":"s1","result":{"role":"assistant"}}')
    assert "effect 1" in client.answer(call)
    assert client.end() == 0


def test_notifications_and_standard_error_pass(once):
    client = Client(once)
    client.ask("log")
    assert client.wait_line(lambda text: "notifications/message" in text) is not None
    assert client.end() == 0
    assert b"to standard error" in client.process.stderr.read()


def test_what_cannot_be_read_is_refused_and_does_not_reach_the_server(once):
    client = Client(once)
    twice = ('{"jsonrpc":"2.0","id":4,"method":"ping","method":"tools/call",'
             '"params":{"name":"pay","arguments":{}}}')
    for line, identifier, code in [("not json", None, -32700), (twice, 4, -32700),
                                   ("[" * 70 + "]" * 70, None, -32600)]:
        client.send_line(line)
        error = json.loads(client.answer(identifier))["error"]
        assert error["code"] == code, error
    assert client.end() == 0
    assert client.got() == []


def test_a_message_past_the_limit_is_refused_and_the_next_one_read(once):
    client = Client(once)
    client.send_line('{"jsonrpc":"2.0","id":1,"method":"x","params":"' + "y" * (17 << 20) + '"}')
    assert json.loads(client.answer(None))["error"]["code"] == -32600
    assert client.ask("ping")["result"] == {"echo": "ping"}
    assert client.end() == 0


# ---- the list of tools -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_list_gains_two_arguments_on_tools_that_are_not_read_only(once, version):
    client = Client(once)
    opened = client.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                       "clientInfo": {"name": "t", "version": "0"}})
    assert opened["result"]["protocolVersion"] == version
    client.notify("notifications/initialized", {})
    first = client.ask("tools/list")["result"]
    second = client.ask("tools/list", {"cursor": first["nextCursor"]})["result"]
    pay, look, own, camel = first["tools"] + second["tools"]
    assert list(pay["inputSchema"]["properties"]) == ["amount", "idempotency_key", "request_id"]
    assert pay["inputSchema"]["required"] == ["amount"]
    assert pay["annotations"] == {"idempotentHint": True}
    assert "same value" in pay["inputSchema"]["properties"]["idempotency_key"]["description"]
    assert look == {"name": "look", "inputSchema": {"type": "object"},
                    "annotations": {"readOnlyHint": True}}
    assert list(own["inputSchema"]["properties"]) == [
        "idempotency_key", "request_id", "once_idempotency_key", "once_request_id"]
    assert own["annotations"] == {"idempotentHint": True}
    assert "idempotency_key" in camel["inputSchema"]["properties"]
    assert client.call("pay", {"amount": 1, "idempotency_key": "k"})["content"][0]["type"] == "text"
    assert client.end() == 0
    assert b"tool 'own' has an argument idempotency_key itself" in client.process.stderr.read()


def test_list_is_otherwise_byte_for_byte_the_servers(once):
    schema = '{ "type":"object" , "properties" : { "a":{"const":1.0,"x":"\\u00e9"} } }'
    line = ('{"jsonrpc":"2.0", "id":ID ,"result":{ "tools":[ {"name":"t","inputSchema":SCHEMA,'
            '"annotations" : {"idempotentHint" : false , "title":"T"}},  '
            '{"inputSchema":{},"name":"u"} ],"x":[1E5] },"z":null}')
    client = Client(once, server=("--list", line.replace("SCHEMA", schema)))
    text = client.answer(client.send("tools/list"))
    assert client.end() == 0
    properties = json.loads(text)["result"]["tools"][0]["inputSchema"]["properties"]
    added = text[text.index(',"idempotency_key"'):text.index(" } }")]
    back = text.replace(added, "", 1).replace('"idempotentHint" : true', '"idempotentHint" : false')
    new = text[text.index('"properties":{"idempotency_key"'):text.index(' ],"x"')]
    back = back.replace(new, '},"name":"u"}')
    assert back == line.replace("SCHEMA", schema).replace("ID", "1")
    assert list(properties) == ["a", "idempotency_key", "request_id"]


# ---- one effect ------------------------------------------------------------------------------


def test_a_repeated_call_takes_effect_once_and_gets_the_same_bytes(once):
    client = Client(once)
    first = client.answer(client.start_call("pay", {"amount": 5, "idempotency_key": "k-1"}))
    for arguments in ({"amount": 5, "idempotency_key": "k-1"},
                      {"idempotency_key": "k-1", "amount": 5.0, "request_id": "r-2"}):
        again = client.answer(client.start_call("pay", arguments))
        result = json.loads(again)["result"]
        assert decision(result) == "duplicate_replayed"
        # The whole result as it stood, and then what Once decided.
        whole = first[first.index('{"content"'):first.index(', "jsonrpc"')]
        assert again.startswith('{"jsonrpc":"2.0","id":') and whole[:-1] + ',"_meta":{' in again
    assert client.count() == 1
    assert client.end() == 0
    calls = [json.loads(line) for line in client.got() if "tools/call" in line]
    assert [one["params"]["arguments"] for one in calls] == [{"amount": 5}]


def test_the_request_id_is_in_the_evidence(once):
    client = Client(once)
    client.call("pay", {"amount": 5, "idempotency_key": "k", "request_id": "try-1"})
    assert client.end() == 0
    assert "try-1" in once("tail", "--json").text


def test_a_key_outlives_the_proxy(once):
    for _ in range(3):
        client = Client(once)
        assert words(client.call("pay", {"amount": 5, "idempotency_key": "k"})) == "effect 1"
        assert client.end() == 0
    assert client.count() == 1


def test_a_key_is_also_taken_from_where_clients_put_it(once):
    client = Client(once)
    client.call("pay", {"amount": 5}, idempotencyKey="k")
    assert decision(client.call("pay", {"amount": 5, "idempotencyKey": "k"})) is not None
    assert decision(client.call("pay", {"amount": 5, "idempotency_key": "k"})) is not None
    assert decision(client.call("pay", {"amount": 5, "_idempotency_key": "k"})) is not None
    assert decision(client.call("pay", {"amount": 6, "_idempotency_key": "k"})) == \
        "conflict_rejected"
    assert client.count() == 1
    # A tool's own argument stays in the call.
    client.call("camel", {"idempotencyKey": "c"})
    assert decision(client.call("camel", {"idempotencyKey": "c"})) == "duplicate_replayed"
    client.call("own", {"idempotency_key": "theirs", "request_id": "theirs",
                        "once_idempotency_key": "o"})
    result = client.call("pay", {"amount": 5, "idempotency_key": "k"}, idempotencyKey="l")
    assert result["isError"] and "differs" in words(result)
    assert client.end() == 0
    assert '["camel", {"idempotencyKey": "c"}]' in client.effects.read_text()
    assert '["own", {"idempotency_key": "theirs", "request_id": "theirs"}]' in \
        client.effects.read_text()


def test_a_json_rpc_id_names_nothing(once):
    client = Client(once)
    for key in ("a", "b"):
        client.send("tools/call", {"name": "pay", "arguments": {"amount": 1,
                                   "idempotency_key": key}}, identifier="same")
        client.answer("same")
    assert client.count() == 2
    assert client.end() == 0


def test_an_id_in_use_is_refused(once):
    client = Client(once)
    call = client.start_call("pay", {"amount": 1, "how": "slow", "seconds": 1})
    client.send("ping", identifier=call)
    assert json.loads(client.answer(call))["error"]["code"] == -32600
    assert "effect 1" in client.answer(call)
    assert client.end() == 0


def test_concurrent_duplicates_take_effect_once(once):
    client = Client(once)
    calls = [client.start_call("pay", {"amount": 1, "how": "slow", "idempotency_key": "k"})
             for _ in range(40)]
    others = [client.start_call("pay", {"amount": n}) for n in range(20)]
    texts = {words(json.loads(client.answer(call))["result"]) for call in calls}
    for other in others:
        assert "effect" in client.answer(other)
    assert len(texts) == 1, texts
    assert client.count('"slow"') == 1 and client.count() == 21
    assert client.end() == 0


def test_two_proxies_on_one_store_make_one_call(once):
    first, second = Client(once), Client(once)
    calls = [(client, client.start_call("pay", {"amount": 1, "how": "slow"}))
             for client in (first, second) for _ in range(5)]
    texts = {words(json.loads(client.answer(call))["result"]) for client, call in calls}
    assert len(texts) == 1, texts
    assert first.count() == 1
    assert first.end() == 0 and second.end() == 0


def test_a_conflict_says_what_differs(once):
    client = Client(once)
    client.call("pay", {"amount": 5, "to": "ann", "idempotency_key": "k"})
    result = client.call("pay", {"amount": 6, "note": "x", "idempotency_key": "k"})
    assert result["isError"] and decision(result) == "conflict_rejected"
    for part in ("/amount is different from the first call and is now 6",
                 "/note was not in the first call", "/to was there in the first call"):
        assert part in words(result), words(result)
    assert "effect" not in words(result).replace("take effect", "")
    assert client.count() == 1
    assert client.end() == 0


def test_a_conflict_is_found_before_a_running_call_is_waited_for(once):
    client = Client(once)
    running = client.start_call("pay", {"amount": 1, "how": "slow", "seconds": 2,
                                        "idempotency_key": "k"})
    client.wait_effects(1)
    result = client.call("pay", {"amount": 2, "idempotency_key": "k"})
    assert decision(result) == "conflict_rejected"
    assert client.wait_line(lambda text: is_answer(text, running), 0) is None
    client.answer(running)
    assert client.end() == 0


# ---- calls without a key ---------------------------------------------------------------------


def test_equal_calls_without_a_key_are_one_call(once):
    client = Client(once)
    client.call("pay", {"amount": 1, "to": "a"})
    assert decision(client.call("pay", {"to": "a", "amount": 1.0})) == "duplicate_replayed"
    client.call("pay", {"amount": 2, "to": "a"})
    assert client.count() == 2
    assert client.end() == 0
    operations = json.loads(once("ls", "--json").text)
    assert len(operations) == 2
    for one in operations:
        ends = [datetime.fromisoformat(one[name].replace("Z", "+00:00"))
                for name in ("sealed_at", "window_expires_at")]
        assert ends[1] - ends[0] == timedelta(minutes=2)


def test_a_number_that_no_double_holds_derives_no_key(once):
    client = Client(once)
    result = client.call("pay", {"amount": 9007199254740993})
    assert result["isError"] and "9007199254740993" in words(result)
    assert "idempotency_key" in words(result)
    client.call("pay", {"amount": 9007199254740993, "idempotency_key": "k"})
    result = client.call("pay", {"amount": 9007199254740992, "idempotency_key": "k"})
    assert decision(result) == "conflict_rejected"
    assert client.count() == 1
    assert client.end() == 0


def test_the_window_of_a_derived_key_is_over_after_its_time(once):
    client = Client(once, *config(once, "    pay: {window: 300ms}\n"))
    client.call("pay", {"amount": 1})
    until = time.monotonic() + WAIT_S
    while decision(client.call("pay", {"amount": 1})) is not None:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert client.count() == 2
    assert client.end() == 0


def test_policies_are_by_name_and_glob(once):
    policy = "    pay: {key: require}\n    c*l: {key: pass}\n    '*': {key: derive}\n"
    client = Client(once, *config(once, policy))
    result = client.call("pay", {"amount": 1})
    assert result["isError"] and "needs an idempotency_key" in words(result)
    for empty in (None, ""):
        assert client.call("pay", {"amount": 1, "idempotency_key": empty})["isError"]
    assert client.count() == 0
    client.call("pay", {"amount": 1, "idempotency_key": "k"})
    for _ in range(2):
        client.call("camel", {"idempotency_key": "theirs"})
        client.call("own", {})
    assert client.count('"pay"') == 1 and client.count('"own"') == 1
    # Not guarded: as it came, also its arguments.
    assert client.count('["camel", {"idempotency_key": "theirs"}]') == 2
    listed = client.ask("tools/list", {"cursor": "2"})["result"]["tools"]
    assert "annotations" not in [one for one in listed if one["name"] == "camel"][0]
    assert client.end() == 0


def test_read_only_tools_pass(once):
    client = Client(once)
    for _ in range(3):
        client.call("look", {"idempotency_key": "k"})
    assert client.count('["look", {"idempotency_key": "k"}]') == 3
    assert client.end() == 0
    assert not (once.directory / "once-data").exists()  # nothing to remember


def test_redacted_arguments_are_not_stored(once):
    client = Client(once, *config(once, "    pay: {key: require, redact: [/card/number]}\n"))
    secret = "4242424242424242"
    card = {"amount": 1, "card": {"number": secret}, "idempotency_key": "k"}
    client.call("pay", card)
    assert decision(client.call("pay", card)) == "duplicate_replayed"
    other = client.call("pay", {**card, "card": {"number": "4000000000000002"}})
    assert decision(other) == "conflict_rejected" and "4000" not in words(other)
    assert client.count() == 1
    assert client.end() == 0
    for path in (once.directory / "once-data").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


# ---- errors of a tool ------------------------------------------------------------------------


def test_an_error_of_a_tool_is_kept(once):
    client = Client(once)
    arguments = {"amount": 1, "how": "error", "idempotency_key": "k"}
    assert client.call("pay", arguments)["isError"]
    again = client.call("pay", arguments)
    assert again["isError"] and words(again) == "the card was declined"
    assert decision(again) == "duplicate_replayed"
    assert client.count() == 1
    assert client.end() == 0
    assert json.loads(once("ls", "--json").text)[0]["status"] == "failed"


def test_an_error_of_a_tool_is_released_by_policy(once):
    client = Client(once, *config(once, "    pay: {retry_errors: true}\n"))
    for _ in range(2):
        result = client.call("pay", {"amount": 1, "how": "error", "idempotency_key": "k"})
        assert result["isError"] and decision(result) is None
    assert client.count() == 2
    assert client.end() == 0


def test_a_refusal_by_the_protocol_frees_the_key(once):
    client = Client(once)
    for how in ("invalid", "needs input"):
        arguments = {"amount": 1, "how": how, "idempotency_key": how}
        for _ in range(2):
            answer = json.loads(client.answer(client.start_call("pay", arguments)))
            assert answer.get("error", {}).get("code") == -32602 or \
                answer["result"]["resultType"] == "input_required"
            assert "_meta" not in answer.get("result", {})
    assert client.count() == 0
    assert client.end() == 0


def test_an_error_that_does_not_say_whether_it_was_done_is_unknown(once):
    client = Client(once)
    arguments = {"amount": 1, "how": "broken", "idempotency_key": "k"}
    result = client.call("pay", arguments)
    assert decision(result) == "unknown" and "it broke halfway" in words(result)
    assert decision(client.call("pay", arguments)) == "held_unknown"
    assert client.count() == 1
    assert client.end() == 0


# ---- unknown ---------------------------------------------------------------------------------


def test_a_server_that_dies_in_a_call_leaves_it_unknown(once):
    client = Client(once)
    arguments = {"amount": 1, "how": "dies", "idempotency_key": "k"}
    result = client.call("pay", arguments)
    assert result["isError"] and decision(result) == "unknown"
    assert "Do NOT repeat" in words(result) and "once resolve op_" in words(result)
    assert client.end() == 128 + signal.SIGKILL
    client = Client(once)
    again = client.call("pay", arguments)
    assert decision(again) == "held_unknown" and "once resolve op_" in words(again)
    assert client.count() == 1
    # A person finds out, with the very words that the model was given.
    identifier = again["_meta"]["io.once/operation_id"]
    fence = words(again).split("--fence ")[1].split()[0]
    done = once("resolve", identifier, "--fence", fence, "--status", "executed",
        "--reason", "seen at the bank")
    assert done.code == 0, done
    settled = client.call("pay", arguments)
    assert not settled["isError"] and "took effect" in words(settled)
    assert "seen at the bank" in words(settled)
    assert client.count() == 1
    assert client.end() == 0


def test_a_server_that_dies_before_it_gets_a_call_leaves_the_key_free(once):
    server = once.directory / "deaf.sh"
    server.write_text("#!/bin/sh\nexec 0<&-\n: > deaf\n"
        "until test -e sent; do sleep 0.05; done\nexit 3\n")
    server.chmod(0o755)
    line = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay",'
            '"arguments":{"amount":1,"idempotency_key":"k"}}}')
    process = once.start("mcp", "--", server, stdin=subprocess.PIPE)

    def wait_for(is_so):
        until = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < until
            time.sleep(0.02)

    wait_for((once.directory / "deaf").exists)
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    wait_for(lambda: json.loads(once("ls", "--json").text or "[]"))  # the call has begun
    (once.directory / "sent").touch()
    out, _ = process.communicate(timeout=WAIT_S)
    result = json.loads(out)["result"]
    assert process.returncode == 3
    assert result["isError"] and "nothing was done" in words(result)
    client = Client(once)
    assert words(client.call("pay", {"amount": 1, "idempotency_key": "k"})) == "effect 1"
    assert client.end() == 0


def test_a_silent_server_leaves_a_call_unknown(once):
    client = Client(once, *config(once, "    pay: {timeout: 300ms}\n"))
    arguments = {"amount": 1, "how": "silent", "idempotency_key": "k"}
    assert decision(client.call("pay", arguments)) == "unknown"
    assert decision(client.call("pay", arguments)) == "held_unknown"
    assert client.count() == 1
    assert client.end() == 0


def test_takeover_repeats_an_unknown_call(once):
    client = Client(once, *config(once, "    pay: {timeout: 300ms, on_unknown: takeover}\n"))
    arguments = {"amount": 1, "how": "silent", "idempotency_key": "k"}
    assert decision(client.call("pay", arguments)) == "unknown"
    assert decision(client.call("pay", arguments)) == "unknown"
    assert client.count() == 2
    assert client.end() == 0


def test_a_late_answer_settles_an_unknown_call(once):
    client = Client(once, *config(once, "    pay: {timeout: 300ms}\n"))
    arguments = {"amount": 1, "how": "slow", "seconds": 2, "idempotency_key": "k"}
    call = client.start_call("pay", arguments)
    assert decision(json.loads(client.answer(call))["result"]) == "unknown"
    until = time.monotonic() + WAIT_S
    while decision(result := client.call("pay", arguments)) == "held_unknown":
        assert time.monotonic() < until
        time.sleep(0.1)
    assert words(result) == "effect 1" and decision(result) == "duplicate_replayed"
    # The client had its answer to that request already.
    assert client.wait_line(lambda text: is_answer(text, call), 0) is None
    assert client.count() == 1
    assert client.end() == 0


def test_progress_keeps_a_call_alive(once):
    client = Client(once, *config(once, "    pay: {timeout: 3s}\n"))
    result = client.call("pay", {"amount": 1, "how": "progress", "seconds": 5},
        _meta={"progressToken": "t-1"})
    assert words(result) == "effect 1"
    assert client.end() == 0


def test_a_cancelled_call_without_a_result_is_unknown(once):
    client = Client(once, *config(once, "    pay: {timeout: 1h}\n"))
    arguments = {"amount": 1, "how": "silent", "idempotency_key": "k"}
    call = client.start_call("pay", arguments)
    client.wait_effects(1)
    client.notify("notifications/cancelled", {"requestId": call, "reason": "user"})
    result = client.call("pay", arguments)
    assert decision(result) == "held_unknown" and "cancelled" in words(result)
    assert client.wait_line(lambda text: is_answer(text, call), 0) is None
    assert client.count() == 1
    assert client.end() == 0
    assert any("notifications/cancelled" in line for line in client.got())


def test_a_cancelled_call_whose_result_comes_is_kept(once):
    client = Client(once)
    arguments = {"amount": 1, "how": "slow", "seconds": 1, "idempotency_key": "k"}
    call = client.start_call("pay", arguments)
    client.wait_effects(1)
    client.notify("notifications/cancelled", {"requestId": call})
    assert words(client.call("pay", arguments)) == "effect 1"
    assert client.count() == 1
    assert client.end() == 0


def test_a_running_call_is_waited_for_and_then_reported(once):
    client = Client(once, *config(once, "    pay: {wait: 200ms}\n"))
    arguments = {"amount": 1, "how": "slow", "seconds": 3, "idempotency_key": "k"}
    call = client.start_call("pay", arguments)
    client.wait_effects(1)
    result = client.call("pay", arguments)
    assert result["isError"] and decision(result) == "in_progress"
    assert "still running" in words(result)
    client.answer(call)
    assert words(client.call("pay", arguments)) == "effect 1"
    assert client.count() == 1
    assert client.end() == 0


def test_a_killed_proxy_leaves_its_call_unknown(once):
    client = Client(once)
    arguments = {"amount": 1, "how": "slow", "seconds": 2, "idempotency_key": "k"}
    client.start_call("pay", arguments)
    client.wait_effects(1)
    client.process.kill()
    client.process.wait()
    client = Client(once)
    result = client.call("pay", arguments)
    assert decision(result) == "held_unknown" and "is gone" in words(result)
    assert client.count() == 1
    assert client.end() == 0


def test_killed_proxies_never_repeat_an_effect(once):
    """Kills at any moment: each key has one effect at most, and one that was answered has one."""
    answered = set()
    turns = 60 if os.environ.get("ONCE_TEST_LONG") else 6
    for turn in range(turns):
        client = Client(once)
        sent = []
        for n in range(30):
            key = f"{turn}-{n % 10}"
            sent.append((key, client.start_call("pay", {"order": key, "idempotency_key": key})))
        time.sleep(0.02 * (turn % 8))
        client.process.kill()
        client.process.wait()
        client.reader.join(WAIT_S)
        answers = {json.loads(line)["id"]: json.loads(line) for line in client.lines if line}
        answered |= {key for key, call in sent
                     if "effect" in words(answers.get(call, {}).get("result", text_of("")))}
    time.sleep(0.3)
    client = Client(once)
    for turn in range(turns):
        for n in range(10):
            key = f"{turn}-{n}"
            result = client.call("pay", {"order": key, "idempotency_key": key})
            assert decision(result) in (None, "duplicate_replayed", "held_unknown"), result
            assert key not in answered or decision(result) == "duplicate_replayed", result
            assert client.count(f'"{key}"') <= 1
            assert decision(result) == "held_unknown" or client.count(f'"{key}"') == 1
    assert client.end() == 0


def text_of(text):
    return {"content": [{"type": "text", "text": text}]}


# ---- its own life ----------------------------------------------------------------------------


def test_the_servers_exit_code_is_passed_on(once):
    client = Client(once, server=("--exit", "7"))
    client.ask("ping")
    assert client.end() == 7


def test_calls_that_came_before_the_end_of_input_are_answered(once):
    lines = "".join(json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {
        "name": "pay", "arguments": {"amount": n, "idempotency_key": str(n)}}}) + "\n"
        for n in range(5))
    done = once("mcp", "--", sys.executable, SERVER, "--effects", "effects", stdin=lines.encode())
    assert done.code == 0
    assert len((once.directory / "effects").read_text().splitlines()) == 5


def test_a_signal_reaches_the_server(once):
    client = Client(once)
    call = client.start_call("pay", {"amount": 1, "how": "silent"})
    client.wait_effects(1)
    client.process.send_signal(signal.SIGTERM)
    assert decision(json.loads(client.answer(call))["result"]) == "unknown"
    assert client.process.wait(WAIT_S) == 128 + signal.SIGTERM


def test_a_command_that_is_not_there(once):
    done = once("mcp", "--", "no-such-server")
    assert done.code == 127 and "command not found" in done.message


def test_a_locked_store_refuses_calls_and_nothing_is_done(once):
    (once.directory / "once-data").write_text("not a directory")
    client = Client(once)
    result = client.call("pay", {"amount": 1})
    assert result["isError"] and "nothing was done" in words(result)
    assert client.count() == 0
    assert client.ask("ping")["result"] == {"echo": "ping"}
    assert client.end() == 0


def test_a_large_result_is_kept_or_said_to_be_gone(once):
    client = Client(once)
    for size in (1 << 20, 20 << 20):
        arguments = {"how": "large", "bytes": size, "idempotency_key": str(size)}
        assert len(words(client.call("pay", arguments))) == size
        again = client.call("pay", arguments)
        assert decision(again) == "duplicate_replayed"
        assert words(again) == "x" * size if size < 16 << 20 else "not kept" in words(again)
    assert client.count() == 2
    assert client.end() == 0


def test_a_result_that_is_not_i_json_is_kept(once):
    client = Client(once)
    line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\\ud83d"}]}}'
    arguments = {"how": "raw", "line": line, "idempotency_key": "k"}
    assert '"\\ud83d"' in client.answer(client.start_call("pay", arguments))
    again = client.answer(client.start_call("pay", arguments))
    assert '"\\ud83d"' in again and "duplicate_replayed" in again
    assert client.count() == 1
    assert client.end() == 0


@pytest.mark.parametrize("version", VERSIONS[:1])
def test_a_batch_with_calls_is_answered_as_one(once, version):
    client = Client(once)
    call = {"name": "pay", "arguments": {"amount": 1, "idempotency_key": "k"}}
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
             {"jsonrpc": "2.0", "id": 2, "method": "ping"},
             {"jsonrpc": "2.0", "method": "notifications/x"},
             {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}]
    client.send_line(json.dumps(batch))
    answers = json.loads(client.wait_line(lambda text: text.startswith("[")))
    results = {one["id"]: one["result"] for one in answers}
    assert sorted(results) == [1, 2, 3]
    assert words(results[1]) == words(results[3]) == "effect 1"
    assert client.count() == 1
    assert client.end() == 0


def test_the_same_through_a_server_that_holds_the_store(once):
    server = once.start("serve", "--listen", f"unix:{once.directory}/api.sock")
    until = time.monotonic() + WAIT_S
    while not (once.directory / "once-data/once.sock").exists():
        assert time.monotonic() < until and server.poll() is None
        time.sleep(0.05)
    client = Client(once)
    arguments = {"amount": 1, "idempotency_key": "k"}
    first = client.answer(client.start_call("pay", arguments))
    again = client.answer(client.start_call("pay", arguments))
    assert decision(json.loads(again)["result"]) == "duplicate_replayed"
    assert first[first.index('{"content"'):first.index(', "jsonrpc"') - 1] in again
    assert decision(client.call("pay", {**arguments, "amount": 2})) == "conflict_rejected"
    assert client.count() == 1
    assert client.end() == 0


def test_check_names_the_line_of_a_wrong_setting(once):
    path = once.directory / "once.yaml"
    path.write_text("mcp:\n  tools:\n    pay: {key: derived}\n    send_*: {windo: 1m}\n")
    done = once("check", path)
    assert done.code == 78
    assert f"{path}:3:16: " in done.message and f"{path}:4:14: " in done.message, done.message
    done = once("mcp", "--config", path, "--", "true")
    assert done.code == 78 and f"{path}:3:16: " in done.message
    path.write_text("mcp:\n  tools:\n    pay: {redact: [/card]}\n")
    done = once("check", path)
    assert done.code == 0 and "guessed" in done.message, done

"""once check and once serve --test: a configuration is right, or every fault is told."""
import json
import re

import pytest
from conftest import ROOT

BAD = """lisen: 127.0.0.1:7411
store: journal:./x
limits: {body_bytes_max: 10MB}
drain: &soon 10s
"""


def write(once, text, name="once.yaml"):
    (once.directory / name).write_text(text)
    return name


def test_a_good_file_is_0_with_a_summary(once):
    name = write(once, "listen: [127.0.0.1:0, unix:/tmp/x.sock]\nstore: journal:/var/lib/once\n")
    done = once("check", name)
    assert (done.code, done.err) == (0, b"")
    assert done.text.splitlines()[0] == "once.yaml: ok"
    assert "127.0.0.1:0" in done.text and "unix:/tmp/x.sock" in done.text
    assert "journal:/var/lib/once" in done.text


def test_replays_soon_on_a_store_without_it_is_a_warning(once):
    soon = "evidence: {replays: soon}\n"
    done = once("check", write(once, "store: journal:./x\n" + soon))
    assert (done.code, done.err) == (0, b"")
    done = once("check", write(once, "store: redis://127.0.0.1/0\n" + soon))
    assert done.code == 0 and "replays: soon has no effect on this store" in done.message
    done = once("check", write(once, "evidence: {replays: later}\n"))
    assert done.code == 78 and "durable" in done.message


def test_a_bad_file_is_78_with_every_fault_at_its_place(once):
    done = once("check", write(once, BAD))
    assert done.code == 78 and done.out == b""
    assert re.findall(r"^once\.yaml:(\d+:\d+): (.*)$", done.message, re.M) == [
        ("1:1", "unknown key 'lisen'"),
        ("3:26", "limits.body_bytes_max: '10MB' is not a size such as 64KiB or 10MiB"),
        ("4:8", "anchors ('&name') are not supported"),
    ]
    assert "\n    lisen: 127.0.0.1:7411\n    ^\nhint: did you mean 'listen'?\n" in done.message


def test_json_has_the_same(once):
    done = once("check", "--json", write(once, BAD))
    assert done.code == 78 and done.err == b""
    document = json.loads(done.out)
    assert document["ok"] is False and document["file"] == "once.yaml"
    assert document["faults"][0] == {"line": 1, "column": 1, "message": "unknown key 'lisen'",
        "hint": "did you mean 'listen'?"}
    assert len(document["faults"]) == 3
    done = once("check", "--json", write(once, "drain: 3s\n"))
    document = json.loads(done.out)
    assert done.code == 0 and document["ok"] is True and document["faults"] == []
    assert document["settings"]["drain"] == "3s"
    assert document["settings"]["listen"] == ["127.0.0.1:7411"]


def test_standard_input_and_a_file_that_is_not_there(once):
    assert once("check", "-", stdin=b"drain: 3s\n").code == 0
    done = once("check", "-", stdin=b"drain: x\n")
    assert done.code == 78 and done.message.startswith("-:1:8: drain: 'x' is not a duration")
    done = once("check", "nowhere.yaml")
    assert done.code == 78
    assert "cannot read the configuration 'nowhere.yaml': No such file" in done.message
    assert "hint: once check --example" in done.message
    done = once("check", "--json", ".")
    assert done.code == 78 and "Is a directory" in json.loads(done.out)["faults"][0]["message"]


def test_a_public_address_without_auth_is_refused_at_its_place(once):
    done = once("check", write(once, "listen: 0.0.0.0:7411\n"))
    assert done.code == 78
    assert done.message.startswith("once.yaml:1:9: will not listen on '0.0.0.0:7411' without auth")
    assert "hint: make a token with 'once token new" in done.message


@pytest.mark.parametrize("url, says", [
    ("mysql://u:secret@db/once", "there is no kind of store called 'mysql'"),
    ("journal:./x?speed=fast", "the journal has no option 'speed'"),
    ("mem:/tmp", "the store URL 'mem:' takes no path, but got '/tmp'"),
])
def test_a_store_that_cannot_be_is_refused_at_its_place(once, url, says):
    name = write(once, f"drain: 3s\nstore: {url}\n")
    for words in (("check", name), ("serve", "--test", "--config", name)):
        done = once(*words)
        assert done.code == 78 and done.out == b""
        assert done.message.startswith(f"once.yaml:2:8: {says}\n    store: {url}\n           ^\n")
    done = once("serve", "--test", "--config", name, "--store", url)
    assert done.code == 78 and done.message.startswith(f"once: {says}\n")
    assert once("serve", "--test", "--config", name, "--store", "journal:./x").code == 0


def test_the_example_is_printed_and_is_right(once):
    done = once("check", "--example")
    assert done.code == 0 and done.text == (ROOT / "examples/once.yaml").read_text()
    opened = re.sub(r"^#([^ ]|  )", r"\1", done.text, flags=re.M)
    assert once("check", "-", stdin=done.out).code == 0
    done = once("check", "--json", "-", stdin=opened.encode())
    assert done.code == 0, done
    assert json.loads(done.out)["settings"]["tls.cert"] == "/etc/once/cert.pem"


def test_usage(once):
    assert once("check").code == 64
    assert once("check", "--example", "x").code == 64


# ---- serve --test: all of it together ------------------------------------------------------------


def settings(once, *words, **how):
    done = once("serve", "--test", "--json", *words, **how)
    assert done.code == 0, done
    return json.loads(done.out)["settings"]


def test_flags_win_over_variables_these_over_the_file_and_this_over_defaults(once):
    name = write(once, "listen: 127.0.0.1:1\nstore: journal:file\ndrain: 1s\nloops: 1\n"
        "limits: {connections_max: 1}\n")
    env = {"ONCE_LISTEN": "127.0.0.1:2", "ONCE_DRAIN": "2s", "ONCE_LIMITS_CONNECTIONS_MAX": "2"}
    assert settings(once)["listen"] == ["127.0.0.1:7411"]
    file = settings(once, "--config", name)
    assert (file["listen"], file["drain"], file["loops"]) == (["127.0.0.1:1"], "1s", 1)
    both = settings(once, "--config", name, env=env)
    assert (both["listen"], both["drain"], both["loops"]) == (["127.0.0.1:2"], "2s", 1)
    assert both["limits.connections_max"] == 2
    all_three = settings(once, "-c", name, "--listen", "127.0.0.1:3", "-l", "[::1]:3",
        "--drain=3s", env=env)
    assert (all_three["listen"], all_three["drain"]) == (["127.0.0.1:3", "[::1]:3"], "3s")
    assert all_three["store"] == "journal:file"
    assert settings(once, env={"ONCE_CONFIG": name})["loops"] == 1


def test_serve_test_opens_nothing(once):
    done = once("serve", "-t")
    assert done.code == 0 and "127.0.0.1:7411" in done.text
    assert list(once.directory.iterdir()) == []


@pytest.mark.parametrize("words, env, says", [
    (["--listen", "0.0.0.0:0"], {}, "will not listen on '0.0.0.0:0' without auth"),
    (["--listen", "[::]:0"], {}, "without auth"),
    (["--listen", "example:1"], {}, "--listen: 'example:1' is not an address"),
    (["--tls-cert", "a"], {}, "tls.cert is set and tls.key is not"),
    ([], {"ONCE_LISTEN": "10.0.0.1:1"}, "will not listen on '10.0.0.1:1' without auth"),
    ([], {"ONCE_LIMITS_KEYS_MAX": "many"}, "ONCE_LIMITS_KEYS_MAX: limits.keys_max: 'many'"),
    ([], {"ONCE_LOG_DECISIONS": "1"}, "ONCE_LOG_DECISIONS: log.decisions: '1' is not true"),
    (["--config", "nowhere"], {}, "cannot read the configuration 'nowhere'"),
])
def test_a_wrong_whole_is_78(once, words, env, says):
    for test in (["--test"], []):
        done = once("serve", *test, *words, env=env)
        assert done.code == 78 and done.out == b"", done
        assert says in done.message
    assert list(once.directory.iterdir()) == []

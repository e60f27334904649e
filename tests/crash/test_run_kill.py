"""SIGKILL of `once run` at random moments while its caller keeps retrying: one effect a key."""
import collections
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("ONCE_BIN") or str(ROOT / "build/once")
LONG = os.environ.get("ONCE_TEST_LONG")
KEYS = 600 if LONG else 60
KILLS_A_KEY = 3  # at most: then the caller lets it end
TIMED_RUNS = 5  # undisturbed ones, to know how long starting, grant, command and seal take
LEASE_S = 1.0
TIMEOUT_S = 120  # far above what any call takes; a hang is a failure, not a wait
OK, IN_DOUBT = 0, 75

# The effect is one line. It comes a moment after the command began and a moment before it ends.
EFFECT = 'sleep 0.01; echo "$1" >> effects; sleep 0.01; echo "done $1"'


class Caller:
    """A directory with a journal and what the outside world saw happen."""

    def __init__(self, directory):
        self.directory = directory
        self.env = {name: value for name, value in os.environ.items()
            if not name.startswith("ONCE_")}
        self.kills = 0
        self.codes = collections.Counter()

    def start(self, *words):
        return subprocess.Popen([BINARY, *words], cwd=self.directory, env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def call(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, out.decode(), err.decode()

    def run_words(self, key, *options, effect=EFFECT):
        return ["run", "-k", key, "--lease", f"{LEASE_S:g}s", *options, "--", "sh", "-c", effect,
            "sh", key]

    def run(self, key, *options, **how):
        code, out, err = self.call(*self.run_words(key, *options, **how))
        self.codes[code] += 1
        return code, out, err

    def run_killed(self, key, after_s):
        """True when the kill came before the end."""
        process = self.start(*self.run_words(key))
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=TIMEOUT_S)
        # The command may live on for a moment; its pipes are nobody's business any more.
        process.stdout.close()
        process.stderr.close()
        killed = process.returncode == -signal.SIGKILL
        self.kills += killed
        return killed

    def effects(self):
        path = self.directory / "effects"
        return collections.Counter(path.read_text().split()) if path.exists() else \
            collections.Counter()

    def repeated(self):
        """The keys whose effect happened more than once: there must be none."""
        return [key for key, count in self.effects().items() if count > 1]


@pytest.fixture
def caller(tmp_path):
    return Caller(tmp_path)


def run_time_s(caller):
    """How long a run takes here and now: on a busy machine many times what it takes on an idle one,
    and kills that all come before the grant would prove nothing."""
    spans = []
    for number in range(TIMED_RUNS):
        start = time.monotonic()
        assert caller.run(f"timed-{number}")[0] == OK
        spans.append(time.monotonic() - start)
    return sorted(spans)[TIMED_RUNS // 2]


def retry_under_kills(caller, key, dice, within_s):
    """A caller that retries and is unlucky: killed again and again, and then given up on."""
    for _ in range(dice.randint(1, KILLS_A_KEY)):
        if not caller.run_killed(key, dice.random() * within_s):
            return


def settle(caller, key):
    """What a person does with a key in doubt: look at the world, say so, and try again."""
    code, out, err = caller.run(key)
    assert code == IN_DOUBT, err
    assert f"once: unknown: whether '{key}' took effect is not known" in err
    shown = json.loads(caller.call("show", "--key", key, "--json")[1])
    assert shown["status"] == "unknown"
    happened = caller.effects()[key]
    code, out, err = caller.call("resolve", shown["operation_id"], "--status",
        "executed" if happened else "not_executed", "--reason", "looked at the effects")
    assert code == OK, err
    assert caller.run(key)[0] == OK
    assert caller.effects()[key] == 1


def final_answer(caller, key):
    """The last retry, which nobody kills: done, or in doubt."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        code, out, err = caller.run(key)
        if code == OK:
            assert out == f"done {key}\n"
            assert caller.effects()[key] == 1
            return False
        assert code == IN_DOUBT, err
        if "unknown" in err:
            return True
        assert time.monotonic() < until
        time.sleep(0.1)  # still in progress: its lease is not over


def test_the_effect_of_a_key_happens_at_most_once(caller):
    seed = random.randrange(1 << 32) if LONG else 5
    print(f"seed {seed}")
    dice = random.Random(seed)
    within_s = run_time_s(caller)
    timed = set(caller.effects())
    keys = []
    while len(keys) < KEYS or caller.kills < KEYS:
        keys.append(f"key-{len(keys)}")
        retry_under_kills(caller, keys[-1], dice, within_s)
        assert not caller.repeated()
    time.sleep(LEASE_S + 3)  # and the last command that outlived its kill has ended
    in_doubt = [key for key in keys if final_answer(caller, key)]
    assert not caller.repeated()
    for key in in_doubt:
        settle(caller, key)
    assert set(caller.effects()) - timed == set(keys)
    assert not caller.repeated()
    code, out, err = caller.call("verify", "--redecide", "--json")
    assert code == OK, out + err
    print(f"{caller.kills} kills, {len(in_doubt)} keys in doubt, exit codes {dict(caller.codes)}")
    assert 0 < len(in_doubt) < len(keys)  # both kinds of moments were met


def test_two_callers_of_one_key_and_a_kill(caller):
    within_s = run_time_s(caller)
    for number in range(10):
        key = f"both-{number}"
        first = caller.start(*caller.run_words(key))
        second = caller.start(*caller.run_words(key))
        time.sleep(random.random() * within_s)
        first.send_signal(signal.SIGKILL)
        for process in (first, second):
            process.communicate(timeout=TIMEOUT_S)
        assert second.returncode in (OK, IN_DOUBT)
        assert not caller.repeated()


def test_a_second_effect_would_be_seen(caller):
    """The negative control: told to take over what may have happened, it happens twice."""
    waits = 'echo "$1" >> effects; while ! test -e go; do sleep 0.01; done'
    process = caller.start(*caller.run_words("a", effect=waits))
    until = time.monotonic() + TIMEOUT_S
    while not caller.effects():
        assert time.monotonic() < until
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    (caller.directory / "go").touch()  # the command lives on: let it end
    process.communicate(timeout=TIMEOUT_S)
    time.sleep(LEASE_S + 0.2)
    assert caller.run("a", effect=waits)[0] == IN_DOUBT
    assert caller.repeated() == []
    assert caller.run("a", "--on-unknown", "takeover", effect=waits)[0] == OK
    assert caller.repeated() == ["a"]

"""Many operations through the Python SDK, against a way that fails. The last line is JSON.

    load.py gateway URL operations threads prefix deadline_ms answers
    load.py fences ONCE_URL PROVIDER_URL operations threads answers

Each operation has the key PREFIX-N ("load-N" for fences) and has to end well; every 20th is done
once more afterwards, and has to be a replay of the same. `answers` gets a line "KEY STATUS BODY"
for each. Whether each took effect exactly once is for the provider to say.
"""
import json
import random
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "sdk/python"))
import once  # noqa: E402

AGAIN_EVERY = 20
FAILING = 0.1  # the share of the works that do not start, and of those that die after the effect
DEADLINE_S = 300  # of one operation: none may need all of it


class Tally:
    def __init__(self, answers):
        self.lock, self.file = threading.Lock(), open(answers, "w")
        self.figures = {"done": 0, "replayed": 0, "attempts": 0, "failures": 0, "checked": 0}

    def add(self, **figures):
        with self.lock:
            for name, value in figures.items():
                self.figures[name] += value

    def answer(self, key, status, body):
        with self.lock:
            self.file.write(f"{key} {status} {body}\n")

    def run(self, operations, threads, operate):
        def guarded(number):
            try:
                operate(number)
            except Exception:
                traceback.print_exc()
                self.add(failures=1)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(guarded, range(operations)))
        self.file.close()
        print(json.dumps(self.figures))
        return 0 if self.figures["failures"] == 0 else 1


def load_gateway(url, operations, threads, prefix, deadline_ms, answers):
    tally = Tally(answers)
    client = once.Client(retries=1000, deadline=int(deadline_ms) / 1000, attempt_timeout=5,
        idle_max=int(threads))

    def operate(number):
        key, body = f"{prefix}-{number}", {"n": number}
        answer = client.post(url, body, idempotency_key=key)
        assert 200 <= answer.status < 300 and answer.effect == "yes", (key, answer)
        tally.add(done=1, replayed=answer.is_replayed, attempts=answer.attempts)
        tally.answer(key, answer.status, answer.text())
        if number % AGAIN_EVERY == 0:
            again = client.post(url, body, idempotency_key=key)
            assert again.is_replayed and again.body == answer.body, (key, again)

    return tally.run(int(operations), int(threads), operate)


def load_fences(url, provider, operations, threads, answers):
    tally = Tally(answers)
    fences = once.Fences(url, client=once.Client(retries=1000, deadline=60, attempt_timeout=10))

    def charge(key, number):
        chance = random.random()
        if chance < FAILING:
            raise once.NotStarted("not now")
        request = urllib.request.Request(f"{provider}/charges", json.dumps({"n": number}).encode(),
            {"Idempotency-Key": key, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            outcome = json.load(answer)
        if chance > 1 - FAILING:
            raise RuntimeError("died after the effect")
        return outcome

    def settle(key, operation_id):
        """What a person would do: look, and say what happened."""
        tally.add(checked=1)
        try:
            with urllib.request.urlopen(f"{provider}/by-key/{key}", timeout=60) as answer:
                fences.resolve(operation_id, "executed", "it is there", outcome=json.load(answer))
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
            fences.resolve(operation_id, "not_executed", "it is not there")

    def do(key, number):
        ends = time.monotonic() + DEADLINE_S
        while time.monotonic() < ends:
            tally.add(attempts=1)
            try:
                return fences.do("charge", key, {"n": number}, lambda: charge(key, number),
                    lease="1s", wait="1s")
            except once.OutcomeUnknown as unknown:
                try:
                    settle(key, unknown.operation_id)
                except (once.Problem, once.Unavailable, once.NoAnswer):
                    pass  # an earlier try settled it, or the next begin tells
            except (once.InProgress, once.NotStarted, once.NotSealed, once.Unavailable,
                    once.NoAnswer, RuntimeError):
                time.sleep(0.01)
        raise AssertionError(f"{key} does not end")

    def operate(number):
        key = f"load-{number}"
        done = do(key, number)
        tally.add(done=1, replayed=done.is_replayed)
        tally.answer(key, 200, json.dumps(done.outcome))
        if number % AGAIN_EVERY == 0:
            again = do(key, number)
            assert again.is_replayed and again.outcome == done.outcome, (key, again)

    return tally.run(int(operations), int(threads), operate)


if __name__ == "__main__":
    sys.exit({"gateway": load_gateway, "fences": load_fences}[sys.argv[1]](*sys.argv[2:]))

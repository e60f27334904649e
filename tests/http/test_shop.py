"""examples/shop: a conversation, each message delivered three times and some late. Every reply is
the same each time, and every effect happens once."""
import json
import subprocess
import sys
import urllib.request

import pytest

import servers
from once_server import ROOT, until

REPLIES = {
    "refund 204 5 EUR": "Refund 5 EUR of order 204? Answer yes or no, and the number of the order.",
    "yes 204": "Order 204 is refunded.",
    "cancel 205": "Order 205 is cancelled.",
    "refund 206 7 eur": "Refund 7 EUR of order 206? Answer yes or no, and the number of the order.",
    "no 206": "Nothing was done.",
}


@pytest.fixture
def port():
    return servers.free_port()


@pytest.fixture
def server(make_server, port):
    text = (ROOT / "examples/shop/once.yaml").read_text().replace(":9000/", f":{port}/")
    return make_server(config=text)


class Shop:
    def __init__(self, server, port):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([sys.executable, str(ROOT / "examples/shop/shop.py"),
            f"http://127.0.0.1:{server.port}", str(port)])
        until(self.is_up, "the shop did not start")

    def is_up(self):
        try:
            return self.done() == []
        except OSError:
            return False

    def done(self):
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            return json.load(answer)

    def say(self, text, customer="ana"):
        body = json.dumps({"id": "wamid." + text, "from": customer, "text": text}).encode()
        with urllib.request.urlopen(self.url + "/message", body, timeout=60) as answer:
            return json.load(answer)["reply"]


@pytest.fixture
def shop(server, port):
    one = Shop(server, port)
    yield one
    one.process.kill()
    one.process.wait()


def test_each_message_may_come_three_times(shop):
    for text, reply in REPLIES.items():
        assert [shop.say(text) for _ in range(3)] == [reply] * 3, text
    # Late ones of the first question are answered with what became of it.
    assert shop.say("refund 204 5 EUR") == "Order 204 is refunded."
    assert shop.say("yes 204") == "Order 204 is refunded."
    assert shop.done() == [["order.refund", "204"], ["order.cancel", "205"]]
    assert shop.say("show 204") == shop.say("show 204") == "Order 204 is on its way."
    assert len(shop.done()) == 4  # reads run each time


def test_another_customer_cannot_say_yes(shop):
    shop.say("refund 204 5 EUR", "ana")
    assert shop.say("yes 204", "eve") == "There is nothing to confirm."
    assert shop.done() == []

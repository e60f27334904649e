"""examples/shop: a conversation, each message delivered three times, some late or too early, and
with kills between. Every reply is the same each time, and every effect happens once."""
import itertools
import json
import subprocess
import sys
import urllib.request

import pytest

import servers
import stores
from once_server import LONG, ROOT, until

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
    text = (ROOT / "examples/shop/once.yaml").read_text().replace(":9000", f":{port}")
    return make_server(config=text)


class Shop:
    def __init__(self, server, port, books):
        self.url, self.server, self.port = f"http://127.0.0.1:{port}", server, port
        self.books, self.process = books, None
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, str(ROOT / "examples/shop/shop.py"),
            f"http://127.0.0.1:{self.server.port}", str(self.port), str(self.books)])
        until(self.is_up, "the shop did not start")

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def is_up(self):
        try:
            return bool(self.counted())
        except OSError:
            return False

    def counted(self):
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            return json.load(answer)

    def done(self):
        return self.counted()["done"]

    def refunds(self):
        return [(one["order"], one["amount"]) for one in self.counted()["refunds"]]

    def say(self, text, customer="ana"):
        body = json.dumps({"id": "wamid." + text, "from": customer, "text": text}).encode()
        with urllib.request.urlopen(self.url + "/message", body, timeout=60) as answer:
            return json.load(answer)["reply"]


@pytest.fixture
def shop(server, port, tmp_path):
    one = Shop(server, port, tmp_path / "books.json")
    yield one
    one.kill9()


def test_each_message_may_come_three_times(shop):
    for text, reply in REPLIES.items():
        assert [shop.say(text) for _ in range(3)] == [reply] * 3, text
    # Late ones of the first question are answered with what became of it.
    assert shop.say("refund 204 5 EUR") == "Order 204 is refunded."
    assert shop.say("yes 204") == "Order 204 is refunded."
    assert shop.done() == [["order.refund", "204"], ["order.cancel", "205"]]
    assert shop.refunds() == [("204", 5)]
    assert shop.say("show 204") == shop.say("show 204") == "Order 204 is on its way."
    assert len(shop.done()) == 4  # reads run each time


def test_the_order_of_messages_is_not_promised(shop):
    """An answer before its question is about nothing. What comes late finds what was done."""
    refund, yes, cancel = "refund 204 5 EUR", "yes 204", "cancel 205"
    assert shop.say(yes) == shop.say(yes) == "There is nothing to confirm."
    replies = {text: [] for text in (refund, yes, cancel)}
    for text in (cancel, refund, refund, yes, cancel, yes, refund, cancel, yes):
        replies[text].append(shop.say(text))
    assert replies[cancel] == [REPLIES[cancel]] * 3 and replies[yes] == [REPLIES[yes]] * 3
    assert replies[refund] == [REPLIES[refund]] * 2 + [REPLIES[yes]]
    assert sorted(shop.done()) == [["order.cancel", "205"], ["order.refund", "204"]]
    assert shop.refunds() == [("204", 5)]


@stores.journal_only("a server that is started again on its directory")
def test_kills_between_the_messages_change_nothing(shop):
    """The shop, and mostly the server too, is killed before a delivery: before one of the three in
    the short tier, before each in the long one."""
    kills = itertools.cycle(["both", "both", "shop"])
    for message, (text, reply) in enumerate(REPLIES.items()):
        for delivery in range(3):
            if LONG or delivery == message % 3:
                if next(kills) == "both":
                    shop.server.kill9()
                    shop.server.restart()
                shop.kill9()  # also because it has the server's address
                shop.start()
            assert shop.say(text) == reply, (text, delivery)
    assert shop.done() == [["order.refund", "204"], ["order.cancel", "205"]]
    assert shop.refunds() == [("204", 5)]


def test_another_customer_cannot_say_yes(shop):
    shop.say("refund 204 5 EUR", "ana")
    assert shop.say("yes 204", "eve") == "There is nothing to confirm."
    assert shop.done() == [] and shop.refunds() == []

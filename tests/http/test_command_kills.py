"""kill -9 at every step of a command's life, on each kind of store: right before and right after
what makes the step visible to somebody else, which is a commit, a request to the handler, or an
answer. The handler counts its calls: what may not be repeated is called once at most, and what was
answered stays so."""
import dataclasses

import stores
from killed_at import KilledAt
from once_server import LIGHT, Broken, until
from shop import envelope, refund
from test_commands import confirm, submit

GONE_S = 120  # a process of a shared store is gone after 30 s; the rest is a loaded machine
ABSENT, AWAITING, EXECUTED, FAILED, REJECTED = ("absent", "awaiting_confirmation", "executed",
    "failed", "rejected")
OPEN = "open"  # started, until its process is seen to be gone: then blocked
BLOCKED = "blocked"
# Of a grant and a seal an entry stores the decision; its type follows from that.
GRANTED, CLAIMED, SEALED = (f'"decision":"{name}"' for name in ("first_seen", "claimed", "sealed"))
MORE = """
  order.soon: {{class: I1, confirm: confirm, confirm_ttl: 1s, handler: "{url}/order.soon"}}
"""


@dataclasses.dataclass
class Step:
    """What is written, how often before, and how the command is found after the kill: its state,
    and how often its handler was called."""

    life: str
    mark: str
    before: tuple
    after: tuple
    at: int = 1


STEPS = [
    Step("confirmed", "confirmation.requested", (ABSENT, 0), (AWAITING, 0)),
    Step("confirmed", "HTTP/1.1 202", (AWAITING, 0), (AWAITING, 0)),
    Step("confirmed", "confirmation.accepted", (AWAITING, 0), (OPEN, 0)),
    Step("confirmed", "POST /order.refund", (OPEN, 0), (OPEN, 1)),
    Step("confirmed", SEALED, (OPEN, 1), (EXECUTED, 1)),
    Step("confirmed", "HTTP/1.1 201", (EXECUTED, 1), (EXECUTED, 1)),
    Step("direct", GRANTED, (ABSENT, 0), (OPEN, 0)),
    Step("direct", "POST /order.cancel", (OPEN, 0), (OPEN, 1)),
    Step("direct", SEALED, (OPEN, 1), (EXECUTED, 1)),
    Step("direct", "HTTP/1.1 201", (EXECUTED, 1), (EXECUTED, 1)),
    Step("failed", SEALED, (OPEN, 1), (FAILED, 1)),
    # The first call says that nothing was done, and the next one is the dispatcher's.
    Step("retried", "execution.released", (OPEN, 1), (EXECUTED, 2)),
    Step("retried", CLAIMED, (EXECUTED, 2), (OPEN, 1)),
    Step("retried", "POST /order.cancel", (OPEN, 1), (OPEN, 2), at=2),
    Step("retried", SEALED, (OPEN, 2), (EXECUTED, 2)),
    Step("given up", "execution.blocked", (OPEN, 3), (BLOCKED, 3)),
    Step("denied", "confirmation.denied", (AWAITING, 0), (REJECTED, 0)),
    Step("cancelled", "execution.rejected", (AWAITING, 0), (REJECTED, 0)),
    Step("expired", "confirmation.expired", (REJECTED, 0), (REJECTED, 0)),
    Step("broken", "execution.blocked", (OPEN, 1), (BLOCKED, 1)),
    Step("resolved", "execution.resolved", (BLOCKED, 1), (EXECUTED, 1)),
]
IDEMPOTENT = [  # and its handler is called again, unasked
    Step("taken over", GRANTED, (ABSENT, 0), (EXECUTED, 1)),
    Step("taken over", "POST /order.pack", (EXECUTED, 1), (EXECUTED, 2)),
    Step("taken over", SEALED, (EXECUTED, 2), (EXECUTED, 1)),
]
COMMANDS = {
    "confirmed": lambda order: refund(order_id=order),
    "direct": lambda order: envelope("cancel", order_id=order),
    "failed": lambda order: envelope("cancel", order_id=order, args={"do": "fail"}),
    "retried": lambda order: envelope("cancel", order_id=order, args={"do": "busy 1"}),
    "given up": lambda order: envelope("cancel", order_id=order, args={"do": "busy 9"}),
    "denied": lambda order: refund(order_id=order),
    "cancelled": lambda order: refund(order_id=order),
    "expired": lambda order: envelope("soon", order_id=order),
    "broken": lambda order: envelope("cancel", order_id=order, args={"do": "broken"}),
    "resolved": lambda order: envelope("cancel", order_id=order, args={"do": "broken"}),
    "taken over": lambda order: envelope("pack", order_id=order),
}


def live(server, shim, step, order):
    """The life of the command, as far as a client drives it, until the kill: a client can have an
    answer before the server is gone. Returns its confirmation's token."""
    token = None
    try:
        document = submit(server, COMMANDS[step.life](order))[2]
        token = document.get("confirmation", {}).get("token")
        if shim.is_reached():
            return token
        at = f"/v1/commands/{document['command_id']}"
        if step.life == "confirmed":
            confirm(server, document["command_id"], token)
        elif step.life == "denied":
            confirm(server, document["command_id"], token, "deny")
        elif step.life == "cancelled":
            server.request("POST", at + "/recover", {"action": "cancel"})
        elif step.life == "resolved":
            server.request("POST", at + "/resolve", {"status": "executed", "reason": "it is so"})
    except (Broken, OSError):
        pass
    return token


def found(server, order):
    """The command as it is stored; None: it is not."""
    _, _, page = server.request("GET", "/v1/commands?limit=1000")
    return next((one for one in page["commands"]
        if one["intent"]["target"]["order_id"] == order), None)


def state(server, order):
    one = found(server, order)
    return ABSENT if one is None else one["status"]


def calls(shop, order):
    with shop.lock:
        return sum(1 for _, _, seen in shop.seen if seen["intent"]["target"]["order_id"] == order)


def kill_at(server, shim, step, order, after):
    """Live until the kill, and start the server again."""
    shim.at(step.at, step.mark, after)
    token = live(server, shim, step, order)
    until(lambda: server.process.poll() is not None, f"{step} was not reached")
    assert shim.name() and server.process.wait() == -9
    shim.at(0)
    server.start()
    return token


def check_found(server, shop, order, wanted):
    """At once, or for what goes on by itself, soon."""
    is_so = {OPEN: ("started", "blocked")}.get(wanted[0], (wanted[0],))
    soon_s = GONE_S if stores.SHARED and wanted[0] in (EXECUTED, BLOCKED) else 60
    until(lambda: state(server, order) in is_so, f"{order} is {state(server, order)}", soon_s)
    until(lambda: calls(shop, order) == wanted[1], f"{order}: {calls(shop, order)} calls", soon_s)


def test_a_kill_at_every_step_of_a_command(make_server, shop, tmp_path):
    shim = KilledAt(tmp_path)
    config = shop.config(confirm_ttl="10m", more=shop.takeover() + MORE.format(url=shop.url))
    server = make_server(config=config, env=shim.env)
    wanted, tokens = {}, {}
    live(server, shim, STEPS[0], "first")  # a server of Redis has the scripts from now on
    for number, step in enumerate((STEPS[::4] if LIGHT else STEPS) + IDEMPOTENT):
        for after in (False, True):
            order = f"{number}, {step.life}, {'after' if after else 'before'}"
            tokens[order] = kill_at(server, shim, step, order, after)
            wanted[order] = step.after if after else step.before
            if step not in IDEMPOTENT:
                check_found(server, shop, order, wanted[order])
    # A token that was not used up still works; the others never will.
    for order, token in tokens.items():
        if token and wanted[order][0] == AWAITING:
            assert confirm(server, found(server, order)["command_id"], token)[0] == 201
            wanted[order] = (EXECUTED, 1)
        elif token:
            assert confirm(server, found(server, order)["command_id"], token)[0] == 403
    # What was under way is held, and what may be repeated was, when the killed are seen to be gone.
    for order, (is_so, count) in wanted.items():
        is_so = BLOCKED if is_so == OPEN else is_so
        until(lambda: state(server, order) == is_so, f"{order} is {state(server, order)}", GONE_S)
        if is_so == BLOCKED and count < 3:
            assert submit(server, COMMANDS[order.split(", ")[1]](order))[0] == 409
    server.stop()  # which waits for calls under way
    assert {order: calls(shop, order) for order in wanted} == \
        {order: count for order, (_, count) in wanted.items()}
    checked = server.cli("verify", "--redecide", "--store", server.store)
    assert checked.returncode == 0, checked.stdout + checked.stderr

"""Pages in a browser: what lets it show them the gateway's own answers and replays."""
import pytest

SHOP, OTHER = "https://shop.example", "https://other.example"
OURS = {"Once-Decision", "Once-Effect", "Once-Operation-Id", "Idempotent-Replayed", "Request-Id",
    "Idempotency-Key", "Original-Request-Id", "Upstream-Request-Id", "Retry-After"}
ALLOW, CREDENTIALS = "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"


@pytest.fixture
def gateway(make_gateway):
    return make_gateway(gateway={"cors": {"origins": [SHOP, "https://admin.example:8443"]}})


def exposed(answer):
    lists = answer.all("Access-Control-Expose-Headers")
    return {name.strip() for each in lists for name in each.split(",")}


def readable(answer, origin, credentials=False):
    """As the Fetch standard's CORS check has it: one value, and the right one."""
    assert answer.all(ALLOW) == [origin], answer
    assert answer.all(CREDENTIALS) == (["true"] if credentials else []), answer
    assert OURS <= exposed(answer) and "Origin" in answer.all("Vary")


def test_refusals_can_be_read_by_the_page(gateway):
    gateway.post("k", headers={"Origin": SHOP})
    conflict = gateway.post("k", {"amount": 2}, headers={"Origin": SHOP})
    missing = gateway.post(None, headers={"Origin": SHOP})
    invalid = gateway.post("a b", headers={"Origin": SHOP})
    assert [each.status for each in (conflict, missing, invalid)] == [422, 400, 400]
    for answer in (conflict, missing, invalid):
        readable(answer, SHOP)


def test_a_replay_is_for_the_page_that_asks(gateway, origin):
    do = f"field={ALLOW}:{SHOP}&field={CREDENTIALS}:true&field=Access-Control-Expose-Headers:X-Cost"
    first = gateway.post("k", do=do, headers={"Origin": SHOP})
    assert first.all(ALLOW) == [SHOP] and first.all(CREDENTIALS) == ["true"]  # the API's own
    assert exposed(first) == OURS | {"X-Cost"}
    again = gateway.post("k", headers={"Origin": "https://admin.example:8443"})
    assert again.is_replay
    readable(again, "https://admin.example:8443")
    assert "X-Cost" in exposed(again)
    silent = gateway.post("s")  # no page asked for it: the API says nothing of pages
    assert not silent.all(ALLOW)
    readable(gateway.post("s", headers={"Origin": SHOP}), SHOP)


@pytest.mark.parametrize("headers", [{}, {"Origin": OTHER}, {"Origin": "null"},
    {"Origin": SHOP + ":443"}, {"Origin": SHOP.upper()}, {"Origin": ""}])
def test_other_pages_are_told_nothing(gateway, headers):
    refused = gateway.post(None, headers=headers)
    assert refused.status == 400 and not refused.all(ALLOW) and not exposed(refused)
    assert refused.all("Vary") == ["Origin"]  # a cache must not give it to the others
    gateway.post("k", do=f"field={ALLOW}:{SHOP}", headers=headers)
    assert gateway.post("k", headers=headers).all(ALLOW) == [SHOP]  # as the API said it


def test_without_it_the_gateway_says_nothing_of_pages(make_gateway):
    gateway = make_gateway()
    refused = gateway.post(None, headers={"Origin": SHOP})
    assert refused.status == 400
    assert not [name for name, _ in refused.lines if name.startswith("Access-Control")]
    assert not refused.all("Vary")


def test_every_page_and_pages_with_cookies(make_gateway):
    gateway = make_gateway(routes=[{"match": "POST /any", "cors": {"origins": "*"}},
        {"match": "POST /own", "cors": {"origins": [SHOP], "credentials": True}}])
    readable(gateway.post(None, path="/any", headers={"Origin": OTHER}), "*")
    readable(gateway.post(None, path="/own", headers={"Origin": SHOP}), SHOP, credentials=True)


def test_a_preflight_is_the_apis_to_answer(gateway, origin):
    preflight = gateway.send("OPTIONS", "/pay", headers={"Origin": SHOP,
        "Access-Control-Request-Method": "POST"}, do=f"status=204&field={ALLOW}:{SHOP}")
    assert preflight.status == 204 and preflight.all(ALLOW) == [SHOP]
    assert origin.requests[-1].method == "OPTIONS"

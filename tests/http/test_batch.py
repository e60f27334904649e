"""Batches over the real binary."""
import uuid


def item(key, payload=1, **more):
    return {"scope": "batch", "key": key, "payload": payload, **more}


def batch(server, items, status=200):
    got, _, answer = server.request("POST", "/v1/fences/batch", items)
    assert got == status, answer
    return answer


def test_a_batch_is_answered_in_order(server):
    key, other = str(uuid.uuid4()), str(uuid.uuid4())
    begun = batch(server, [item(key), {"begin": item(other)}, item(key), item(key, 2)])
    assert [each.get("decision") or each["code"] for each in begun] == \
        ["first_seen", "first_seen", "in_progress", "idempotency_conflict"]
    sealed = batch(server, [
        {"operation_id": begun[0]["operation_id"], "fence": begun[0]["fence"],
            "status": "executed", "outcome": {"n": 1}},
        {"seal": {"operation_id": begun[1]["operation_id"], "fence": begun[1]["fence"] + 1,
            "status": "executed"}},
        item(key)])
    assert sealed[0]["decision"] == "sealed"
    assert sealed[1]["code"] == "stale_fence"
    assert sealed[2]["outcome"] == {"n": 1}


def test_one_wrong_item_means_that_nothing_happened(server):
    key = str(uuid.uuid4())
    problem = batch(server, [item(key), item("x", colour=1)], 400)
    assert problem["code"] == "unknown_member" and "item 1" in problem["detail"]
    assert batch(server, [item(key)])[0]["decision"] == "first_seen"


def test_a_thousand_and_no_more(server):
    items = [item(str(uuid.uuid4())) for _ in range(1000)]
    assert all(each["decision"] == "first_seen" for each in batch(server, items))
    batch(server, items + [item("one more")], 400)
    batch(server, [], 400)

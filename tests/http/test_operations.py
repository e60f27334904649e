"""Operations over the real binary: looking at them, paging through them, settling them."""
import uuid


def begin(server, scope, **more):
    status, _, answer = server.request("POST", "/v1/fences",
        {"scope": scope, "key": str(uuid.uuid4()), "payload": {"b": 1, "a": 2}, **more})
    assert status == 201, answer
    return answer


def look(server, grant):
    status, _, answer = server.request("GET", "/v1/operations/" + grant["operation_id"])
    assert status == 200, answer
    return answer


def test_an_operation_is_shown(server):
    grant = begin(server, "show", principal="alice", source={"type": "t", "id": "i", "version": 3})
    shown = look(server, grant)
    assert shown["status"] == "in_progress"
    assert shown["scope"] == "show" and shown["principal"] == "alice"
    assert shown["fence"] == grant["fence"] and shown["attempt"] == 1
    assert shown["request"] == {"a": 2, "b": 1}
    assert shown["source"] == {"type": "t", "id": "i", "version": "3"}
    assert "outcome" not in shown and "sealed_at" not in shown
    server.request("POST", f"/v1/fences/{grant['operation_id']}/seal",
        {"fence": grant["fence"], "status": "executed", "outcome": [1]})
    shown = look(server, grant)
    assert shown["status"] == "executed"
    assert shown["outcome"] == [1] and shown["outcome_retained"] is True


def test_pages_show_each_operation_once(server):
    scope = str(uuid.uuid4())
    begun = {begin(server, scope)["operation_id"] for _ in range(25)}
    seen, path = [], f"/v1/operations?scope={scope}&limit=10&after="
    while path:
        status, _, page = server.request("GET", path)
        assert status == 200 and len(page["operations"]) <= 10
        assert all("outcome" not in each and "request" not in each for each in page["operations"])
        seen += [each["operation_id"] for each in page["operations"]]
        path = page["next"] and f"/v1/operations?scope={scope}&limit=10&after={page['next']}"
    assert len(seen) == 25 and set(seen) == begun


def test_an_unknown_one_is_settled(server):
    grant = begin(server, "settle")
    path = f"/v1/operations/{grant['operation_id']}/resolve"
    settle = {"status": "executed", "effect_id": "e", "outcome": {"x": 1}, "reason": "looked"}
    status, headers, problem = server.request("POST", path, settle)
    assert status == 409 and problem["code"] == "still_running" and "Retry-After" in headers
    server.request("POST", f"/v1/fences/{grant['operation_id']}/unknown", {"fence": grant["fence"]})
    status, _, answer = server.request("POST", path, settle)
    assert status == 200
    assert answer["decision"] == "resolved" and answer["status"] == "executed"
    assert look(server, grant)["outcome"] == {"x": 1}
    assert server.request("POST", path, {**settle, "status": "failed"})[2]["code"] == \
        "already_sealed"


def test_bad_queries_are_named(server):
    for query, name in (("colour=1", "colour"), ("limit=0", "limit"), ("limit=1001", "limit"),
            ("status=done", "status"), ("after=1", "after"), ("scope=a&scope=b", "scope")):
        status, _, problem = server.request("GET", "/v1/operations?" + query)
        assert status == 400 and problem["code"] == "invalid_parameter"
        assert name in problem["detail"]

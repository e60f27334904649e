"""Effects on their way to a provider that counts (provider.py): what the tests of them share."""
import atexit
import functools
import tempfile
from pathlib import Path

from once_server import until

KEYED = "idempotency: {header: Idempotency-Key, keeps: 24h}"
ASKED = 'lookup: {get: "/by-key/{idempotency_key}", executed: 200, not_executed: 404, quiet: 1s}'
ACKNOWLEDGED, FAILED, DEAD = "acknowledged", "failed", "dead_letter"


@functools.cache
def key_file():
    """Processes that share a store need the same key."""
    directory = tempfile.TemporaryDirectory(prefix="once-keys-")
    atexit.register(directory.cleanup)
    path = Path(directory.name) / "body.key"
    path.write_text("00112233445566778899aabbccddeeff" * 2 + "\n")
    path.chmod(0o600)
    return path


def config_of(provider, *connector, effect=(), more=""):
    lines = "".join(f"    {line}\n" for line in connector)
    effects = "".join(f"    {line}\n" for line in effect)
    return f"""
secrets: {{key_file: {key_file()}}}
connectors:
  pay:
    url: {provider.url}
    timeout: {{connect: 1s, first_byte: 5s, total: 6s}}
{lines}
effects:
  payment.capture:
    connector: pay
    request: {{path: "/v1/charges/{{target.order_id}}", headers: {{X-Key: "{{idempotency_key}}"}}}}
    provider_ref: /id
    retry: {{attempts: 4, backoff: 50ms, backoff_max: 200ms}}
{effects}
{more}
"""


class Effects:
    def __init__(self, server):
        self.server = server

    def put(self, key, **more):
        envelope = {"effect_type": "payment.capture", "idempotency_key": key,
            "target": {"order_id": "o-1"}, "payload": {"amount": 5}, **more}
        status, _, answer = self.server.request("POST", "/v1/effects", envelope)
        assert status in (200, 202), answer
        return answer["effect_id"]

    def show(self, effect_id):
        status, _, document = self.server.request("GET", f"/v1/effects/{effect_id}")
        assert status == 200, document
        return document

    def all(self, query=""):
        """The documents of all that match, page by page."""
        found, after = [], ""
        while after is not None:
            status, _, page = self.server.request("GET",
                f"/v1/effects?limit=1000&after={after}{query}")
            assert status == 200, page
            found += page["effects"]
            after = page["next"]
        return found

    def settled(self, effect_id, status):
        until(lambda: self.show(effect_id)["status"] == status, f"{effect_id} is not {status}")
        return self.show(effect_id)

    def uncertain(self, effect_id, attempt=1):
        """With a key it is sent again a moment later: then its attempts go on."""
        shown = []

        def is_so():
            shown[:] = [self.show(effect_id)]
            return shown[0].get("uncertain") and shown[0]["attempt"] >= attempt
        until(is_so, f"it is not uncertain at attempt {attempt}")
        assert shown[0]["status"] == "dispatched"
        return shown[0]


def kill(server):
    server.process.kill()
    server.process.wait()

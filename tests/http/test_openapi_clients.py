"""Clients that generators make from openapi.json: the plainest begin and seal compile and run.

In the long tier, where npm can install the generators; skipped elsewhere. What they stumble over
(a default, a member that nobody describes) is in test_openapi.py for every run.
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "@hey-api/openapi-ts@0.95.0",
    "typescript@5.9.3"]
TSC = ["npx", "tsc", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution",
    "bundler", "--outDir", "out"]
WAIT_S = 600  # of npm; far above what it takes

FETCH = """
import createClient from "openapi-fetch";
import type { paths } from "./schema";
const once = createClient<paths>({ baseUrl: process.env.ONCE_URL });
const begun = await once.POST("/v1/fences",
    { body: { scope: "orders", key: "order-1", payload: { amount: 100 } } });
if (!begun.data || !("fence" in begun.data)) throw new Error(JSON.stringify(begun));
const sealed = await once.POST("/v1/fences/{operation_id}/seal", {
    params: { path: { operation_id: begun.data.operation_id } },
    body: { fence: begun.data.fence, status: "executed", outcome: { charge: "ch_1" } } });
console.log(sealed.data?.status);
"""
HEY = """
import { beginFence, sealFence } from "./hey";
const baseUrl = process.env.ONCE_URL as string;
const begun = await beginFence({ baseUrl,
    body: { scope: "orders", key: "order-1", payload: { amount: 100 } } });
if (!begun.data || !("fence" in begun.data)) throw new Error(JSON.stringify(begun));
const sealed = await sealFence({ baseUrl, path: { operation_id: begun.data.operation_id },
    body: { fence: begun.data.fence, status: "executed", outcome: { charge: "ch_1" } } });
console.log(sealed.data?.status);
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with the generators and what they made."""
    if not os.environ.get("ONCE_TEST_LONG"):
        pytest.skip("in the long tier only")
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    directory = tmp_path_factory.mktemp("clients")
    (directory / "package.json").write_text('{"type": "module"}\n')
    (directory / "node.d.ts").write_text(
        "declare const process: { env: Record<string, string | undefined> };\n")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    if run(install, directory).returncode != 0:
        pytest.skip("npm cannot install the generators here")
    document = str(ROOT / "src/api/openapi.json")
    for make in (["npx", "openapi-typescript", document, "-o", "schema.d.ts"],
            ["npx", "openapi-ts", "-i", document, "-o", "hey"]):
        done = run(make, directory)
        assert done.returncode == 0, done.stdout + done.stderr
    return directory


def run(words, directory, **env):
    return subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=WAIT_S,
        env={**os.environ, **env})


@pytest.mark.parametrize("program", [FETCH, HEY], ids=["openapi-typescript", "hey-api"])
def test_the_plainest_call_compiles(place, program):
    (place / "plain.ts").write_text(program)
    done = run([*TSC, "--noEmit", "node.d.ts", "plain.ts"], place)
    assert done.returncode == 0, done.stdout


def test_the_client_of_openapi_fetch_begins_and_seals(place, server):
    (place / "plain.ts").write_text(FETCH)
    assert run([*TSC, "node.d.ts", "plain.ts"], place).returncode == 0
    done = run(["node", "out/plain.js"], place, ONCE_URL=server.url)
    assert (done.returncode, done.stdout) == (0, "executed\n"), done.stderr

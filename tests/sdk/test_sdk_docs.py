"""Every program on the pages and READMEs of the SDKs is run, and prints what the page shows."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

from drivers import GO_TIMEOUT_S, environment, go_environment, program

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {"docs/sdk/python.md": "python", "sdk/python/README.md": "python",
    "docs/sdk/node.md": "js", "sdk/node/README.md": "js",
    "docs/sdk/go.md": "go", "sdk/go/README.md": "go"}
BLOCK = re.compile(r"^```(python|js|go)\n(.*?)^```\n\n```text\n(.*?)^```", re.M | re.S)


def programs():
    for page, language in PAGES.items():
        found = BLOCK.findall((ROOT / page).read_text())
        assert found, page
        for number, (named, text, shown) in enumerate(found, 1):
            assert named == language
            yield pytest.param(language, text, shown, id=f"{page}:{number}")


def run(language, text, place):
    env = environment()
    if language == "python":
        env["PYTHONPATH"] = str(ROOT / "sdk/python")
        words = [sys.executable, "program.py"]
    elif language == "go":
        env = go_environment()
        (place / "go.mod").write_text("module example\n\ngo 1.19\n\n"
            "require once.example/once v0.1.0\n\n"
            f"replace once.example/once => {ROOT / 'sdk/go'}\n")
        words = [program("go"), "run", "program.go"]
    else:
        (place / "node_modules").mkdir()
        (place / "node_modules/once-sdk").symlink_to(ROOT / "sdk/node")
        words = [program("node"), "program.mjs"]
    (place / words[-1]).write_text(text)
    return subprocess.run(words, cwd=place, env=env, capture_output=True, text=True,
        timeout=GO_TIMEOUT_S)


@pytest.mark.parametrize("language, text, shown", programs())
def test_a_program_prints_what_the_page_shows(language, text, shown, server, origin, make_gateway,
        tmp_path):
    text = text.replace("http://127.0.0.1:7411", server.url)
    if "http://127.0.0.1:8080" in text:
        origin.does[None] = "status=201"
        text = text.replace("http://127.0.0.1:8080", make_gateway().url)
    done = run(language, text, tmp_path)
    assert (done.stdout, done.returncode) == (shown, 0), done.stderr

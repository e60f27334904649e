"""Every console block of the pages for users is executed and must print what it shows.

A line that begins with "$ " is typed, with "> " it goes on. What follows is all that was printed;
"…" stands for anything, and a line that is only "…" for any number of lines.
"""
import re
import subprocess

import pytest
from conftest import BINARY, ROOT, clean_environment

PAGES = ["README.md", "docs/run.md", "docs/unknown.md", "docs/verify.md", "docs/operate.md",
    "docs/config.md", "docs/gateway.md", "docs/gateway-policy.md", "docs/serve.md",
    "docs/upgrade.md", "docs/commands.md", "docs/effects.md", "docs/inbox.md", "docs/mcp.md"]
SPACES = re.compile(r"[ \t]+")


def steps(page):
    """(command, expected lines) of a page, in order."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.startswith("> "):
                found[-1] = (found[-1][0] + "\n" + line[2:], [])
            else:
                found[-1][1].append(line)
    return found


def pattern(expected):
    text = ""
    for line in expected:
        if line.strip() == "…":
            text += "(?:.*\n)*?"
        else:
            parts = [re.escape(SPACES.sub(" ", part)) for part in line.split("…")]
            text += "[^\n]*?".join(parts) + "\n"
    return re.compile(text + r"\Z")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_happens(page, tmp_path):
    wanted = steps(page)
    assert len(wanted) > 5
    script = "status() { return $1; }\nlast=0\n"
    for number, (command, _) in enumerate(wanted):
        script += f"status $last\n{command}\nlast=$?\necho '@@{number}'\n"
    bin_directory = tmp_path / "bin"
    place = tmp_path / "place"
    bin_directory.mkdir()
    place.mkdir()
    (bin_directory / "once").symlink_to(BINARY)
    env = clean_environment()
    env["PATH"] = f"{bin_directory}:{env['PATH']}"
    done = subprocess.run(["bash"], input=script, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=env, cwd=place, timeout=300)
    outputs = re.split(r"@@\d+\n", done.stdout)
    assert len(outputs) == len(wanted) + 1, done.stdout
    for (command, expected), output in zip(wanted, outputs):
        output = "\n".join(line for line in output.split("\n") if not killed_notice(line))
        assert pattern(expected).match(SPACES.sub(" ", output)), \
            f"{command}\nexpected:\n" + "\n".join(expected) + f"\nbut it printed:\n{output}"


def killed_notice(line):
    """bash itself says when a command of the script was killed; people see the same."""
    return re.match(r"bash: line \d+: +\d+ Killed", line) is not None


# Ids of the documents that Once was designed from. Two pages are about them; the others, the help
# and the API's description are for readers who have never seen them.
INTERNAL = re.compile(r"\b(?:IDS|GRD|CCO|CCOI|OPS|CRCD|DESIGN)\b(?:-\d+)?|\(P\d+\)")
ABOUT_THEM = {"docs/conformance.md", "docs/promises.md"}


def test_readers_meet_no_ids_of_internal_documents():
    pages = [ROOT / "README.md", ROOT / "src/api/openapi.json"]
    for place, suffix in (("docs", ".md"), ("examples", ".yaml"), ("contrib", "")):
        pages += sorted(path for path in (ROOT / place).rglob("*" + suffix) if path.is_file())
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in pages}
    texts["once --dump-markdown"] = subprocess.run([BINARY, "--dump-markdown"], text=True,
        capture_output=True, check=True, env=clean_environment(), timeout=60).stdout
    found = [f"{name}: {line.strip()[:120]}" for name, text in texts.items()
        if name not in ABOUT_THEM for line in text.splitlines() if INTERNAL.search(line)]
    assert not found, "\n".join(found)

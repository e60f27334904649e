"""npm: packages for tests, pinned by a lock file, installed at most once for a user.

Without node, npm or its registry they are Absent, and the tests that need them are skipped.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

WAIT_S = 300  # far above what anything takes; a hang is a failure, not a wait
UNREACHABLE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH"
    r"|ERR_SOCKET_TIMEOUT|EIDLETIMEOUT|network|\bE403\b|\bE5\d\d\b")


class Absent(Exception):
    """Why the packages cannot run here."""


def check_node(files):
    """That node is as new as the package file in this directory asks for."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise Absent("npm or node is not installed")
    least = json.loads((files / "package.json").read_text())["engines"]["node"]
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if numbers(version) < numbers(least):
        raise Absent(f"node {version.strip()} is not {least}")


def numbers(version):
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def node_modules(files):
    """What the lock file in this directory names, installed."""
    digest = hashlib.sha256((files / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "once-test-clients"
    installed = cache / digest
    if not installed.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=cache) as directory:
            install(files, Path(directory) / "new", installed)
    return installed / "node_modules"


def install(files, place, installed):
    """It appears at its name whole or not at all."""
    place.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(files / name, place)
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts",
        "--prefer-offline", "--fetch-retries=1"], cwd=place, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=WAIT_S)
    unreachable = UNREACHABLE.search(done.stderr)
    if done.returncode != 0 and unreachable:
        raise Absent(f"npm cannot reach its registry: {unreachable.group()}")
    assert done.returncode == 0, done.stderr
    try:
        place.rename(installed)
    except OSError:
        assert installed.exists()  # a different run installed it meanwhile

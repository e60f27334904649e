"""stores: the kind of store that the tests of the binary run on.

    ONCE_TEST_STORE=journal|postgres|redis      a journal when it is not set

Tests name a store by a directory, as a journal is. On a shared store the directory stands for a
schema, or a name, of its own on one private server, which starts when it is first needed and ends
with pytest. ONCE_TEST_POSTGRES or ONCE_TEST_REDIS names one that is running already.
"""
import atexit
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import servers  # noqa: E402

KIND = os.environ.get("ONCE_TEST_STORE") or "journal"
SHARED = KIND != "journal"
BINARY = os.environ.get("ONCE_BIN") or str(servers.ROOT / "build/once")


KEPT = re.compile(r"^(commands|effects|inbox):", re.M)  # what has bodies that are encrypted
OWN_KEY = re.compile(r"^secrets:", re.M)


def journal_only(reason):
    """Marks a test, or with pytestmark a file, about what only a journal has."""
    return pytest.mark.skipif(SHARED, reason=f"only of a journal: {reason}")


@functools.cache
def server():
    """The private server of this run."""
    kind = servers.SERVERS[KIND]
    if not kind.installed():
        pytest.skip(f"no {KIND} here")
    running = kind(max_connections=200) if KIND == "postgres" else kind()
    running.start()
    atexit.register(running.stop)
    return running


@functools.cache
def base_url():
    given = os.environ.get(servers.SERVERS[KIND].ENV)
    return given or server().url


@functools.cache
def shared_url(directory):
    name = "t" + hashlib.sha256(directory.encode()).hexdigest()[:16]
    if KIND == "redis":
        return f"{base_url()}?name={name}"
    url = f"{base_url()}?fsync=off&schema={name}"  # the private server does not wait for the disk
    subprocess.run([BINARY, "migrate", "--store", url], check=True, capture_output=True, timeout=60)
    return url


@functools.cache
def key_file():
    """The key of bodies that the processes of a shared store have in common."""
    with tempfile.NamedTemporaryFile("w", prefix="once-key-", delete=False) as file:
        file.write(os.urandom(32).hex() + "\n")
    atexit.register(os.unlink, file.name)
    return file.name


def with_key(config):
    """A journal makes its own key of bodies; processes of a shared store are told theirs."""
    if not SHARED or config is None or not KEPT.search(config) or OWN_KEY.search(config):
        return config
    return f"{config}\nsecrets: {{key_file: {key_file()}}}\n"


def url_of(directory, options=""):
    """The store of a directory. options: of a journal's URL, "?segment=…"; others have none."""
    if not SHARED:
        return f"journal:{directory}{options}"
    return shared_url(os.path.abspath(directory))

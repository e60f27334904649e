"""The fixtures of tests/http, for the SDKs, and the paths by which both are found."""
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "sdk/python"), str(ROOT / "tests/http"), str(ROOT / "tests")]


def fixtures_of(path):
    spec = importlib.util.spec_from_file_location("http_fixtures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


http = fixtures_of(ROOT / "tests/http/conftest.py")
make_server, server = http.make_server, http.server
make_origin, origin = http.make_origin, http.origin
make_gateway, gateway = http.make_gateway, http.gateway
pytest_runtest_makereport = http.pytest_runtest_makereport

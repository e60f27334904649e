"""The fixtures: `server`, ready to be asked, and `make_server` for one with options."""
import pytest

from once_server import LIGHT, STDERR_SHOWN, Server


@pytest.fixture
def make_server(request):
    """make_server("--option", …, config=YAML) -> Server, as many as you like; all are ended."""
    servers = request.node.once_servers = []

    def make(*options, **how):
        server = Server(*options, **how)
        servers.append(server)
        return server

    yield make
    try:
        for server in servers if LIGHT else []:
            server.end_light()
    finally:
        for server in servers:
            server.remove()


@pytest.fixture
def server(make_server):
    return make_server()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for server in getattr(item, "once_servers", []):
            report.sections.append(("stderr of the server", server.stderr()[-STDERR_SHOWN:]))

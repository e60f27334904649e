"""The fixtures: `server`, ready to be asked, and `make_server` for one with options; `gateway` and
`make_gateway` the same of a gateway, in front of `origin`."""
import pytest

from once_gateway import Gateway
from once_server import LIGHT, STDERR_SHOWN, Server  # also finds what is shared in tests/
from inbox_help import SECRET, Handler
from origin import Origin
from provider import Provider
from shop import Shop


def made(request, make_one):
    """make(…) of as many as you like; all are ended."""
    servers = request.node.once_servers = getattr(request.node, "once_servers", [])

    def make(*options, **how):
        server = make_one(*options, **how)
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
def make_server(request):
    """make_server("--option", …, config=YAML) -> Server, as many as you like; all are ended."""
    yield from made(request, Server)


@pytest.fixture
def make_provider():
    made = []

    def make(**how):
        made.append(Provider(**how))
        return made[-1]

    yield make
    for provider in made:
        provider.end()


@pytest.fixture
def shop():
    """The shop that executes commands."""
    one = Shop()
    yield one
    one.close()


@pytest.fixture
def handler():
    """The handler that deliveries of the inbox go to."""
    one = Handler()
    yield one
    one.close()


@pytest.fixture
def secret(tmp_path):
    """The file with the secret of the inbox's sources."""
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    return path


@pytest.fixture
def make_origin():
    origins = []

    def make(**how):
        origins.append(Origin(**how))
        return origins[-1]

    yield make
    for one in origins:
        one.close()


@pytest.fixture
def origin(make_origin):
    return make_origin()


@pytest.fixture
def make_gateway(request, origin):
    """make_gateway("--option", …, routes=[…]) -> Gateway in front of `origin`; all are ended."""
    yield from made(request, lambda *options, **how: Gateway(*options, origin=origin, **how))


@pytest.fixture
def gateway(make_gateway):
    return make_gateway()


@pytest.fixture
def server(make_server):
    return make_server()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for server in getattr(item, "once_servers", []):
            status = server.process and server.process.poll()
            if status and status < 0:
                report.sections.append(("the server", f"it has ended with {status}"))
            report.sections.append(("stderr of the server", server.stderr()[-STDERR_SHOWN:]))

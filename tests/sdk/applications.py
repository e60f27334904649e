"""The same small application in each framework, fenced by middleware, on a port of its own.

start(kind, once_url, profile) -> an application; `calls` counts what its handlers did.
"""
import collections
import importlib
import io
import json
import shutil
import socketserver
import subprocess
import tempfile
import threading
import urllib.request
import wsgiref.simple_server
from pathlib import Path

import pytest

import npm
import once
import once.asgi
import once.wsgi
from drivers import environment, go_program, program
from once_server import until

KINDS = ["wsgi", "flask", "django-wsgi", "starlette", "fastapi", "django-asgi", "node", "express",
    "fastify", "net/http"]
HERE = Path(__file__).resolve().parent
FRAMEWORKS = HERE.parent / "clients/frameworks"
SLOW_S = 0.5  # long enough for duplicates to come while it runs; nothing depends on it
BYTES = b"\xff\x00\xfe"
ANSWER_MAX = 1000  # of an answer that the middleware keeps, in every application
FIELDS = {"Content-Type": "application/json", "Set-Cookie": "session=1", "X-Kept": "yes"}


class Shop:
    """What the handlers do, whatever framework calls them."""

    def __init__(self):
        self.calls = collections.Counter()
        self.inside, self.gate = threading.Event(), threading.Event()
        self.inside_large = threading.Event()
        self.gate.set()

    def reset(self):
        self.calls.clear()
        self.inside.clear()
        self.inside_large.clear()

    def answer(self, method, path):
        """(status, fields, body); the body may be an iterator of pieces."""
        name = path.strip("/").split("/")[0]
        if method == "GET":
            return 200, FIELDS, json.dumps({"charges": self.calls["charges"]}).encode()
        self.calls[name] += 1
        if name == "crash":
            raise RuntimeError("crashed")
        if name == "end":
            return int(path.rsplit("/", 1)[1]), FIELDS, b'{"end":true}'
        if name == "bytes":
            return 200, {"Content-Type": "application/octet-stream"}, BYTES
        if name in ("pieces", "whole", "large"):
            pieces = [b"a"] * int(path.rsplit("/", 1)[1])
            fields = {**FIELDS, "Content-Length": str(len(pieces))}
            is_whole = name == "whole"
            return 201, fields, b"".join(pieces) if is_whole else self.piecewise(name, pieces)
        if name == "slow":
            threading.Event().wait(SLOW_S)
        if name == "held":
            self.inside.set()
            assert self.gate.wait(120)
        return 201, FIELDS, json.dumps({"charge": self.calls[name]}).encode()

    def piecewise(self, name, pieces):
        """Of a large one the last piece waits."""
        yield from pieces[:-1]
        if name == "large":
            self.inside_large.set()
            assert self.gate.wait(120)
        yield pieces[-1]


def plain_wsgi(shop):
    def application(environ, start_response):
        status, fields, body = shop.answer(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        write = start_response(f"{status} Fine", list(fields.items()))
        if isinstance(body, bytes):
            return [body]
        if "by=write" not in environ.get("QUERY_STRING", ""):
            return body
        for piece in body:
            write(piece)
        return []
    return application


def flask_app(shop):
    flask = needed("flask")
    app = flask.Flask("shop")

    @app.route("/<path:path>", methods=["GET", "POST"])
    def any_path(path):
        flask.request.get_data()
        status, fields, body = shop.answer(flask.request.method, "/" + path)
        return body, status, fields
    return app.wsgi_app


def django_view(shop):
    """Configured once in a process: the view looks the shop up when it is called."""
    django = needed("django")
    from django.conf import settings
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF="django_urls", SECRET_KEY="k",
            MIDDLEWARE=[], DEBUG=False, LOGGING_CONFIG=None)
        django.setup()
    import django_urls
    django_urls.shop = shop


def django_wsgi(shop):
    django_view(shop)
    from django.core.wsgi import get_wsgi_application
    return get_wsgi_application()


def django_asgi(shop):
    django_view(shop)
    needed("uvicorn")
    from django.core.asgi import get_asgi_application
    return get_asgi_application()


def starlette_app(shop):
    needed("uvicorn")
    applications, responses = needed("starlette.applications"), needed("starlette.responses")
    routing = needed("starlette.routing")

    def any_path(request):  # a plain function: Starlette runs it in a thread
        status, fields, body = shop.answer(request.method, request.url.path)
        answer = responses.Response if isinstance(body, bytes) else responses.StreamingResponse
        return answer(body, status, dict(fields))
    return applications.Starlette(
        routes=[routing.Route("/{path:path}", any_path, methods=["GET", "POST"])])


def fastapi_app(shop):
    needed("uvicorn")
    fastapi = needed("fastapi")
    app = fastapi.FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    def any_path(path: str, request: fastapi.Request):
        status, fields, body = shop.answer(request.method, "/" + path)
        answer = fastapi.Response
        if not isinstance(body, bytes):
            answer = needed("fastapi.responses").StreamingResponse
        return answer(body, status, dict(fields))
    return app


MAKERS = {"wsgi": plain_wsgi, "flask": flask_app, "django-wsgi": django_wsgi,
    "starlette": starlette_app, "fastapi": fastapi_app, "django-asgi": django_asgi}


def needed(module):
    try:
        return importlib.import_module(module)
    except ImportError:
        pytest.skip(f"{module} is not installed (Debian: python3-{module.split('.')[0]})")


# --- Serving --------------------------------------------------------------------------------------


class Threads(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 256


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass

    def get_stderr(self):
        return io.StringIO()  # where a traceback would go


class WsgiServer:
    def __init__(self, application):
        self.server = wsgiref.simple_server.make_server("127.0.0.1", 0, application, Threads, Quiet)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class AsgiServer:
    def __init__(self, application):
        uvicorn = needed("uvicorn")
        self.server = uvicorn.Server(uvicorn.Config(application, "127.0.0.1", 0, lifespan="off",
            log_level="critical", backlog=256))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            threading.Event().wait(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def stop(self):
        self.server.should_exit = True
        self.thread.join(60)


class Application:
    def __init__(self, kind, once_url, profile):
        self.kind, self.shop = kind, Shop()
        made = MAKERS[kind](self.shop)
        fences = once.Fences(once_url, client=once.Client(retries=1, idle_max=64,
            deadline=110, attempt_timeout=100, connect_timeout=60))  # a stalled machine is no fault
        is_wsgi = kind in ("wsgi", "flask", "django-wsgi")
        wrap = once.wsgi.Once if is_wsgi else once.asgi.Once
        self.server = (WsgiServer if is_wsgi else AsgiServer)(
            wrap(made, fences, profile=profile, answer_bytes_max=ANSWER_MAX))
        self.port = self.server.port

    def reset(self):
        self.shop.reset()
        if self.kind.startswith("django"):
            django_view(self.shop)  # its URLs are the process's own: another one may have them

    @property
    def calls(self):
        return self.shop.calls

    def hold(self):
        self.shop.gate.clear()

    def entered(self):
        assert self.shop.inside.wait(120)

    def entered_large(self):
        assert self.shop.inside_large.wait(120)

    def let_go(self):
        self.shop.gate.set()

    def stop(self):
        self.server.stop()


class Process:
    """An application in a process of its own. It is asked by reads, which pass the middleware."""

    def __init__(self, words, place, env):
        self.place = place
        self.process = subprocess.Popen(words, cwd=place, env=env, stdout=subprocess.PIPE,
            text=True)
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        self.port = int(line)

    def reset(self):
        self.ask("/reset")

    def ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return json.load(answer)

    @property
    def calls(self):
        return collections.Counter(self.ask("/calls")["calls"])

    def hold(self):
        self.ask("/hold")

    def entered(self):
        until(lambda: self.ask("/entered")["isInside"], "it is not called", 120)

    def entered_large(self):
        until(lambda: self.ask("/entered")["isInsideLarge"], "it is not called", 120)

    def let_go(self):
        self.ask("/let-go")

    def stop(self):
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.place)


def start_node(kind, once_url, profile):
    place = Path(tempfile.mkdtemp())
    if kind != "node":
        try:
            npm.check_node(FRAMEWORKS)
            (place / "node_modules").symlink_to(npm.node_modules(FRAMEWORKS))
        except npm.Absent as absent:
            pytest.skip(str(absent))
    shutil.copy(HERE / "app.mjs", place)
    env = {**environment(), "ONCE_SDK": str(HERE.parent.parent / "sdk/node")}
    return Process([program("node"), "app.mjs", kind, once_url, profile], place, env)


def start_go(kind, once_url, profile):
    return Process([go_program(), "app", kind, once_url, profile], Path(tempfile.mkdtemp()),
        environment())


def start(kind, once_url, profile="ietf"):
    starters = {"node": start_node, "express": start_node, "fastify": start_node,
        "net/http": start_go}
    return starters.get(kind, Application)(kind, once_url, profile)

"""brokers: private RabbitMQ, NATS and Kafka servers for the tests, and one queue of each.

Every server has a directory, ports and a session of its own, on the loopback, and is ended by its
pid. RabbitMQ and NATS are Debian's; Kafka is the mock cluster of librdkafka (kafka_mock.c).

A queue of any of them has the same methods: add, add_events, left (messages that the broker has and
nobody has acknowledged), parked, purge.
"""
import json
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from servers import START_S, certificates_make, free_port, scratch  # noqa: E402


logging.getLogger("pika").setLevel(logging.CRITICAL)  # it tells each attempt to connect


def tool(name, installed):
    """What tools/deps unpacked; else the package's."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(root, "build-tools", name)
    return path if os.access(path, os.X_OK) else installed


def wait_for(is_so, what, process, log, seconds=START_S):
    until = time.monotonic() + seconds
    while not is_so():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{what}:\n{log()}")
        time.sleep(0.05)


class Server:
    """What all of them have in common: a directory, a log, a process with its own session."""

    NAME = ""

    def __init__(self):
        self.directory = scratch(f"once-{self.NAME}-")
        self.port = free_port()
        self.process = None

    def path(self, name):
        return os.path.join(self.directory, name)

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def spawn(self, words, **more):
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.directory, start_new_session=True, **more)

    def kill(self):
        """As a crash ends it: the process and all that it started."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()


class RabbitMq(Server):
    """A node with its own name, cookie and epmd. Nothing is written outside its directory."""

    NAME = "rabbitmq"
    SCRIPT = tool("rabbitmq/bin/rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")
    ERLANG = os.path.dirname(tool("erlang/bin/erl", "/usr/lib/erlang/bin/erl"))

    @classmethod
    def installed(cls):
        try:
            import pika  # pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            return False
        return os.access(cls.SCRIPT, os.X_OK) and os.access(cls.ERLANG + "/epmd", os.X_OK)

    def __init__(self, tls=False):
        super().__init__()
        self.epmd_port, self.dist_port, self.tls_port = free_port(), free_port(), None
        lines = ["listeners.tcp.1 = 127.0.0.1:%d" % self.port, "loopback_users.guest = false",
            "log.file.level = warning", "vm_memory_high_watermark.absolute = 1GB",
            "disk_free_limit.absolute = 1MB"]
        if tls:
            certificates_make(self.directory)
            self.tls_port = free_port()
            lines += ["listeners.ssl.1 = 127.0.0.1:%d" % self.tls_port,
                "ssl_options.cacertfile = " + self.path("ca.crt"),
                "ssl_options.certfile = " + self.path("server.crt"),
                "ssl_options.keyfile = " + self.path("server.key"),
                "ssl_options.verify = verify_peer",
                "ssl_options.fail_if_no_peer_cert = true"]
        with open(self.path("rabbitmq.conf"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        with open(self.path("plugins"), "w", encoding="utf-8") as file:
            file.write("[].\n")
        self.epmd = None
        self.write_erl()

    def write_erl(self):
        """What starts Erlang, wherever it was unpacked: some versions of Debian's own script know
        only where the package would be installed."""
        root = os.path.dirname(self.ERLANG)
        runtime = next(name for name in sorted(os.listdir(root)) if name.startswith("erts-"))
        os.mkdir(self.path("bin"))
        with open(self.path("bin/erl"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexport ROOTDIR='{root}' BINDIR='{root}/{runtime}/bin' EMU=beam "
                "PROGNAME=erl\nexec \"$BINDIR/erlexec\" \"$@\"\n")
        os.chmod(self.path("bin/erl"), 0o755)

    @property
    def url(self):
        if self.tls_port:
            return f"amqps://guest:guest@localhost:{self.tls_port}"
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    def start(self):
        quiet = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
        path = ":".join((self.path("bin"), self.ERLANG, os.environ["PATH"]))
        env = {**os.environ, "PATH": path, "HOME": self.directory,
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": f"once{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": self.path("rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": self.path("env"), "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_MNESIA_BASE": self.path("mnesia"), "RABBITMQ_LOG_BASE": self.path("logs"),
            "RABBITMQ_PID_FILE": self.path("pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.path("plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": self.path("generated"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": quiet,
            "RABBITMQ_IO_THREAD_POOL_SIZE": "8"}
        if self.epmd is None:
            self.epmd = subprocess.Popen([self.ERLANG + "/epmd", "-address", "127.0.0.1", "-port",
                str(self.epmd_port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
        self.spawn([self.SCRIPT], env=env)
        wait_for(self.answers, "rabbitmq-server does not answer", self.process, self.log,
            3 * START_S)
        return self

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
            self.connect().close()
            return True
        except Exception:  # pylint: disable=broad-except
            return False  # pika has many words for it

    def connect(self):
        import pika  # pylint: disable=import-outside-toplevel
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port,
            credentials=pika.PlainCredentials("guest", "guest"), socket_timeout=10,
            blocked_connection_timeout=30, connection_attempts=1, heartbeat=0))

    def stop(self):
        super().stop()
        if self.epmd is not None:
            self.epmd.kill()
            self.epmd.wait()

    def queue(self, name="orders"):
        return RabbitQueue(self, name)


class RabbitQueue:
    """Messages are persistent, and confirmed before `add` returns."""

    KIND = "amqp"

    def __init__(self, server, name):
        self.server, self.name = server, name
        with self.server.connect() as link:
            link.channel().queue_declare(name, durable=True)

    def url(self, more=""):
        return f"{self.server.url}/{self.name}{more.replace('&', '?', 1)}"

    def publish(self, messages, queue=None):
        import pika  # pylint: disable=import-outside-toplevel
        with self.server.connect() as link:
            channel = link.channel()
            channel.confirm_delivery()
            for body, fields in messages:
                fields = dict(fields)
                properties = pika.BasicProperties(delivery_mode=2,
                    content_type=fields.pop("content-type", None),
                    content_encoding=fields.pop("content-encoding", None),
                    message_id=fields.pop("message-id", None), headers=fields or None)
                self.publish_one(channel, queue or self.name, body, properties)

    @staticmethod
    def publish_one(channel, queue, body, properties):
        """A server that has just come back may return a message: its queue is not there yet."""
        import pika  # pylint: disable=import-outside-toplevel
        until = time.monotonic() + START_S
        while True:
            try:
                channel.basic_publish("", queue, body, properties, mandatory=True)
                return
            except pika.exceptions.UnroutableError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def add(self, body, **fields):
        self.publish([(body, named(fields, "cloudEvents:"))])

    def add_events(self, names):
        self.publish([(event(name), {}) for name in names])

    def ready(self, name=None):
        with self.server.connect() as link:
            found = link.channel().queue_declare(name or self.name, passive=True)
            return found.method.message_count

    def left(self, waiting):
        """The broker tells only what nobody has taken; what Once has taken, Once tells."""
        return self.ready() + waiting

    def read(self, name):
        """Everything in a queue, without taking it away: it is requeued when the channel ends."""
        import pika  # pylint: disable=import-outside-toplevel
        found = []
        with self.server.connect() as link:
            channel = link.channel()
            try:
                while True:
                    method, properties, body = channel.basic_get(name)
                    if method is None:
                        return found
                    found.append({"body": body, "content-type": properties.content_type,
                        "message-id": properties.message_id, **(properties.headers or {})})
            except pika.exceptions.ChannelClosedByBroker:
                return found  # there is no such queue

    def parked(self):
        return self.read(self.name + ".parked")

    def messages(self):
        return self.read(self.name)


class Nats(Server):
    NAME = "nats"
    PROGRAM = tool("nats-server", "/usr/sbin/nats-server")

    @classmethod
    def installed(cls):
        return os.access(cls.PROGRAM, os.X_OK)

    def __init__(self, tls=False):
        super().__init__()
        self.tls = tls
        if tls:
            certificates_make(self.directory)

    @property
    def url(self):
        if self.tls:
            return f"nats+tls://once:s3cret-word@localhost:{self.port}"
        return f"nats://127.0.0.1:{self.port}"

    def start(self):
        lines = [f'listen: "127.0.0.1:{self.port}"', "max_payload: 8MB",
            f'jetstream {{ store_dir: "{self.path("js")}" }}']
        if self.tls:
            lines.append(f'tls {{ cert_file: "{self.path("server.crt")}", key_file: '
                f'"{self.path("server.key")}", ca_file: "{self.path("ca.crt")}", verify: true }}')
            lines.append('authorization { user: once, password: "s3cret-word" }')
        with open(self.path("conf"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.spawn([self.PROGRAM, "-c", self.path("conf")])
        wait_for(self.answers, "nats-server does not answer", self.process, self.log)
        return self

    def answers(self):
        if self.tls:
            return "Server is ready" in self.log()
        try:
            self.api("INFO")
            return True
        except (OSError, ValueError, AssertionError):
            return False

    def connect(self):
        """A connection that was greeted; TLS begins after the greeting."""
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        greeting = b""
        while not greeting.endswith(b"\n"):  # byte by byte: what follows may be TLS
            byte = peer.recv(1)
            assert byte, "the server closed the connection"
            greeting += byte
        assert greeting.startswith(b"INFO "), "this is no NATS"
        if self.tls:
            context = ssl.create_default_context(cafile=self.path("ca.crt"))
            context.load_cert_chain(self.path("client.crt"), self.path("client.key"))
            peer = context.wrap_socket(peer, server_hostname="localhost")
        return peer

    def request(self, subject, body, headers=None):
        """The answer to one request, by NATS' own protocol."""
        data = body if isinstance(body, bytes) else body.encode()
        with self.connect() as peer:
            with peer.makefile("rb") as answers:
                head = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode())
                    for name, value in (headers or {}).items())
                words = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"lang":"t",'
                words += b'"user":"once","pass":"s3cret-word",' if self.tls else b""
                words += b'"version":"1"}\r\nSUB _INBOX.t 1\r\n'
                if head:
                    head = b"NATS/1.0\r\n" + head + b"\r\n"
                    words += b"HPUB %s _INBOX.t %d %d\r\n" % (subject.encode(), len(head),
                        len(head) + len(data))
                else:
                    words += b"PUB %s _INBOX.t %d\r\n" % (subject.encode(), len(data))
                peer.sendall(words + head + data + b"\r\n")
                while True:
                    line = answers.readline()
                    assert line, "the server closed the connection"
                    parts = line.split()
                    if parts[0] == b"MSG":
                        return answers.read(int(parts[-1]))
                    if parts[0] == b"HMSG":  # no responders
                        raise ValueError(answers.read(int(parts[-1])))
                    if parts[0] == b"PING":
                        peer.sendall(b"PONG\r\n")
                    assert parts[0] != b"-ERR", line

    def api(self, what, body=None):
        return json.loads(self.request("$JS.API." + what, json.dumps(body) if body else ""))

    def queue(self, name="orders"):
        return NatsQueue(self, name)


class NatsQueue:
    KIND = "nats"

    def __init__(self, server, name, durable="once", **config):
        self.server, self.name, self.durable = server, name, durable
        made = self.server.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name + ".in"],
            "storage": "file", **config})
        assert "error" not in made, made

    def url(self, more=""):
        return f"{self.server.url}/{self.name}?durable={self.durable}{more}"

    def add(self, body, **fields):
        ack = json.loads(self.server.request(self.name + ".in", body, named(fields, "ce-")))
        assert "error" not in ack, ack
        return str(ack["seq"])

    def add_events(self, names):
        return [self.add(event(name)) for name in names]

    def info(self):
        return self.server.api(f"CONSUMER.INFO.{self.name}.{self.durable}")

    def left(self, waiting=0):
        info = self.info()
        if "error" in info:  # nobody has begun to consume
            return self.server.api(f"STREAM.INFO.{self.name}")["state"]["messages"]
        return info["num_pending"] + info["num_ack_pending"]

    def read(self, stream):
        info = self.server.api(f"STREAM.INFO.{stream}")
        found = []
        if "error" in info or info["state"]["messages"] == 0:
            return found
        import base64  # pylint: disable=import-outside-toplevel
        for seq in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
            one = self.server.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})["message"]
            head = base64.b64decode(one.get("hdrs", "")).decode().split("\r\n")
            fields = dict(line.split(": ", 1) for line in head if ": " in line)
            found.append({"body": base64.b64decode(one.get("data", "")), **fields})
        return found

    def parked(self):
        return self.read(self.name + "-parked")

    def messages(self):
        return self.read(self.name)


class Kafka(Server):
    """The mock cluster of librdkafka. A broker that is down keeps its messages."""

    NAME = "kafka"
    PARTITIONS = 4

    @staticmethod
    def program():
        """The release build has no test programs."""
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        places = [os.path.dirname(os.environ.get("ONCE_BIN", "")), os.path.join(root, "build"),
            os.path.join(root, "build-asan")]
        names = [os.path.join(place, "tests", "kafka-mock") for place in places]
        return next((name for name in names if os.access(name, os.X_OK)), names[-1])

    @classmethod
    def installed(cls):
        return os.access(cls.program(), os.X_OK)

    def start(self):
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen([self.program()], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        self.lock = threading.Lock()
        self.hosts = self.process.stdout.readline().strip()
        assert self.hosts, self.log()
        return self

    def ask(self, *words):
        """The lines of the answer to one command."""
        with self.lock:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            lines = []
            while True:
                line = self.process.stdout.readline()
                assert line, "the mock cluster is gone: " + self.log()
                if line == ".\n":
                    return lines
                assert not line.startswith("error"), line
                lines.append(line.split())

    def kill(self):
        """A mock that is killed forgets everything: its brokers go down instead."""
        self.ask("down")

    def start_again(self):
        self.ask("up")

    def fall_silent(self):
        """Connections stay, and new ones are made, but nobody answers."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def speak_again(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        if self.process is not None:
            super().kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def url(self):
        return f"kafka://{self.hosts}"

    def queue(self, name="orders"):
        return KafkaQueue(self, name)


class KafkaQueue:
    KIND = "kafka"

    def __init__(self, server, name, group=None, partitions=Kafka.PARTITIONS):
        self.server, self.name, self.group = server, name, group or "once-" + name
        self.server.ask("topic", name, partitions)
        self.server.ask("topic", name + ".parked", 1)

    def url(self, more=""):
        return f"{self.server.url}/{self.name}?group={self.group}&session=5s{more}"

    def add(self, body, partition=-1, key="", **fields):
        data = body if isinstance(body, bytes) else body.encode()
        words = [f"{name.encode().hex()}={value.encode().hex()}"
            for name, value in named(fields, "ce_").items()]
        where = self.server.ask("produce", self.name, partition, key.encode().hex() or "-",
            data.hex() or "-", *words)[0]
        return f"{where[0]}-{where[1]}"

    def add_events(self, names):
        return [self.add(event(name)) for name in names]

    def offsets(self):
        """{partition: (committed, low, high)}"""
        return {int(part): tuple(map(int, rest))
            for part, *rest in self.server.ask("committed", self.name, self.group)}

    def left(self, waiting=0):
        return sum(high - max(committed, low) for committed, low, high in self.offsets().values())

    def read(self, topic):
        found = []
        for part, offset, key, body, *fields in self.server.ask("read", topic):
            one = {"body": bytes.fromhex(body.strip("-")), "key": bytes.fromhex(key.strip("-")),
                "at": f"{part}-{offset}"}
            for field in fields:
                name, value = field.split("=")
                one[bytes.fromhex(name).decode()] = bytes.fromhex(value).decode()
            found.append(one)
        return found

    def parked(self):
        return self.read(self.name + ".parked")

    def messages(self):
        return self.read(self.name)


ALL = {"amqp": RabbitMq, "nats": Nats, "kafka": Kafka}


def named(fields, prefix):
    """Fields as a broker spells them: ce_id is an attribute, content_type a header."""
    made = {}
    for name, value in fields.items():
        if name.startswith("ce_"):
            made[prefix + name[3:]] = value
        else:
            made[name.replace("_", "-")] = value
    return made


def event(name, value=1, **more):
    return json.dumps({"specversion": "1.0", "id": name, "source": "/s", "type": "t",
        "idempotencykey": name, "data": {"n": value}, **more})

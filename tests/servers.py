#!/usr/bin/python3
"""servers: private database servers for the tests, from Debian's packages.

    tests/servers.py postgres PROGRAM [ARGUMENTS]   run it with ONCE_TEST_POSTGRES set to the URL
    tests/servers.py redis PROGRAM [ARGUMENTS]      … with ONCE_TEST_REDIS
    tests/servers.py redis-cluster PROGRAM …        … with that of a cluster of three nodes
    tests/servers.py redis-tls PROGRAM …            … of a server that wants TLS
    tests/servers.py redis-sentinel PROGRAM …       … of Sentinels that know the server

Each server has a directory of its own and is ended by its pid. Exit 77 (skipped) when the package
is not there.
"""
import errno
import glob
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIP_STATUS = 77  # meson's and automake's convention
START_S = 60  # a busy machine takes its time
PORTS = random.SystemRandom()  # whatever a test seeds, two of them do not choose the same ports
PORT_MIN, PORT_MAX = 10000, 32000  # the kernel's own, for clients, are above
CHOSEN = set()  # by this process


def scratch(prefix):
    """In memory where there is such a place: no test takes the power away, so nothing is learnt
    from waiting for the disk."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix=prefix, dir=memory if os.access(memory, os.W_OK) else None)


def free_port(address="127.0.0.1"):
    """For a server that binds it later: no other test of this run is given the same one."""
    with socket.socket() as probe:
        bind_apart(probe, address)
        return probe.getsockname()[1]


def bind_apart(sock, address="127.0.0.1"):
    """Bind where no client of another test looks for a server that is gone: a provider that ended
    leaves its port to the kernel, and Once goes on calling it for as long as its test lasts."""
    for _ in range(PORT_MAX - PORT_MIN):
        port = PORTS.randrange(PORT_MIN, PORT_MAX)
        if not choose(port):
            continue
        try:
            return sock.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise RuntimeError(f"no free port between {PORT_MIN} and {PORT_MAX}")


def choose(port):
    """Whether nobody has chosen this port before: not here, and not in another program of the same
    run of tools/test, whose directory has a file for each."""
    if port in CHOSEN:
        return False
    CHOSEN.add(port)
    shared = os.environ.get("ONCE_TEST_SHARED_DIR")
    if shared is None:
        return True
    try:
        os.close(os.open(os.path.join(shared, f"port-{port}"), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


class Postgres:
    """A PostgreSQL server of its own: a fresh cluster with one database, `once`. It refuses to run
    as root, so root's tests run it as `postgres`. It does not wait for the disk."""

    ENV = "ONCE_TEST_POSTGRES"
    DATABASE = "once"
    SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
        "full_page_writes": "off", "max_connections": 60, "shared_buffers": "32MB",
        "log_min_messages": "warning", "timezone": "UTC", "autovacuum_naptime": "10min"}

    def __init__(self, directory=None, port=None, **settings):
        self.owns = directory is None
        self.directory = str(directory or scratch("once-postgres-"))
        self.data = os.path.join(self.directory, "data")
        self.port = port or free_port()
        self.settings = {**self.SETTINGS, **settings, "port": self.port}
        self.process = None

    @staticmethod
    def program(name):
        """Debian keeps the server's programs out of PATH, one folder a version; the newest."""
        found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"),
            key=lambda path: int(path.split("/")[4]))
        return found[-1] if found else shutil.which(name)

    @classmethod
    def installed(cls):
        return cls.program("initdb") is not None and cls.program("postgres") is not None

    @staticmethod
    def user():
        """Keyword arguments for subprocess: who the server runs as."""
        if os.getuid() != 0:
            return {}
        owner = pwd.getpwnam("postgres")
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/{self.DATABASE}"

    def make(self):
        if os.getuid() == 0:
            shutil.chown(self.directory, **{key: value for key, value in self.user().items()
                if key in ("user", "group")})
        shared = os.environ.get("ONCE_TEST_SHARED_DIR")  # of all programs of one run of tools/test
        kept = shared and os.path.join(shared, "postgres-data")
        if kept and os.path.exists(kept):
            subprocess.run(["cp", "-a", kept, self.data], check=True)
            return
        subprocess.run([self.program("initdb"), "-D", self.data, "-U", "postgres", "-A", "trust",
            "-E", "UTF8", "--locale=C", "--no-sync"], check=True, capture_output=True,
            cwd=self.directory, **self.user())
        if kept:  # the others copy it, which is much quicker; the first of several stays
            fresh = f"{kept}.{os.getpid()}"
            subprocess.run(["cp", "-a", self.data, fresh], check=True)
            try:
                os.rename(fresh, kept)
            except OSError:
                shutil.rmtree(fresh)

    def start(self):
        fresh = not os.path.exists(os.path.join(self.data, "PG_VERSION"))
        if fresh:
            self.make()
        words = [f"--{name}={value}" for name, value in self.settings.items()]
        with open(os.path.join(self.directory, "postgres.log"), "ab") as log:
            self.process = subprocess.Popen([self.program("postgres"), "-D", self.data, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **self.user())
        self.wait_ready()
        if fresh:
            self.sql(f"CREATE DATABASE {self.DATABASE}", database="postgres")
        return self

    def wait_ready(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                self.sql("SELECT 1", database="postgres")
                return
            except subprocess.CalledProcessError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise RuntimeError("postgres does not answer:\n" + self.log())

    def sql(self, text, database=None, user="postgres"):
        """What psql prints for it: rows of values with | between them."""
        return subprocess.run([self.program("psql"), "-X", "-q", "-A", "-t", "-v",
            "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", user, "-c", text,
            database or self.DATABASE], check=True, capture_output=True, text=True,
            timeout=60).stdout.strip()

    def log(self):
        with open(os.path.join(self.directory, "postgres.log"), encoding="utf-8",
                errors="replace") as file:
            return file.read()

    def kill(self):
        """As a crash ends it: the whole server, not one session."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast: sessions are ended
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.owns:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Redis:
    """A redis-server that keeps what it acknowledges: appendonly, appendfsync always."""

    ENV = "ONCE_TEST_REDIS"
    PROGRAM = "redis-server"

    @classmethod
    def installed(cls):
        return shutil.which(cls.PROGRAM) is not None

    def __init__(self, directory=None, port=None, **settings):
        self.owns = directory is None
        self.directory = str(directory or scratch("once-redis-"))
        self.port = port or free_port()
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "",
            "maxmemory-policy": "noeviction", "repl-diskless-sync-delay": 0, **settings}
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        words = [word for name, value in self.settings.items()
            for word in ("--" + name.replace("_", "-"), str(value))]
        with open(os.path.join(self.directory, "redis.log"), "ab") as log:
            self.process = subprocess.Popen([self.PROGRAM, *self.words(), "--port",
                str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--daemonize",
                "no", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_ready()
        return self

    def words(self):
        """What comes first on its command line."""
        return []

    def wait_ready(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                if self.ask("PING") == b"+PONG":
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError("redis-server does not answer:\n" + self.log())

    def ask(self, *words):
        """The first line of the answer to one command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
            if "requirepass" in self.settings:
                peer.sendall(f"AUTH {self.settings['requirepass']}\r\n".encode())
                assert peer.recv(5) == b"+OK\r\n"
            parts = [f"*{len(words)}\r\n".encode()]
            for word in words:
                data = word if isinstance(word, bytes) else str(word).encode()
                parts += [f"${len(data)}\r\n".encode(), data, b"\r\n"]
            peer.sendall(b"".join(parts))
            with peer.makefile("rb") as answer:
                return answer.readline().rstrip(b"\r\n")

    def cli(self, *words):
        """What redis-cli prints for it; an error of the server's too."""
        return subprocess.run(["redis-cli", "-p", str(self.port), *map(str, words)],
            capture_output=True, text=True, timeout=30).stdout.strip()

    def keys_in_slot(self, slot, most):
        """Names of keys, as bytes: those of records are not text."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
            peer.sendall(f"CLUSTER GETKEYSINSLOT {slot} {most}\r\n".encode())
            with peer.makefile("rb") as answer:
                count = int(answer.readline()[1:])
                return [answer.read(int(answer.readline()[1:]) + 2)[:-2] for _ in range(count)]

    def log(self):
        with open(os.path.join(self.directory, "redis.log"), encoding="utf-8",
                errors="replace") as file:
            return file.read()

    def kill(self):
        """As a crash ends it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.owns:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class RedisGroup:
    """Several redis-servers that are one store."""

    ENV = "ONCE_TEST_REDIS"
    installed = Redis.installed

    def __init__(self):
        self.directory = scratch("once-redis-")
        self.servers = []

    def add(self, **settings):
        number = len(self.servers)
        directory = os.path.join(self.directory, str(number))
        os.mkdir(directory)
        self.servers.append(Redis(directory, **settings))
        return self.servers[-1]

    def stop(self):
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()


class RedisCluster(RedisGroup):
    """Three primaries, and a replica of each with replicas=1. A slot is moved by move()."""

    NODES = 3

    def __init__(self, replicas=0, **settings):
        super().__init__()
        self.replicas = replicas
        for _ in range(self.NODES * (1 + replicas)):
            self.add(cluster_enabled="yes", cluster_port=free_port(), cluster_node_timeout=2000,
                cluster_require_full_coverage="no", **settings)

    @property
    def url(self):
        return "redis://" + ",".join(f"127.0.0.1:{one.port}" for one in self.servers) + "/0"

    def start(self):
        for server in self.servers:
            server.start()
        names = [f"127.0.0.1:{server.port}" for server in self.servers]
        subprocess.run(["redis-cli", "--cluster", "create", *names, "--cluster-replicas",
            str(self.replicas), "--cluster-yes"], check=True, capture_output=True, timeout=60)
        for server in self.servers:
            wait_until(lambda one=server: "cluster_state:ok" in one.cli("CLUSTER", "INFO")
                and "master_link_status:down" not in one.cli("INFO", "replication"))
        return self

    def owner(self, key):
        """The server that has the slot of this key."""
        for server in self.servers:
            answer = server.cli("EXISTS", key)
            if answer.startswith("MOVED"):
                port = int(answer.split()[2].rpartition(":")[2])
                return next(one for one in self.servers if one.port == port)
        return self.servers[0]

    def move_begin(self, key, to):
        """Announce that the slot of the key goes to that server."""
        source = self.owner(key)
        slot = source.cli("CLUSTER", "KEYSLOT", key)
        ids = {one: one.cli("CLUSTER", "MYID") for one in (source, to)}
        to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
        return source, slot, ids

    @staticmethod
    def move_keys(source, slot, to, most=1000):
        """Move some keys of the slot. False: there are none left."""
        keys = source.keys_in_slot(slot, most)
        if keys:
            source.ask("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        return bool(keys)

    @staticmethod
    def move_end(source, slot, ids, to):
        for server in (to, source):
            server.cli("CLUSTER", "SETSLOT", slot, "NODE", ids[to])

    def move(self, key, to):
        source, slot, ids = self.move_begin(key, to)
        while self.move_keys(source, slot, to):
            pass
        self.move_end(source, slot, ids, to)


class RedisTls(Redis):
    """A server with a port for TLS that wants a certificate of its clients. The other port is for
    the tests' own commands."""

    def __init__(self, directory=None, **settings):
        super().__init__(directory)
        certificates_make(self.directory)
        path = lambda name: os.path.join(self.directory, name)
        self.tls_port = free_port()
        self.settings.update(tls_port=self.tls_port, tls_cert_file=path("server.crt"),
            tls_key_file=path("server.key"), tls_ca_cert_file=path("ca.crt"), **settings)

    @property
    def url(self):
        path = lambda name: os.path.join(self.directory, name)
        return (f"rediss://localhost:{self.tls_port}/0?cacert={path('ca.crt')}"
            f"&cert={path('client.crt')}&key={path('client.key')}")


def certificates_make(directory):
    """ca.crt, server.crt (localhost and 127.0.0.1) and client.crt with their keys."""
    def run(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test CA", "-days", "2")
    for name in ("server", "client"):
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        with open(os.path.join(directory, "names"), "w", encoding="utf-8") as file:
            file.write("subjectAltName=DNS:localhost\n")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "names")


class RedisSentinel(RedisGroup):
    """A primary, replicas of it, and three Sentinels that agree by two."""

    SERVICE = "orders"
    SENTINELS = 3

    def __init__(self, replicas=1, **settings):
        super().__init__()
        self.primary = self.add(**settings)
        self.replicas = [self.add(replicaof=f"127.0.0.1 {self.primary.port}", **settings)
            for _ in range(replicas)]
        self.sentinels = []

    @property
    def url(self):
        names = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{names}/{self.SERVICE}/0"

    def start(self):
        for server in self.servers:
            server.start()
        for server in self.replicas:
            wait_until(lambda one=server: "master_link_status:up" in one.cli("INFO", "replication"))
        for number in range(self.SENTINELS):
            directory = os.path.join(self.directory, f"sentinel{number}")
            os.mkdir(directory)
            sentinel = Sentinel(directory, self.SERVICE, self.primary.port)
            self.sentinels.append(sentinel)
            self.servers.append(sentinel)
            sentinel.start()
        for sentinel in self.sentinels:
            wait_until(lambda one=sentinel: self.is_complete(one))
        return self

    def is_complete(self, sentinel):
        """It knows of the other Sentinels and of the replicas."""
        facts = sentinel.cli("SENTINEL", "master", self.SERVICE).split("\n")
        known = dict(zip(facts[::2], facts[1::2]))
        return (int(known.get("num-other-sentinels", 0)) == self.SENTINELS - 1
            and int(known.get("num-slaves", 0)) == len(self.replicas))

    def primary_port(self):
        for sentinel in self.sentinels:
            lines = sentinel.cli("SENTINEL", "get-master-addr-by-name", self.SERVICE).split("\n")
            if len(lines) == 2:
                return int(lines[1])
        return 0


class Sentinel(Redis):
    def __init__(self, directory, service, port):
        super().__init__(directory)
        self.owns = False
        self.settings = {}
        with open(os.path.join(self.directory, "sentinel.conf"), "w", encoding="utf-8") as file:
            file.write(f"sentinel monitor {service} 127.0.0.1 {port} 2\n"
                f"sentinel down-after-milliseconds {service} 30000\n"  # failed over by command only
                f"sentinel failover-timeout {service} 5000\n")

    def words(self):
        return [os.path.join(self.directory, "sentinel.conf"), "--sentinel"]


def wait_until(holds, seconds=START_S):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise RuntimeError("it does not come about")
        time.sleep(0.02)


SERVERS = {"postgres": Postgres, "redis": Redis, "redis-cluster": RedisCluster,
    "redis-tls": RedisTls, "redis-sentinel": RedisSentinel}


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SERVERS:
        print(__doc__, file=sys.stderr)
        return 64
    kind = SERVERS[sys.argv[1]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server goes too
    if not kind.installed():
        return SKIP_STATUS
    with kind() as server:
        env = dict(os.environ, **{kind.ENV: server.url})
        return subprocess.run(sys.argv[2:], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

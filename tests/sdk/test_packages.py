"""The archives that `make package-sdks` builds hold all that is needed, and nothing else."""
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from drivers import GO_TIMEOUT_S, TIMEOUT_S, environment, go_environment, program
from once_server import LONG

ROOT = Path(__file__).resolve().parent.parent.parent
IN_LONG = pytest.mark.skipif(not LONG, reason="what a second archive holds is seen in the first")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    place = tmp_path_factory.mktemp("archives")
    done = subprocess.run([ROOT / "tools/package_sdks", str(place)], capture_output=True,
        text=True, timeout=TIMEOUT_S, env=environment())
    assert done.returncode == 0, done.stderr
    return place


def pip_install(archive, place):
    """With Debian's pip, from the archive and what is on this machine. A wheel that is pure Python
    may also be unpacked."""
    pip = ["/usr/bin/python3", "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode != 0:
        if archive.suffix != ".whl":
            pytest.skip("pip is not here")
        zipfile.ZipFile(archive).extractall(place)
        return
    done = subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-build-isolation",
        "--no-compile", "--disable-pip-version-check", "--target", str(place), str(archive)],
        capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["once-*.whl", pytest.param("once-*.tar.gz", marks=IN_LONG)])
def test_the_python_package_is_imported_from_where_it_was_installed(archives, kind, tmp_path):
    archive, = archives.glob(kind)
    pip_install(archive, tmp_path)
    program = "import once, once.wsgi, once.asgi; print(once.__file__, once.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
        cwd=tmp_path, env={**environment(), "PYTHONPATH": str(tmp_path)}, timeout=TIMEOUT_S)
    assert done.stdout.split() == [str(tmp_path / "once/__init__.py"), "0.1.0"], done.stderr
    assert (tmp_path / "once/py.typed").exists()
    assert (tmp_path / "once-0.1.0.dist-info/LICENSE").exists()


def test_the_sdist_has_the_sources(archives):
    sdist, = archives.glob("once-*.tar.gz")
    names = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "once/client.py", "once/py.typed"} <= names


def test_the_npm_tarball_is_imported_from_where_it_was_installed(archives, tmp_path):
    tarball, = archives.glob("once-sdk-*.tgz")
    place = tmp_path / "node_modules"
    (tmp_path / "package.json").write_text('{"private": true}')
    done = subprocess.run([program("npm"), "install", "--offline", "--no-audit", "--no-fund",
        str(tarball)], cwd=tmp_path, capture_output=True, text=True, env=environment(),
        timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    (tmp_path / "program.mjs").write_text("""
        import { Client, VERSION } from "once-sdk";
        import { once as express } from "once-sdk/express";
        import fastify from "once-sdk/fastify";
        console.log(VERSION, typeof Client, typeof express, typeof fastify);""")
    done = subprocess.run([program("node"), "program.mjs"], capture_output=True, text=True,
        cwd=tmp_path, env=environment(), timeout=TIMEOUT_S)
    assert done.stdout.split() == ["0.1.0", "function", "function", "function"], done.stderr
    names = {path.name for path in (place / "once-sdk").iterdir()}
    assert {"README.md", "LICENSE", "index.d.ts", "express.d.ts", "fastify.d.ts"} <= names


OTHER = "git.example.com/team/once"


@pytest.fixture(scope="module")
def other_archives(tmp_path_factory):
    """The Go module under a path of one's own."""
    out = tmp_path_factory.mktemp("other")
    subprocess.run([ROOT / "tools/package_sdks", out], check=True, capture_output=True,
        timeout=TIMEOUT_S, env={**environment(), "GO_MODULE": OTHER})
    return out


@pytest.mark.parametrize("module, made", [("once.example/once", "archives"),
    pytest.param(OTHER, "other_archives", marks=IN_LONG)])
def test_the_go_module_is_fetched_from_a_proxy(module, made, request, tmp_path):
    proxy = request.getfixturevalue(made) / "goproxy"
    archive, = proxy.glob(f"{module}/@v/*.zip")
    names = zipfile.ZipFile(archive).namelist()
    assert all(name.startswith(f"{module}@v0.1.0/") for name in names)
    held = {name.partition("@v0.1.0/")[2] for name in names}
    assert {"go.mod", "README.md", "LICENSE", "client.go", "handlers.go"} <= held
    (tmp_path / "main.go").write_text("""package main

        import ("fmt"; "%s")

        func main() { fmt.Println(once.Version, once.NewFences("").URL) }""" % module)
    env = {**go_environment(), "GOPROXY": f"file://{proxy}", "GOFLAGS": "-mod=mod -modcacherw",
        "GOMODCACHE": str(tmp_path / "cache"), "GONOSUMDB": module}
    steps = (["mod", "init", "example"], ["get", f"{module}@latest"], ["run", "main.go"])
    for step in steps:
        done = subprocess.run([program("go"), *step], cwd=tmp_path, env=env, capture_output=True,
            text=True, timeout=GO_TIMEOUT_S)
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.1.0", "http://127.0.0.1:7411"]
    assert (tmp_path / f"cache/{module}@v0.1.0/client.go").exists()


def test_the_python_sdk_passes_a_strict_type_check():
    pytest.importorskip("mypy", reason="mypy is not installed")
    done = subprocess.run(["/usr/bin/python3", "-m", "mypy", "--strict", "--cache-dir=/dev/null",
        "--python-version=3.9", "once"], cwd=ROOT / "sdk/python", capture_output=True, text=True,
        timeout=600)
    assert done.returncode == 0, done.stdout

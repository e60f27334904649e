"""The test runner's judgement, and the planted bugs that have to keep applying."""
import concurrent.futures
import dataclasses
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name, folder="tools"):
    loader = importlib.machinery.SourceFileLoader(f"once_{name}", str(ROOT / folder / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


runner = load("test")
mutants = load("mutants")
sys.path.insert(0, str(ROOT / "bench"))
compare = load("compare", "bench")
import measure  # noqa: E402  pylint: disable=C0413
import picture  # noqa: E402  pylint: disable=C0413
sys.path.insert(0, str(ROOT / "tests"))
import servers  # noqa: E402  pylint: disable=C0413

# (exit status or minus the signal, output) -> (passed, failed, skipped)
JUDGEMENTS = {
    "a silent program counts as one": ((0, "fine\n"), (1, 0, 0)),
    "cmocka's functions are counted": ((0, "1..2\nok 1 - a\nok 2 - b\n"), (2, 0, 0)),
    "a failed function is one failure": ((1, "1..2\nok 1 - a\nnot ok 2 - b\n"), (1, 1, 0)),
    "a failed function fails an exit of 0": ((0, "1..2\nok 1 - a\nnot ok 2 - b\n"), (1, 1, 0)),
    "a skipped function is neither": ((0, "1..2\nok 1 - a\nnot ok 2 # SKIP b\n"), (1, 0, 1)),
    "a program's own count is taken": ((0, "once-tests: 2000 passed, 0 failed\n"), (2000, 0, 0)),
    "its failures count": ((1, "once-tests: 7 passed, 3 failed\n"), (7, 3, 0)),
    "exit 77 is skipped": ((77, ""), (0, 0, 1)),
    "a failing exit fails whatever was printed": ((1, "1..1\nok 1 - a\n"), (1, 1, 0)),
    "a crash fails": ((-11, "1..1\nok 1 - a\n"), (1, 1, 0)),
    "a timeout fails": ((None, "1..1\nok 1 - a\n"), (1, 1, 0)),
    "tests that never ran fail": ((0, "1..3\nok 1 - a\n"), (1, 1, 0)),
    "no test at all fails": ((0, "1..0\n"), (0, 1, 0)),
    "a count of nothing fails": ((0, "once-tests: 0 passed, 0 failed\n"), (0, 1, 0)),
    "undefined behaviour fails": (
        (0, "x.c:1:2: runtime error: shift\n1..1\nok 1 - a\n"), (1, 1, 0)),
    "a leak fails": ((0, "==1==ERROR: LeakSanitizer: detected\n1..1\nok 1 - a\n"), (1, 1, 0)),
    "a race fails": ((0, "WARNING: ThreadSanitizer: data race\n"), (0, 1, 0)),
}


@pytest.mark.parametrize("case", JUDGEMENTS)
def test_judgement(case):
    (status, output), expected = JUDGEMENTS[case]
    result = runner.judge(runner.Job(name="unit/x", command=[]), status, output)
    assert (result.passed, result.failed, result.skipped) == expected


class Options:
    long = False


def test_a_program_that_hangs_is_ended(tmp_path):
    job = runner.Job(name="unit/hang", command=["sleep", "60"], timeout_s=1)
    result = runner.run(job, Options, tmp_path)
    assert result.failed == 1 and "timed out" in result.why and result.seconds < 30


def test_a_program_that_is_missing_fails(tmp_path):
    result = runner.run(runner.Job(name="unit/none", command=["./none"]), Options, tmp_path)
    assert result.failed == 1 and "cannot start" in result.why


@pytest.fixture
def forked(tmp_path, monkeypatch):
    """forked(text of a test file) -> the result of its run in a fork."""
    for name in runner.sanitizer_env():  # those of the run that this test is in
        monkeypatch.delenv(name, raising=False)
    forks = runner.Forks()

    def run(text, **how):
        (tmp_path / "test_it.py").write_text(text)
        job = runner.pytest_job(Options, tmp_path, "http/x", ["test_it.py"], {"ONCE_TEST_X": "y"})
        job = dataclasses.replace(job, cwd=tmp_path, **how)
        return runner.run(job, Options, tmp_path, forks)

    yield run
    forks.close()


def test_a_fork_finds_what_a_process_of_its_own_would(forked):
    result = forked("""
import os, tempfile
from pathlib import Path
def test_it():
    assert os.environ["ONCE_TEST_X"] == "y" and os.getsid(0) == os.getpid()
    assert Path.cwd() == Path(__file__).parent
    assert tempfile.gettempdir() == os.environ["TMPDIR"] != "/tmp"
    assert os.path.realpath("/proc/self/fd/0") == "/dev/null"
def test_not():
    assert False, "the reason"
""")
    assert (result.passed, result.failed) == (1, 1), result
    assert "the reason" in result.output and result.cpu_seconds > 0


def test_forks_have_random_numbers_of_their_own(forked):
    text = "import random\ndef test_it():\n    print(random.random()); assert False"
    first, second = (re.search(r"0\.\d+\n", forked(text).output).group() for _ in range(2))
    assert first != second


def test_a_fork_that_hangs_or_is_killed_fails(forked):
    slow = forked("import time\ndef test_it():\n    time.sleep(60)", timeout_s=1)
    assert slow.failed == 1 and "timed out" in slow.why and slow.seconds < 30
    killed = forked("import os\ndef test_it():\n    os.kill(os.getpid(), 9)")
    assert killed.failed == 1 and killed.why == "died of SIGKILL"
    assert forked("def test_it():\n    pass").passed == 1  # and the next one runs


def test_a_report_that_no_test_reads_fails(forked):
    """As of a program that a test started and ended."""
    result = forked("""
import os
def test_it():
    options = dict(option.split("=") for option in os.environ["ASAN_OPTIONS"].split(":"))
    with open(options["log_path"] + ".17", "w") as file:
        file.write("ERROR: LeakSanitizer: detected memory leaks")
""")
    assert (result.passed, result.failed) == (1, 1) and result.why == "a sanitizer reported"
    assert "detected memory leaks" in result.output


KIT = f"import sys; sys.path.insert(0, '{ROOT}/tests')\n"
FORBIDDEN = {
    "a promise": KIT + "from promise import kept\ndef test_it():\n"
        "    with kept():\n        assert [1] == []",
    "a promise, as a decorator": KIT + "from promise import kept\n@kept()\ndef test_it(tmp_path):\n"
        "    assert tmp_path is None",
    "a second effect": "class Origin:\n    effects = 2\ndef test_it():\n"
        "    assert Origin.effects == 1",
    "a second delivery": "class Handler:\n    def count(self):\n        return 2\n"
        "def test_it():\n    assert Handler().count() == 1",
    "damage": "import subprocess\ndef test_it():\n    done = subprocess.run(['false', 'verify', "
        "'--redecide', '--store', 'journal:/a/path/that/is/long'], capture_output=True)\n"
        "    assert done.returncode == 0, done",
    "an assertion of the server": "def test_it():\n"
        "    print(\"once: internal error: 'a > 0' does not hold at x.c:1\")\n    assert False",
    "a signal": "def test_it():\n    assert False, f'it ended with {-6}'",
    "a sanitizer": "def test_it():\n    print('WARNING: ThreadSanitizer: race')\n    assert False",
}
EXCUSABLE = {
    "a wait": "def test_it():\n    waited = 70\n    assert waited < 60, 'it never came true'",
    "progress": "def test_it():\n    assert sum([0, 3]) > 100 / 10",
    "a server that the test killed": "def test_it():\n    assert False, f'it ended with {-9}'",
}


@pytest.mark.parametrize("what", [*FORBIDDEN, *EXCUSABLE])
def test_only_a_failure_of_time_may_be_tried_again(forked, what):
    result = forked(FORBIDDEN.get(what) or EXCUSABLE[what])
    assert (result.failed, result.why) == (1, "exit 1"), result
    job = runner.Job(name="http/x", command=[], junit=True)
    assert runner.is_excusable(job, result) == (what in EXCUSABLE), result.output


@pytest.mark.parametrize("name, how", [("unit/x", {}), ("sim/x", {}), ("asan-http/x", {}),
    ("tsan-threads/http/x", {}), ("crash/test_run_kill", {}), ("tidy/x", {}),
    ("http/x", {"junit": False}), ("http/x", {"why": "timed out after 900 s"}),
    ("http/x", {"why": "a sanitizer reported"}), ("http/x", {"why": "died of SIGSEGV"})])
def test_what_has_no_second_try(name, how):
    job = runner.Job(name=name, command=[], junit=how.get("junit", True))
    failed = runner.Result(failed=1, why=how.get("why", "exit 1"), output="E   assert 1 == 2")
    assert not runner.is_excusable(job, failed)


def second_tries(*failing, passes=True):
    """(jobs tried again, results) of a run in which these jobs failed; passes: when alone."""
    jobs = [runner.Job(name=name, command=[], junit=True) for name in (*failing, "http/well")]
    results = [runner.Result(failed=1, why="exit 1", output=f"E   late: {job.name}", seconds=2)
        for job in jobs[:-1]] + [runner.Result(passed=5)]
    tried = []

    def once(job):
        tried.append(job.name)
        return runner.Result(passed=3, seconds=1) if passes else runner.Result(failed=1)

    return tried, jobs, runner.try_again(jobs, results, once)


def test_what_passes_alone_is_named_and_counted(capsys):
    tried, jobs, results = second_tries("http/a", "pg-http/b")
    assert tried == ["http/a", "pg-http/b"]
    assert runner.totals(results) == "11 passed, 0 failed, 2 unstable"
    assert results[0].seconds == 3
    capsys.readouterr()
    runner.report_unstable(jobs, results)
    said = capsys.readouterr().out
    assert "UNSTABLE  http/a: failed beside others, passed alone" in said
    assert "E   late: http/a" in said and "late: pg-http/b" in said and "http/well" not in said


def test_what_fails_alone_too_has_failed():
    tried, _, results = second_tries("http/a", passes=False)
    assert tried == ["http/a"] and runner.totals(results) == "5 passed, 1 failed"


def test_nothing_is_tried_again_when_too_much_failed_or_what_may_not_fail():
    many = [f"http/{each}" for each in range(runner.SECOND_TRIES_MAX + 1)]
    assert second_tries(*many)[0] == [] and second_tries("http/a", "unit/b")[0] == []
    assert len(second_tries(*many[1:])[0]) == runner.SECOND_TRIES_MAX


@pytest.mark.parametrize("how, failed, tries", [((), 0, 2), (("--once-only",), 1, 1),
    (("--long",), 1, 1)])
def test_a_run_tries_again_unless_it_is_told_not_to(tmp_path, monkeypatch, how, failed, tries):
    """The whole way, with a test that fails the first time."""
    for name in runner.sanitizer_env():
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "test_it.py").write_text("""
from pathlib import Path
def test_it():
    with open("tries", "a") as tries:
        tries.write("x")
    assert len(Path("tries").read_text()) > 1, "too early"
""")
    monkeypatch.setattr(runner, "times_path", lambda: tmp_path / "times")
    monkeypatch.setattr(sys, "argv", ["test", *how])
    arguments = runner.parse_arguments()
    job = dataclasses.replace(runner.pytest_job(arguments, tmp_path, "http/x", ["test_it.py"]),
        cwd=tmp_path)
    result, = runner.run_all([job], arguments, tmp_path)
    assert result.failed == failed and (tmp_path / "tries").read_text() == "x" * tries
    assert bool(result.unstable) == (failed == 0)


def test_no_two_programs_of_a_run_choose_the_same_port(tmp_path, monkeypatch):
    """Though the first one has not bound it yet."""
    monkeypatch.setenv("ONCE_TEST_SHARED_DIR", str(tmp_path))
    here, elsewhere, free = (servers.free_port() for _ in range(3))
    monkeypatch.setattr(servers, "CHOSEN", {here})
    (tmp_path / f"port-{free}").unlink()
    drawn = iter([here, elsewhere, free])
    monkeypatch.setattr(servers, "PORTS", type("Drawn", (), {"randrange": lambda *_: next(drawn)}))
    assert servers.free_port() == free


def test_listing_the_tests_compiles_nothing(tmp_path):
    # In a clone that was never built, meson asks for its version and for tools that build nothing.
    stub(tmp_path, "ninja", f"""for word in "$@"; do
    case $word in --version | -t) exec '{shutil.which("ninja")}' "$@" ;; esac
done
echo "$@" >>'{tmp_path}/asked'""")
    done = subprocess.run([ROOT / "tools/test", "--list"], capture_output=True, text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 0, done
    names = done.stdout.splitlines()
    assert {"unit/base", "tsan-threads/http/test_fences", "http/test_fences"} <= set(names)
    assert (tmp_path / "asked").read_text() == "-C build-asan build.ninja\n"
    assert set(runner.LONGEST) <= set(names)
    assert {name.split("/")[0] for name in names} <= set(runner.BUDGET_S)
    assert set(runner.SECOND_TRY) <= {name.split("/")[0] for name in names}


def test_a_suite_over_its_budget_is_reported(capsys, monkeypatch):
    """By the processor, whatever the clock says: a busy machine is no bug."""
    monkeypatch.setattr(runner, "BUDGET_S", {"unit": 10, "http": 10, runner.RUN: 10})
    monkeypatch.setattr(runner, "BUILT", {"build-asan": (30, 55)})
    jobs = [runner.Job(name=name, command=[]) for name in ("unit/a", "unit/b", "http/c")]
    results = [runner.Result(seconds=21, cpu_seconds=6) for _ in jobs]
    runner.report_suites(jobs, results, Options, 9)
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "42.0" in lines["unit"] and "12.0" in lines["unit"]
    assert "30.0" in lines["build-asan"] and "73.0" in lines[runner.RUN]
    assert [suite for suite, line in lines.items() if "over its budget" in line] == ["unit"]


def test_an_extra_lane_takes_a_job_only_when_a_core_is_idle(monkeypatch):
    jobs = [runner.Job(name=name, command=[]) for name in ("unit/a", "http/b", "http/c")]
    jobs.insert(1, runner.Job(name="lib/alone", command=[], alone=True))
    ticks = iter([(0, 0), (2, 100), (22, 200)])  # of them idle, all: 2 of 100, then 20 of 100
    monkeypatch.setattr(runner.Idle, "read", lambda self: next(ticks))
    monkeypatch.setattr(runner, "IDLE_S", 0.01)
    line = runner.Line(jobs)
    assert line.take(extra=False) == jobs[0]
    assert line.take(extra=True) == jobs[2] and next(ticks, None) is None  # it looked twice
    assert [line.take(extra=False), line.take(extra=True)] == [jobs[3], None]


def test_what_is_still_being_built_waits_and_the_rest_does_not():
    built = concurrent.futures.Future()
    jobs = [runner.Job(name="tsan-unit/a", command=[], after=built),
        runner.Job(name="unit/b", command=[])]
    line = runner.Line(jobs)
    assert line.take(extra=False) == jobs[1]
    built.set_result(None)
    assert [line.take(extra=False), line.take(extra=False)] == [jobs[0], None]


def test_idle_time_is_of_our_cores():
    idle, ticks = runner.Idle().read()
    assert 0 < idle < ticks


def test_every_planted_bug_still_applies():
    assert mutants.check(ROOT) == []


def write_mutant(folder, find):
    (folder / "tests/mutants").mkdir(parents=True)
    (folder / "x.c").write_text("one two two\n")
    (folder / "tests/mutants/m.mutant").write_text(
        f"file: x.c\ntest: unit/x\nwhy: because\nfind:\n{find}\nreplace:\nthree\n")


@pytest.mark.parametrize("find, count", [("two", 2), ("four", 0)])
def test_a_planted_bug_that_no_longer_applies_is_reported(tmp_path, find, count):
    write_mutant(tmp_path, find)
    assert mutants.check(tmp_path) == [f"m.mutant: its text occurs {count} times in x.c"]


def test_a_planted_bug_is_put_exactly_there(tmp_path):
    write_mutant(tmp_path, "one two")
    mutant = mutants.parse(tmp_path / "tests/mutants/m.mutant")
    assert mutant.mutate((tmp_path / "x.c").read_text()) == "three two\n"


def test_what_was_caught_is_planted_again_only_after_a_change(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    write_mutant(tmp_path, "one two")
    mutant, file = mutants.parse(tmp_path / "tests/mutants/m.mutant"), tmp_path / "verdicts"

    def is_kept():
        return mutant.identity() in mutants.Kept(file).caught

    assert not is_kept()
    mutants.Kept(file).keep(mutant, "SURVIVED")
    assert not is_kept()
    mutants.Kept(file).keep(mutant, "caught")
    assert is_kept()
    (tmp_path / "x.c").write_text("one two three\n")
    assert not is_kept()


def test_a_bug_left_in_a_kept_copy_is_taken_out_and_compiled_again(tmp_path, monkeypatch):
    source, kept = tmp_path / "tree", tmp_path / "kept"
    source.mkdir()
    subprocess.run(["git", "init", "-q", source], check=True)
    (source / "x.c").write_text("sound\n")
    (source / "y.c").write_text("same\n")
    os.utime(source / "x.c", (1, 1))  # older than what was made of the bug
    monkeypatch.setattr(mutants, "ROOT", source)
    mutants.copy_tree(kept)
    (kept / "x.c").write_text("planted\n")
    os.utime(kept / "y.c", (5, 5))
    mutants.copy_tree(kept)
    assert (kept / "x.c").read_text() == "sound\n" and (kept / "x.c").stat().st_mtime > 1000
    assert (kept / "y.c").stat().st_mtime == 5  # nothing is made of it again


def test_nothing_missing_means_nothing_said():
    done = subprocess.run([ROOT / "tools/deps", "build", "test"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_group_of_packages_is_a_usage_error():
    assert subprocess.run([ROOT / "tools/deps", "x"], capture_output=True).returncode == 64


def stub(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run_deps(folder, user):
    """tools/deps on a machine where only gcc is installed and apt-get says what it is asked."""
    stub(folder, "dpkg-query", "echo installed gcc; echo not-installed meson; exit 1")
    stub(folder, "apt-get", f"echo \"$@\" >>'{folder}/asked'; [ -e '{folder}/lists' ] || "
        f"[ \"$1\" = update ] && touch '{folder}/lists'")
    stub(folder, "id", f"echo {user}")
    stub(folder, "sudo", "exit 1")
    return subprocess.run([ROOT / "tools/deps", "build"], capture_output=True, text=True,
        env={"PATH": f"{folder}:/usr/bin:/bin"})


def test_missing_packages_are_installed_and_lists_fetched_when_absent(tmp_path):
    assert run_deps(tmp_path, 0).returncode == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["install", "update", "install"]
    assert "meson" in asked[0].split() and "gcc" not in asked[0].split()


def test_without_the_right_to_install_the_one_line_is_printed(tmp_path):
    done = run_deps(tmp_path, 1000)
    assert done.returncode == 69
    assert "sudo apt-get install" in done.stderr and " meson " in done.stderr
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("output, skips", [("s\n1 skipped in 0.10s\n", True),
    ("3 skipped, 1 warning in 0.10s\n", True), ("1 passed, 2 skipped in 1.00s\n", False),
    ("1 failed, 2 skipped in 1.00s\n", False), ("2 passed in 1.00s\n", False)])
def test_a_test_that_was_skipped_catches_no_planted_bug(output, skips):
    assert bool(mutants.ONLY_SKIPPED.search(output)) == skips


# ---- The benchmarks' own arithmetic --------------------------------------------------------------


class Loaded:
    """A server that answers a given number of calls and uses a given time for each."""

    def __init__(self, name, rate, cpu_us):
        self.name, self.rate, self.cpu_us, self.used = name, rate, cpu_us, 0

    def load(self, seconds):
        calls = round(self.rate * seconds)
        self.used += calls * self.cpu_us / 1e6
        return self.rate, calls

    def cpu_s(self):
        return self.used


def test_a_row_has_the_ratio_of_rates_and_of_processor_time():
    ours, theirs = measure.take_turns([Loaded("a", 5000, 30), Loaded("b", 10000, 12)], 3, 4)
    assert len(ours) == len(theirs) == 4
    row = measure.rate_row("B0", "what", "begins/s", "b", 0.7, ours, theirs)
    assert (row["ratio"], row["figure"], row["compared_figure"]) == (0.5, 5000, 10000)
    assert (row["cpu_us"], row["compared_cpu_us"], row["cpu_ratio"]) == (30, 12, 2.5)
    assert measure.cpu_row("B0-cpu", "what", "b", 1.8, ours, theirs)["better"] == "at_most"


def test_latencies_come_with_the_time_that_a_core_stood_still(monkeypatch):
    slept = time.sleep
    monkeypatch.setattr(measure.time, "sleep", lambda seconds: slept(seconds + 0.05))
    server = Loaded("a", 5000, 30)
    server.latency = lambda rate, seconds: slept(0.1) or dict.fromkeys(measure.PARTS, rate)
    half, runs = measure.half_load([measure.Turn(5000, 30)], 3, a=server)
    assert half["half_load"]["rate"] == 2500 and half["half_load"]["a"]["p99_us"] == 2500
    if measure.STANDSTILL not in runs["a"][0]:
        pytest.skip("no thread may be urgent here")
    assert half["half_load"]["a"][measure.STANDSTILL] >= 49_000


# (more is better, before, after) -> worse
CHANGES = {
    "what is shown alike is alike": ((True, [0.5004], [0.4996]), False),
    "one step of the last digit may be rounding": ((True, [0.5], [0.499]), False),
    "two steps are a change": ((True, [0.5], [0.498]), True),
    "and for the better they are none": ((True, [0.498], [0.5]), False),
    "less is better": ((False, [100], [102]), True),
    "less is better, and it is less": ((False, [102], [100]), False),
    "the passes before differ by more": ((True, [90, 100, 110], [91, 91, 91]), False),
    "the passes after differ by more": ((True, [100, 100, 100], [81, 91, 101]), False),
    "more than half of their range": ((True, [95, 100, 105], [94.8, 94.8, 94.8]), True),
    "exactly half of their range": ((True, [95, 100, 105], [95, 95, 95]), False),
    "a figure that was 0": ((False, [0, 0], [0, 0]), False),
    "a figure that was 0 and is not": ((False, [0, 0], [4, 4]), True),
    "large figures": ((True, [1234567], [1233999]), False),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_worse_only_if_the_digits_shown_can_tell(case):
    (more, before, after), is_worse = CHANGES[case]
    row = {"what": "w", "unit": "s", "better": "at_least" if more else "at_most"}
    cells, worse = compare.line_of("B0", row, before, after)
    assert (worse, cells[-1]) == (is_worse, "WORSE" if is_worse else "")
    assert not (worse and cells[2] == cells[4])


def test_processor_time_counts_children_that_have_ended():
    before = measure.cpu_s_of(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert measure.cpu_s_of(os.getpid()) > before


def test_the_picture_shows_every_row_that_has_a_bar():
    row = {"id": "B0", "what": "a < b", "unit": "µs", "figure": 1, "ratio": 0.9, "ratio_low": 0.1,
        "ratio_high": 9, "bar": 1.8, "better": "at_most"}
    report = {"date": "now", "machine": {"cores": 2, "cpu": "x & y", "commit": "c",
        "load_before": 0.1}, "rows": [row, {"id": "B9", "what": "w", "unit": "s",
        "figure": 1, "better": "info"}, {"id": "B1", "what": "w", "skipped": "no"}]}
    root = ElementTree.fromstring(picture.svg(report))
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["B0: a < b"]
    assert picture.reached(row, 0.9) == 2
    assert picture.reached({**row, "better": "at_least"}, 0.9) == 0.5

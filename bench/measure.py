"""measure: servers that take turns being loaded, and the rows that the scripts print about them.

A server has a name, load(seconds), which returns (calls a second, calls), and cpu_s(), which
returns the processor time of all its processes so far.
"""
import collections
import os
import statistics
import sys
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PARTS = ("p50_us", "p99_us", "p999_us")
STANDSTILL, STOLEN = "standstill_us", "stolen_us"
LATENCY_RUNS = 3

Turn = collections.namedtuple("Turn", ["rate", "cpu_us"])  # one server's part of a round


def say(text):
    print(text, file=sys.stderr, flush=True)


def cpu_s_of(root):
    """Processor time so far of a process and of all below it, the ended ones included."""
    below, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, words = int(stat.parent.name), stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended: its parent has its time
        below.setdefault(int(words[1]), []).append(pid)
        used[pid] = sum(int(word) for word in words[11:15])
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += used.get(pid, 0)
        left += below.get(pid, [])
    return total / TICKS


def take_turns(servers, seconds, rounds):
    """What each did in each round. Who is first changes; the first round only warms up."""
    found = {one.name: [] for one in servers}
    for number in range(rounds + 1):
        first = number % len(servers)
        for one in servers[first:] + servers[:first]:
            say(f"round {number} of {rounds}: {one.name}")
            before = one.cpu_s()
            rate, calls = one.load(seconds if number else seconds / 2)
            turn = Turn(rate, 1e6 * (one.cpu_s() - before) / calls)
            say(f"round {number} of {rounds}: {one.name} {rate:,.0f}/s, {turn.cpu_us:.1f} µs each")
            if number:
                found[one.name].append(turn)
    return [found[one.name] for one in servers]


def rates(turns):
    return [turn.rate for turn in turns]


def row(ident, what, unit, compared, bar, ours, theirs, better="at_least"):
    """One line of the table: ours ÷ theirs, of rounds that were taken in turns."""
    ratios = sorted(one / other for one, other in zip(ours, theirs))
    digits = 1 if statistics.median(ours) < 1000 else None
    return {"id": ident, "what": what, "figure": round(statistics.median(ours), digits),
        "unit": unit, "compared": compared,
        "compared_figure": round(statistics.median(theirs), digits),
        "ratio": round(statistics.median(ratios), 4), "ratio_low": round(ratios[0], 4),
        "ratio_high": round(ratios[-1], 4),
        **({"bar": bar, "better": better} if bar else {"better": "info"})}


def wanted(only, *idents):
    """Whether one of these rows was asked for. only has ids with commas between them, or is empty:
    all."""
    return not only or not set(only.split(",")).isdisjoint(idents)


def rate_row(ident, what, unit, compared, bar, ours, theirs):
    """A row of rates with the processor time of both sides, which varies less than rates."""
    cost = cpu_row(ident, what, compared, None, ours, theirs)
    return {**row(ident, what, unit, compared, bar, rates(ours), rates(theirs)),
        "cpu_us": cost["figure"], "compared_cpu_us": cost["compared_figure"],
        "cpu_ratio": cost["ratio"]}


def cpu_row(ident, what, compared, bar, ours, theirs):
    return row(ident, what, "µs", compared, bar, [turn.cpu_us for turn in ours],
        [turn.cpu_us for turn in theirs], "at_most")


class Standstill:
    """The longest time for which a core did nothing for its most urgent thread: a virtual machine's
    host runs something else then, and whoever is measured waits through no fault of its own. None
    where threads may not be urgent."""

    tick_s = 0.005

    def __enter__(self):
        self.longest_s, self.is_over = 0.0, False
        self.threads = [threading.Thread(target=self.watch, args=[core])
            for core in os.sched_getaffinity(0)]
        for thread in self.threads:
            thread.start()
        return self

    def watch(self, core):
        try:
            os.sched_setaffinity(0, [core])  # of this thread alone, as the next one
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError:
            self.longest_s = None
            return
        while not self.is_over and self.longest_s is not None:
            begun = time.monotonic()
            time.sleep(self.tick_s)
            self.longest_s = max(self.longest_s, time.monotonic() - begun - self.tick_s)

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def stolen_s():
    """Time so far for which the host of a virtual machine ran something else, of all cores."""
    with open("/proc/stat", encoding="ascii") as stat:
        return int(stat.readline().split()[8]) / TICKS


def latency_run(server, rate, seconds):
    before_s = stolen_s()
    with Standstill() as standstill:
        run = server.latency(rate, seconds)
    run = {**run, STOLEN: round(1e6 * (stolen_s() - before_s))}
    longest_s = standstill.longest_s
    return run if longest_s is None else {**run, STANDSTILL: round(1e6 * longest_s)}


def half_load(ours, seconds, **servers):
    """Latencies of each at half of our rate, in turns: a member of a row, and all the runs."""
    rate = statistics.median(rates(ours)) / 2
    say(f"latency at {rate:,.0f}/s")
    runs = {who: [] for who in servers}
    for _ in range(LATENCY_RUNS):
        for who, server in servers.items():
            runs[who].append(latency_run(server, rate, seconds))
    middle = {who: {part: statistics.median(run[part] for run in runs[who])
        for part in PARTS + (STANDSTILL, STOLEN) if part in runs[who][0]} for who in servers}
    return {"half_load": {"rate": round(rate), **middle}}, runs


def p99_row(ident, what, compared, bar, ours, theirs):
    """Of runs of half_load."""
    return row(ident, what, "ms", compared, bar, [run["p99_us"] / 1000 for run in ours],
        [run["p99_us"] / 1000 for run in theirs], "at_most")

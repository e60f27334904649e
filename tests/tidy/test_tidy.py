"""tools/tidy finds what it says it finds: one planted violation for each rule.

A small clean tree passes; each case changes one file of it and names the line to be reported.
"""
import importlib.machinery
import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


tidy = load("tidy")

HEADER = """/*
 * thing: a thing.
 */
#ifndef ONCE_BASE_THING_H
#define ONCE_BASE_THING_H

int thing(int value);

#endif
"""
NEEDY_HEADER = HEADER.replace("int value", "size_t value")
SOURCE = """#include "base/thing.h"

int thing(int value)
{
    return value + 1;
}
"""
DECIDE = """#include "base/thing.h"

int decide(int value);

int decide(int value)
{
    return thing(value);
}
"""
PUBLIC = """/*
 * once: the public interface.
 */
#ifndef ONCE_ONCE_H
#define ONCE_ONCE_H

int once_version(void);

#endif
"""
TEST = "static void things_add_up(void)\n{\n}\n\nTESTS(things_add_up)\n"
MENTIONS = "/* As things_add_up. */\n"
SHOP = "def test_it():\n    pass\n\n\n@journal_only('a lock')\ndef test_lock():\n    pass\n"
SUITE = "SHARED = {\n    'http/fences': (('shop',), ('more',)),\n}\n"
CONFORMANCE = """| id | what | proof |
| --- | --- | --- |
| ABC-1 | adds | `tests/unit/test_thing.c:things_add_up` |
| ABC-2 | more | not yet |
"""

CLEAN = {
    "src/base/thing.h": HEADER,
    "src/base/thing.c": SOURCE,
    "src/core/decide.c": DECIDE,
    "include/once/once.h": PUBLIC,
    "tests/unit/test_thing.c": TEST,
    "tests/store/test_conformance.c": TEST,
    "tests/unit/test_mentions.c": MENTIONS,
    "tests/http/test_shop.py": SHOP,
    "tools/test": SUITE,
    "docs/requirements.txt": "ABC-1\nABC-2\n",
    "docs/conformance.md": CONFORMANCE,
    "tools/tidy-allow": "# nothing\n",
}


def promises(count):
    return "".join(f"| P{number} | what | `tests/unit/test_thing.c:things_add_up` | "
        "`tests/unit/test_thing.c` |\n" for number in range(1, count + 1))


def stores(journal="`tests/unit/test_thing.c:things_add_up`",
        postgres="`tests/store/test_conformance.c`", redis="`tests/store/test_conformance.c`"):
    return "".join(f"| P{number} what | {journal} | {postgres} | {redis} |\n"
        for number in range(1, 15))


def long_function(lines):
    return "int thing(int value)\n{\n" + "    value++;\n" * (lines - 4) + "    return value;\n}\n"


def in_body(line):
    return SOURCE.replace("    return", f"    {line}\n    return")


def include(header):
    return SOURCE.replace("\n\n", f"\n\n#include {header}\n\n", 1)


def faults_of(tmp_path, changes):
    for name, text in {**CLEAN, **changes}.items():
        if text is None:
            continue
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(ROOT / ".clang-format", tmp_path)
    return [f"{name}:{line}: {message}" for name, line, message in tidy.check(tmp_path)]


def test_a_clean_tree_has_no_faults(tmp_path):
    assert faults_of(tmp_path, {}) == []


THING = "src/base/thing.c"
CORE = "src/core/decide.c"
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]
BROKEN_PUBLIC = PUBLIC.replace("once_version(void)", "once_class(int class)")
NOT_C99 = PUBLIC.replace("int once_version(void);", "enum once_big { ONCE_BIG = 1ll << 40 };")

TWO_PAIRS = ('#include "base/thing.h"\n\nstruct pair {\n    int a;\n};\n\n'
             'enum pair { LEFT, RIGHT };\n')

# name of the case: (file, its new text, what has to be reported)
CASES = {
    "a lower layer includes a higher": (
        THING, include('"core/decide.h"'), f"{THING}:3: base may not include core"),
    "only lib and cli include the public header": (
        THING, include('"once/once.h"'), f"{THING}:3: base may not include once"),
    "the command line reaches past its headers": (
        "src/cli/show.c", '#include "lib/inspect.h"\n#include "lib/call.h"\n',
        "src/cli/show.c:2: cli may not include lib"),
    "the command line speaks HTTP itself": (
        "src/cli/show.c", '#include "http/fields.h"\n',
        "src/cli/show.c:1: cli may not include http"),
    "a folder nobody placed": (
        "src/misc/x.c", "int misc_x;\n", "src/misc/x.c:1: src/misc has no place"),
    "an include without its folder": (
        CORE, DECIDE.replace('"base/thing.h"', '"x.h"'), f'{CORE}:1: "x.h" has no folder'),
    "core includes the clock": (
        CORE, "#include <time.h>\n\n" + DECIDE, f"{CORE}:1: core may not include <time.h>"),
    "core includes files": (
        CORE, "#include <sys/stat.h>\n\n" + DECIDE, f"{CORE}:1: core may not include <sys/stat.h>"),
    "the library prints": (THING, in_body('puts("x");'), f"{THING}:5: puts: only src/cli prints"),
    "the library logs": (THING, in_body("fflush(stderr);"), f"{THING}:5: stderr: only src/cli"),
    "a message with the id of a requirement": (
        THING, in_body('value += sizeof "see (ABC-2)";'), f"{THING}:5: ABC-2 means nothing to a"),
    "a message with the id of a promise": (
        THING, in_body('value += sizeof "refused (P7)";'), f"{THING}:5: P7 means nothing to a"),
    "a page for users with an id": (
        "docs/page.md", "# Page\n\nIt adds (ABC-1).\n", "docs/page.md:3: ABC-1 means nothing to"),
    "a line comment": (THING, in_body("// why"), f"{THING}:5: a // comment"),
    "a line too long": (THING, in_body(f"/* {'x' * 100} */"), f"{THING}:5: 110 columns"),
    "a tab": (THING, in_body("/*\t*/"), f"{THING}:5: a tab"),
    "trailing space": (THING, in_body("value++; "), f"{THING}:5: space at the end of the line"),
    "no newline at the end": (THING, SOURCE.rstrip(), f"{THING}:6: no newline"),
    "a long function": (
        THING, '#include "base/thing.h"\n\n' + long_function(71), f"{THING}:3: thing has 71 lines"),
    "a long function in Python": (
        "tools/x.py", "def f():\n" + "    print()\n" * 70, "tools/x.py:1: f has 71 lines"),
    "a stale excuse": (
        "tools/tidy-allow", f"function {THING}:thing\n", "tools/tidy-allow:1: 'function"),
    "a long file": (
        THING, "/* a reason */\n" + SOURCE + "\nint x;\n" * 800, f"{THING}:801: 1607 lines"),
    "a wrong guard": (
        "src/base/thing.h", HEADER.replace("BASE_THING", "THING"),
        "src/base/thing.h:1: the header's guard is not ONCE_BASE_THING_H"),
    "a header that does not say what it is": (
        "src/base/thing.h", HEADER.replace("thing: a thing", "A thing"),
        "src/base/thing.h:1: a header begins with a comment 'thing: what it is'"),
    "own header not first": (
        THING, "#include <stddef.h>\n\n" + SOURCE, f'{THING}:1: "base/thing.h" is not included'),
    "a header that needs another": (
        "src/base/only.h", NEEDY_HEADER.replace("thing", "only").replace("THING", "ONLY"),
        "src/base/only.h:7: does not compile alone"),
    "a public header that is not C99": (
        "include/once/once.h", NOT_C99, "include/once/once.h:7: is not C99"),
    "a public header that is not C++": (
        "include/once/once.h", BROKEN_PUBLIC, "include/once/once.h:7: is not C++"),
    "not formatted": (THING, in_body("value ++;"), f"{THING}:5: not as clang-format has it"),
    "a large file": ("docs/x.bin", "x" * (1 << 20) + "x", "docs/x.bin:1: larger than 1 MiB"),
    "a machine's path": (
        "docs/x.md", "see\n/wo" + "rk/x\n", "docs/x.md:2: a machine's path"),
    "a tag that means two things": (
        THING, TWO_PAIRS,
        f"{THING}:7: 'pair' is also defined at {THING}:3"),
    "a folder without code": ("src/net/meson.build", "\n", "src/net:1: a folder without code"),
    "a requirement not listed": (
        "docs/requirements.txt", "ABC-1\nABC-2\nABC-3\n", "docs/conformance.md:1: ABC-3 is not"),
    "a requirement listed twice": (
        "docs/conformance.md", CONFORMANCE + "| ABC-2 | again | not yet |\n",
        "docs/conformance.md:5: ABC-2 is listed twice"),
    "a requirement nobody made": (
        "docs/conformance.md", CONFORMANCE + "| ABC-9 | what | not yet |\n",
        "docs/conformance.md:5: ABC-9 is not in"),
    "a proof that is a claim": (
        "docs/conformance.md", CONFORMANCE.replace("not yet", "surely"),
        "docs/conformance.md:4: ABC-2 has no proof"),
    "a proof whose file is gone": (
        "docs/conformance.md", CONFORMANCE.replace("test_thing", "test_gone"),
        "docs/conformance.md:3: ABC-1 names 'tests/unit/test_gone.c', which does not exist"),
    "a proof whose test is gone": (
        "docs/conformance.md", CONFORMANCE.replace("things_add_up", "things_go"),
        "docs/conformance.md:3: ABC-1 names 'things_go', which is not in"),
    "a promise not listed": (
        "docs/promises.md", promises(13), "docs/promises.md:1: the rows are not P1 to P14"),
    "a promise without a planted bug": (
        "docs/promises.md", promises(14).replace("`tests/unit/test_thing.c` |", "none |"),
        "docs/promises.md:1: P1 has no proof"),
    "a promise whose test is gone": (
        "docs/promises.md", promises(14).replace("things_add_up", "things_go"),
        "docs/promises.md:2: P2 names 'things_go', which is not in"),
    "a promise on one store too few": (
        "docs/stores.md", stores(redis="").replace(" |  |", " |"),
        "docs/stores.md:1: P1 has 2 cells, not 3"),
    "a promise on a store without a proof": (
        "docs/stores.md", stores(redis="surely"), "docs/stores.md:1: P1 has no proof"),
    "a promise on a store whose test is gone": (
        "docs/stores.md", stores(redis="`tests/http/test_shop.py:test_gone`"),
        "docs/stores.md:1: P1 names 'test_gone', which is not in"),
    "a promise on a store whose test is only mentioned": (
        "docs/stores.md", stores(redis="`tests/unit/test_mentions.c:things_add_up`"),
        "docs/stores.md:1: P1 names 'things_add_up', which is no test of"),
    "a requirement whose test is only mentioned": (
        "docs/conformance.md", CONFORMANCE.replace("test_thing", "test_mentions"),
        "docs/conformance.md:3: ABC-1 names 'things_add_up', which is no test of"),
    "a promise whose test is only mentioned": (
        "docs/promises.md", promises(14).replace("test_thing.c:", "test_mentions.c:"),
        "docs/promises.md:1: P1 names 'things_add_up', which is no test of"),
    "a promise on a store whose test does not run there": (
        "docs/stores.md", stores(postgres="`tests/unit/test_thing.c`"),
        "docs/stores.md:1: P1 names no test that runs on postgres"),
    "a promise on a store whose test is of a journal alone": (
        "docs/stores.md", stores(redis="`tests/http/test_shop.py:test_lock`"),
        "docs/stores.md:1: P1 names no test that runs on redis"),
    "a comment about a page that is not there": (
        THING, in_body("/* As docs/gone.md says. */"),
        f"{THING}:5: a comment names 'docs/gone.md', which does not exist"),
    "a comment about a page that is not there, in its second line": (
        THING, in_body("/* For the reason,\n     * see GONE.md. */"),
        f"{THING}:6: a comment names 'GONE.md', which does not exist"),
    "a comment about a plan that is not in the tree": (
        THING, in_body("/* As the plan has it (DESI" "GN\n     * section 4). */"),
        f"{THING}:5: a comment names 'DESI" "GN', which does not exist"),
    "a comment about a file that was renamed": (
        THING, in_body("/* thing.h has the rest,\n     * and gone.c. */"),
        f"{THING}:6: a comment names 'gone.c', and no file has that name"),
    "fewer assertions than there were": (
        "tools/tidy-assertions", "core 1\n",
        "tools/tidy-assertions:1: src/core has 0 assertions for each 100 functions, and had 1"),
    "a function that reads the wall clock": (
        THING, in_body("value += clock.wall_ms;"),
        f"{THING}:5: wall_ms: thing may not read the wall clock"),
    "a function that asks the system for the wall clock": (
        THING, in_body("clock_gettime(CLOCK_REALTIME, &now);"),
        f"{THING}:5: CLOCK_REALTIME: thing may not read the wall clock"),
    "a wall clock in a variable": (
        THING, SOURCE + "\nstatic const clockid_t later = CLOCK_REALTIME;\n",
        f"{THING}:8: CLOCK_REALTIME: a variable may not lead to the wall clock"),
    "a function of the wall clock in a variable": (
        THING, SOURCE + "\nstatic time_t (*const later)(time_t *) = time;\n",
        f"{THING}:8: = time: a variable may not lead to the wall clock"),
    "a wall clock in a macro": (
        THING, SOURCE + "\n#define NOW_MS(clock) ((clock).wall_ms)\n",
        f"{THING}:8: wall_ms: a macro may not read the wall clock"),
    "a wait until a wall time": (
        THING, in_body("sem_timedwait(&gate, &until);"),
        f"{THING}:5: sem_timedwait: thing may not read the wall clock"),
    "the time of a file, which is the wall clock's": (
        THING, in_body("value += (int)found.st_mtim.tv_sec;"),
        f"{THING}:5: st_mtim: thing may not read the wall clock"),
    "a condition that waits by the wall clock": (
        THING, in_body("pthread_cond_timedwait(&wake, &lock, &until);"),
        f"{THING}:5: pthread_cond_timedwait: src/base sets no condition to the monotonic clock"),
    "a reader of the wall clock that is gone": (
        "src/base/clock.c", '#include "base/thing.h"\n',
        "src/base/clock.c:1: system_read no longer reads the wall clock"),
}
CASES.update({f"unfinished work: {word}": (
    "docs/x.md", f"{word}: later\n", "docs/x.md:1: unfinished work") for word in UNFINISHED})
CASES.update({f"{macro} by hand: {code}": (THING, in_body(code), f"{THING}:5: use {macro}")
    for code, macro in {"value = (int)(sizeof names / sizeof *names);": "COUNT",
        "at = (char *)at - offsetof(struct pair, a);": "CONTAINER_OF",
        "struct pair *at = (struct pair *)store;": "CONTAINER_OF",
        "use((struct pair *)(void *)task);": "CONTAINER_OF"}.items()})
CASES.update({f"a form of the wall clock: {form}": (
    THING, in_body(code), f"{THING}:5: {form}: thing may not read the wall clock")
    for form, code in {
        "clock_gettime(0": "clock_gettime(0, &now);",
        "clock_gettime(": "clock_gettime((clockid_t)0, &now);",
        "clock_gettime(which": "(void)clock_gettime(which, &now);",
        "clock_gettime": "read = clock_gettime;",
        "CLOCK_REALTIME_COARSE": "clock_gettime(CLOCK_REALTIME_COARSE, &now);",
        "CLOCK_REALTIME_ALARM": "fd = timerfd_create(CLOCK_REALTIME_ALARM, 0);",
        "CLOCK_TAI": "clock_gettime(CLOCK_TAI, &now);",
        "CLOCK_REALTIME": "pthread_cond_clockwait(&wake, &lock, CLOCK_REALTIME, &until);",
        "timerfd_create(0": "fd = timerfd_create(0, 0);",
        "timer_create(0": "(void)timer_create(0, &event, &timer);",
        "clock_nanosleep(0": "(void)clock_nanosleep(0, TIMER_ABSTIME, &until, NULL);",
        "gettimeofday": "(void)gettimeofday(&now, NULL);",
        "timespec_get": "(void)timespec_get(&now, TIME_UTC);",
        "uv_gettimeofday": "(void)uv_gettimeofday(&now);",
        "uv_clock_gettime": "(void)uv_clock_gettime(UV_CLOCK_REALTIME, &now);",
        "ftime": "(void)ftime(&now);",
        "ntp_gettime": "(void)ntp_gettime(&now);",
        "adjtimex": "(void)adjtimex(&now);",
        "SYS_clock_gettime": "(void)syscall(SYS_clock_gettime, 0, &now);",
        "__NR_gettimeofday": "(void)syscall(__NR_gettimeofday, &now, NULL);",
        "stx_mtime": "value = (int)found.stx_mtime.tv_sec;",
        "st_ctime": "value = (int)found.st_ctime;",
        "mq_timedreceive": "(void)mq_timedreceive(queue, text, size, NULL, &until);",
        "pthread_mutex_timedlock": "(void)pthread_mutex_timedlock(&lock, &until);",
    }.items()})
CASES.update({f"a call that reads the wall clock: {call}": (
    THING, in_body(code), f"{THING}:5: {call} is banned") for call, code in {
    "time": "now = time (NULL);", "localtime": "at = localtime(&now);",
    "gettimeofday": "gettimeofday(&now, NULL);", "ctime": "text = ctime(&now);"}.items()})
CASES.update({f"a banned call: {call}": (
    THING, in_body(f"(void){call}(0);"), f"{THING}:5: {call} is banned") for call in [
    "strcpy", "strcat", "sprintf", "strtok", "gets", "atoi", "atol", "gmtime", "localtime", "rand",
    "srand", "time", "malloc", "calloc", "realloc", "free", "strdup", "system"]})


def test_cells_that_name_a_test_of_their_store_are_accepted(tmp_path):
    assert faults_of(tmp_path, {"docs/stores.md": stores(
        postgres="`tests/http/test_shop.py:test_it`",
        redis="no store has a part in it: `tests/unit/test_thing.c:things_add_up`")}) == []


def test_a_tag_of_src_means_nothing_else_in_a_test(tmp_path):
    pair = "enum pair { LEFT, RIGHT };\n"
    test = "tests/unit/test_thing.c"
    faults = faults_of(tmp_path, {THING: SOURCE + "\n" + pair, test: TEST + "\n" + pair,
        "tests/unit/test_more.c": TEST.replace("things", "more")
            + "\nenum own { A };\n",
        "tests/unit/test_rest.c": TEST.replace("things", "rest") + "\nenum own { B };\n"})
    assert [fault for fault in faults if "also defined" in fault] == [
        f"{test}:7: 'pair' is also defined at {THING}:8: name what differs"]


@pytest.mark.parametrize("case", CASES)
def test_a_planted_violation_is_reported(tmp_path, case):
    name, text, expected = CASES[case]
    faults = faults_of(tmp_path, {name: text})
    assert any(fault.startswith(expected) for fault in faults), faults


def test_a_header_that_its_own_file_compiles_first_is_left_to_the_compiler(tmp_path):
    needy = {"src/base/thing.h": NEEDY_HEADER}
    assert not any("alone" in fault for fault in faults_of(tmp_path, needy))
    for before in ("#define WORDS 1", "#include <stddef.h>"):
        faults = faults_of(tmp_path, {**needy, THING: f"{before}\n{SOURCE}"})
        assert any(fault.startswith("src/base/thing.h:7: does not compile") for fault in faults)


def test_what_is_near_a_rule_is_not_reported(tmp_path):
    near = """#include "base/thing.h"

/* strcpy(a, b) in words, and https://example.org, are no calls and no comments. */
static const char *const url = "http://x/malloc(1)";

struct hooks {
    void (*free)(const char *text);
};

int thing(int value)
{
    const struct hooks hooks = {0};
    const struct hooks *pointer = &hooks;
    hooks.free(url);
    pointer->free(url);
    return value;
}
"""
    assert faults_of(tmp_path, {THING: near}) == []


ASSERTING = """#include "base/thing.h"

int decide(int value);

int decide(int value)
{
    ASSERT(value > 0);
    thing_check(value);
    return thing(value);
}
"""


def test_assertions_and_calls_of_checkers_count_and_have_to_be_written_down(tmp_path):
    files = {CORE: ASSERTING, "tools/tidy-assertions": "# a comment\ncore 200\n"}
    assert faults_of(tmp_path, files) == []
    files["tools/tidy-assertions"] = "core 190\n"
    assert faults_of(tmp_path, files) == ["tools/tidy-assertions:1: src/core has 200 assertions "
        "for each 100 functions now: write 200 here, so that it stays"]


def test_numbers_that_two_files_define_are_reported(tmp_path):
    listed = "/*\n * Holds:  T1  one thing\n *         T2  and its\n *             sequel.\n */\n"
    cited = "/*\n * One that cites the first rule, which is\n * T1 there.\n */\n"
    assert faults_of(tmp_path, {THING: SOURCE + "\n" + listed, CORE: DECIDE + "\n" + cited}) == []
    assert faults_of(tmp_path, {THING: SOURCE + "\n" + listed, CORE: DECIDE + "\n" + listed}) == [
        f"{CORE}:1: T1, T2, … are also defined in {THING}: use a prefix that no other file has"]


def test_every_reader_of_the_wall_clock_is_in_the_tree():
    for reader in tidy.WALL_CLOCK_READERS:
        path, _, function = reader.partition(":")
        assert f"{function}(" in (ROOT / path).read_text(), reader


def test_an_excused_function_and_a_reasoned_file_are_accepted(tmp_path):
    text = '#include "base/thing.h"\n\n' + long_function(900)
    reason = "/* This file is past 800 lines because it is one table. */\n"
    faults = faults_of(tmp_path, {
        THING: reason + text, "tools/tidy-allow": f"function {THING}:thing\n"})
    assert faults == []

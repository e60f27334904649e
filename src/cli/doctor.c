/* once doctor: checks the store and this machine. */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/backend.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/remote.h"
#include "client/libcurl.h"
#include "lib/inspect.h"
#include "server/server.h"

enum doctor_verdict { VERDICT_PASS, VERDICT_WARN, VERDICT_FAIL };

static const char *const verdict_names[] = {"PASS", "WARN", "FAIL"};

#define SPACE_WARN_BYTES (UINT64_C(1) << 30)   /* a day of a busy store */
#define SPACE_FAIL_BYTES (UINT64_C(128) << 20) /* two segments: it may stop at any moment */
enum { FLUSH_WARN_NS = 50000000 };             /* a disk that makes callers wait */
enum { SKEW_WARN_MS = 5000 }; /* the server's clock counts, but logs seem out of step */
enum { WAITING_LISTS = 4 };   /* in which something may wait for a person */

struct doctor {
    struct cli *cli;
    const char *url;
    const char *shown; /* the URL without passwords */
    const char *dir;   /* NULL: the store is not a journal */
    struct buf bytes;
    struct jsonw json;
    bool failed;
};

static void examine(struct doctor *doctor, enum doctor_verdict verdict, const char *what,
    const char *fix, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Print one line. fix is NULL if there is nothing to do. */
static void examine(struct doctor *doctor, enum doctor_verdict verdict, const char *what,
    const char *fix, const char *format, ...)
{
    static const enum tint tints[] = {TINT_GOOD, TINT_WARN, TINT_BAD};
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    doctor->failed = doctor->failed || verdict == VERDICT_FAIL;
    if (doctor->cli->json) {
        jsonw_open(&doctor->json, NULL, '{');
        jsonw_str(&doctor->json, "check", what);
        jsonw_str(&doctor->json, "verdict", verdict_names[verdict]);
        jsonw_str(&doctor->json, "text", text);
        jsonw_str_some(&doctor->json, "fix", fix);
        jsonw_close(&doctor->json, '}');
        return;
    }
    out_text("%s%s%s  %-12s %s\n", out_tint(tints[verdict]), verdict_names[verdict], out_plain(),
        what, text);
    if (fix != NULL) {
        out_text("      %-12s fix: %s\n", "", fix);
    }
}

/* ---- the directory ----------------------------------------------------------------------- */

static void check_mode(struct doctor *doctor, const char *path, const char *what, mode_t wanted)
{
    struct stat facts;
    char fix[PATH_MAX + 64];
    if (stat(path, &facts) != 0) {
        examine(doctor, VERDICT_FAIL, what,
            errno == ENOENT ? "is this the store's directory? A copy of a store is only a store "
                              "with all of its files: see docs/operate.md before you restore one"
                            : "see that you may read it",
            "'%s': %s", path, strerror(errno));
        return;
    }
    (void)snprintf(fix, sizeof fix, "chmod %o '%s'", (unsigned)wanted, path);
    unsigned mode = (unsigned)facts.st_mode & 07777U;
    if ((mode & 077U) != 0) {
        examine(doctor, VERDICT_FAIL, what, fix, "'%s' has mode %04o: others can get at it", path,
            mode);
    } else if (facts.st_uid != geteuid()) {
        examine(doctor, VERDICT_WARN, what, "run once as that user",
            "'%s' belongs to user %u, not to you", path, (unsigned)facts.st_uid);
    } else {
        examine(doctor, VERDICT_PASS, what, NULL, "'%s' has mode %04o", path, mode);
    }
}

static void check_space(struct doctor *doctor, const char *dir)
{
    struct statvfs facts;
    char size[32];
    if (statvfs(dir, &facts) != 0) {
        examine(doctor, VERDICT_FAIL, "space", "see whether it is mounted", "'%s': %s", dir,
            strerror(errno));
        return;
    }
    uint64_t left = (uint64_t)facts.f_bavail * facts.f_frsize;
    enum doctor_verdict verdict = left < SPACE_FAIL_BYTES   ? VERDICT_FAIL
                                  : left < SPACE_WARN_BYTES ? VERDICT_WARN
                                                            : VERDICT_PASS;
    examine(doctor, verdict, "space",
        verdict == VERDICT_PASS ? NULL : "make room: a full disk stops every grant", "%s free",
        text_put_size(size, left));
}

/* One line for each way of writing, and which is taken. prescribed: by the URL; NULL: none. */
static void check_flush(struct doctor *doctor, const char *dir, const char *prescribed)
{
    struct err err = {0};
    struct inspect_speed speed = {0};
    if (inspect_speed(dir, &speed, &err) != OK) {
        examine(doctor, VERDICT_FAIL, "flush", "see that you may write there", "%s", err.text);
        return;
    }
    const struct inspect_way *fastest = &speed.ways[0];
    for (size_t i = 0; i < INSPECT_WAYS; i++) {
        const struct inspect_way *way = &speed.ways[i];
        char what[32] = "flush";
        if (i > 0) {
            (void)snprintf(what, sizeof what, "flush %s", way->name);
        }
        bool slow = way->p99_ns > FLUSH_WARN_NS && i == 0; /* it is the disk, not the way */
        if (way->impossible != NULL) {
            examine(doctor, VERDICT_PASS, what, NULL, "not possible here: %s", way->impossible);
        } else {
            examine(doctor, slow ? VERDICT_WARN : VERDICT_PASS, what,
                slow ? "put the store on a faster disk" : NULL, "%s: p50 %.3f ms, p99 %.3f ms",
                way->text, (double)way->p50_ns / 1e6, (double)way->p99_ns / 1e6);
        }
        fastest = way->is_fastest ? way : fastest;
    }
    examine(doctor, VERDICT_PASS, "write mode", NULL, "%s%s",
        prescribed != NULL ? prescribed : fastest->text,
        prescribed != NULL ? ", as the store's URL says" : ", chosen at each start by such a test");
    examine(doctor, VERDICT_PASS, "turns", NULL, "%s",
        fastest->is_quick
            ? "flushes are quick: loops decide and flush by themselves"
            : "flushes are slow: the engine's own thread decides, so that no loop waits "
              "for the disk");
}

/* ---- the store --------------------------------------------------------------------------- */

static void check_clock(struct doctor *doctor, const struct inspect_facts *facts)
{
    struct clock clock;
    clock_system(&clock);
    struct clock_reading now = clock_read(&clock);
    char time[TEXT_TIME_BYTES];
    char off[32];
    text_put_time(time, now.wall_ms);
    int64_t behind_ms = facts->time_ms - now.wall_ms;
    bool same_boot = facts->boot_id != 0 && facts->boot_id == clock.boot_id;
    int64_t ahead_ms =
        same_boot ? now.wall_ms - facts->time_ms - (now.boot_ms - facts->boot_ms) : 0;
    if (behind_ms > LIMIT_CLOCK_JUMP_MS_MAX) {
        examine(doctor, VERDICT_WARN, "clock", "set the clock; leases and windows wait for it",
            "%s is %s behind the store's last entry", time, text_put_duration(off, behind_ms));
    } else if (ahead_ms > LIMIT_CLOCK_JUMP_MS_MAX - facts->jump_ms) {
        examine(doctor, VERDICT_WARN, "clock",
            "check the clock; until then expiry follows the time since boot",
            "%s is %s ahead of the time since boot: held", time, text_put_duration(off, ahead_ms));
    } else if (now.wall_ms < INT64_C(1577836800000)) {
        examine(doctor, VERDICT_FAIL, "clock", "set the clock", "%s is before 2020", time);
    } else {
        examine(doctor, VERDICT_PASS, "clock", NULL, "%s, not held", time);
    }
}

static void check_size(struct doctor *doctor, const struct inspect_facts *facts)
{
    char size[32];
    char index[32];
    examine(doctor, VERDICT_PASS, "size", NULL, "%s in %s, of which %llu squeezed; index %s",
        text_put_size(size, facts->bytes), COUNTED(facts->segments, "segment", "segments"),
        (unsigned long long)facts->segments_squeezed, text_put_size(index, facts->index_bytes));
    if (facts->save_failed) {
        examine(doctor, VERDICT_WARN, "index", "make room and see that you may write there",
            "the last attempt to save the index failed; starting takes longer");
    }
}

static void check_keys(struct doctor *doctor, const struct inspect_facts *facts)
{
    char age[32];
    char entry[32] = "";
    if (!facts->shared) {
        (void)snprintf(entry, sizeof entry, "; entry %llu", (unsigned long long)facts->entries);
    }
    examine(doctor, VERDICT_PASS, "keys", NULL, "%llu live, %llu in progress%s",
        (unsigned long long)facts->operations, (unsigned long long)facts->in_progress, entry);
    if (facts->unknown == 0) {
        examine(doctor, VERDICT_PASS, "unknown", NULL, "none");
        return;
    }
    int64_t now_ms = facts->shared ? facts->time_ms : cli_now_ms();
    int64_t seconds = (now_ms - facts->unknown_since_ms) / 1000;
    examine(doctor, VERDICT_WARN, "unknown",
        "once ls --status unknown, then once why and once resolve", "%s, the oldest for %s",
        COUNTED(facts->unknown, "unknown operation", "unknown operations"),
        text_put_duration(age, seconds > 0 ? seconds * 1000 : 0)); /* a clock may step back */
}

/* Leases and windows use the server's clock, so this machine's is only information. */
static void check_skew(struct doctor *doctor, const struct inspect_facts *facts)
{
    char time[TEXT_TIME_BYTES];
    char off[32];
    int64_t skew_ms = cli_now_ms() - facts->time_ms;
    int64_t size_ms = skew_ms < 0 ? -skew_ms : skew_ms;
    text_put_time(time, facts->time_ms);
    bool is_off = size_ms > SKEW_WARN_MS;
    examine(doctor, is_off ? VERDICT_WARN : VERDICT_PASS, "clock",
        is_off ? "synchronise both clocks; decisions use the store's clock" : NULL,
        "the store's is %s; this machine's is %s %s", time, text_put_duration(off, size_ms),
        skew_ms < 0 ? "behind" : "ahead");
}

static void check_shared(struct doctor *doctor, const struct inspect_facts *facts)
{
    check_skew(doctor, facts);
    for (size_t i = 0; i < INSPECT_CAUTIONS_MAX && facts->cautions[i][0] != '\0'; i++) {
        examine(doctor, VERDICT_WARN, "durability",
            "change the server's settings, or see what the store promises with these", "%s",
            facts->cautions[i]);
    }
    examine(doctor, VERDICT_PASS, "processes", NULL, "%llu write to it now; %s",
        (unsigned long long)facts->processes,
        COUNTED(facts->chains, "chain of evidence", "chains of evidence"));
}

/* Checks the contents of the store. *ret_way: how its URL says that it writes. */
static void check_store(struct doctor *doctor, const char **ret_way)
{
    struct err err = {0};
    struct inspect_facts facts = {0};
    if (inspect_store(doctor->url, &facts, &err) != OK) {
        examine(doctor, VERDICT_FAIL, "store",
            err.hint[0] != '\0'       ? err.hint
            : err.status == E_CORRUPT ? "once verify says where the damage is"
                                      : "see that it is there and that you may read it",
            "%s", err.text);
        return;
    }
    examine(doctor, VERDICT_PASS, "store", NULL, "%s opens", doctor->shown);
    if (facts.shared) {
        check_shared(doctor, &facts);
        check_keys(doctor, &facts);
        return;
    }
    *ret_way = facts.way;
    check_clock(doctor, &facts);
    check_size(doctor, &facts);
    check_keys(doctor, &facts);
    examine(doctor, VERDICT_PASS, "public key", NULL, "%s", facts.public_key);
}

/* Listening is not enough: the engine answers readyz. 0: no answer. */
static long ask_ready(struct doctor *doctor, const char *url)
{
    struct remote *remote = NULL;
    struct remote_options options = {.url = url};
    struct remote_answer answer = {0};
    if (remote_new(&options, &remote) != CLI_OK) {
        return 0;
    }
    int code = remote_ask(remote, "/readyz", SLICE_EMPTY, &doctor->cli->arena, &answer);
    remote_free(remote);
    return code == CLI_OK ? answer.status : 0;
}

static void check_server(struct doctor *doctor)
{
    struct backend_server server;
    backend_own_server(doctor->cli, &server);
    if (server.url == NULL) {
        examine(doctor, VERDICT_PASS, "server", NULL, "no server is running on this store");
        return;
    }
    char who[64] = "a server";
    char fix[PATH_MAX + 64];
    if (server.pid != 0) {
        (void)snprintf(who, sizeof who, "a server, pid %lld,", (long long)server.pid);
    }
    (void)snprintf(fix, sizeof fix, "curl --unix-socket '%s' 'http://localhost/readyz?verbose'",
        server.url + 5);
    long status = ask_ready(doctor, server.url);
    if (status == 200) {
        examine(doctor, VERDICT_PASS, "server", NULL, "%s holds the store and is ready; %s", who,
            server.url);
    } else if (status == 0) {
        examine(doctor, VERDICT_WARN, "server", "see its log, and whether the disk answers",
            "%s holds the store and does not answer; %s", who, server.url);
    } else {
        examine(doctor, VERDICT_WARN, "server", fix,
            "%s holds the store and is not ready: it answers %ld; %s", who, status, server.url);
    }
}

/* There is no store yet, and its directory is absent or empty. */
static void check_missing(struct doctor *doctor, bool is_empty)
{
    char parent[PATH_MAX];
    (void)snprintf(parent, sizeof parent, "%s", doctor->dir);
    const char *place = is_empty ? doctor->dir : dirname(parent);
    examine(doctor, VERDICT_WARN, "store", "the first once run makes it",
        is_empty ? "'%s' is empty" : "there is no '%s' yet", doctor->dir);
    check_space(doctor, place);
    check_flush(doctor, place, NULL);
}

static bool is_empty(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;
    while (dir != NULL && count <= 2 && readdir(dir) != NULL) {
        count++; /* "." and ".." are always there */
    }
    if (dir != NULL) {
        (void)closedir(dir); /* only read */
    }
    return dir != NULL && count <= 2;
}

/* What waits for a person in one list of a server. False: the list cannot be read. */
static bool check_waiting(
    struct doctor *doctor, struct remote *remote, size_t which, int *ret_http_status)
{
    static const struct {
        const char *target;
        const char *check;
        const char *member;
        const char *one;
        const char *many;
        const char *hint;
    } lists[WAITING_LISTS] = {
        {"/v1/operations?status=unknown&limit=1000", "unknown", "operations", "unknown operation",
            "unknown operations", "once ls --status unknown, then once why and once resolve"},
        {"/v1/commands?status=blocked&limit=1000", "commands", "commands", "blocked command",
            "blocked commands", "once ls commands --status blocked, then once show"},
        {"/v1/effects?uncertain=true&limit=1000", "effects", "effects", "uncertain effect",
            "uncertain effects", "once ls effects --status uncertain, then once show"},
        {"/v1/deliveries?status=unknown&limit=1000", "deliveries", "deliveries", "unknown delivery",
            "unknown deliveries", "once ls deliveries --status unknown, then once show"},
    };
    struct remote_answer answer = {0};
    bool is_answered = remote_ask(remote, lists[which].target, SLICE_EMPTY, &doctor->cli->arena,
                           &answer) == CLI_OK;
    *ret_http_status = is_answered ? answer.status : 0;
    const struct json_value *found =
        is_answered ? json_find(answer.root, slice_str(lists[which].member)) : NULL;
    if (!is_answered || answer.status != 200 || !json_is(found, JSON_ARRAY)) {
        return false;
    }
    bool has_more = json_is(json_find(answer.root, SLICE_LIT("next")), JSON_STRING);
    examine(doctor, found->count == 0 ? VERDICT_PASS : VERDICT_WARN, lists[which].check,
        found->count == 0 ? NULL : lists[which].hint, "%s%s",
        COUNTED(found->count, lists[which].one, lists[which].many), has_more ? " or more" : "");
    return true;
}

/* A server elsewhere: whether it is ready, and what waits for an operator there. */
static void check_remote(struct doctor *doctor, struct remote *remote)
{
    struct remote_answer answer = {0};
    const char *url = remote_url(remote);
    int status = 0;
    if (remote_ask(remote, "/readyz", SLICE_EMPTY, &doctor->cli->arena, &answer) != CLI_OK) {
        examine(doctor, VERDICT_FAIL, "server", "check that it is running and reachable",
            "%s does not answer", url);
        return;
    }
    bool is_ready = answer.status == 200;
    examine(doctor, is_ready ? VERDICT_PASS : VERDICT_FAIL, "server",
        is_ready ? NULL : "once doctor on its own machine says why", "%s %s: it answers %d", url,
        is_ready ? "is ready" : "is not ready", answer.status);
    if (check_waiting(doctor, remote, 0, &status)) {
        examine(doctor, VERDICT_PASS, "token", NULL, "operations can be read");
        for (size_t i = 1; i < WAITING_LISTS; i++) {
            (void)check_waiting(doctor, remote, i, &status); /* an older server has only some */
        }
    } else if (status != 0) {
        examine(doctor, VERDICT_WARN, "token",
            "ONCE_TOKEN holds the token of the caller; reading needs operate or audit",
            "operations cannot be read: it answers %d", status);
    }
}

/* Only users of queues need one of them. */
static void check_brokers(struct doctor *doctor)
{
    struct err err = {.status = OK};
    const char *name = NULL;
    for (size_t i = 0; (name = server_broker(i, &err)) != NULL; i++) {
        if (err.status == OK) {
            examine(doctor, VERDICT_PASS, "broker", NULL, "%s: queues can be read", name);
        } else {
            examine(doctor, VERDICT_WARN, "broker", err.hint, "%s", err.text);
        }
    }
}

static void examine_library(
    struct doctor *doctor, enum status status, const struct err *err, const char *use)
{
    if (status == OK) {
        examine(doctor, VERDICT_PASS, "library", NULL, "%s", use);
    } else {
        examine(doctor, VERDICT_WARN, "library", err->hint, "%s", err->text);
    }
}

/* Loaded on demand: only users of such stores and of once send need them. */
static void check_libraries(struct doctor *doctor)
{
    struct err err = {.status = OK};
    examine_library(doctor, server_store_check("postgres://", &err), &err,
        "libpq: stores in PostgreSQL can be opened");
    err_clear(&err);
    examine_library(doctor, libcurl_load(&err), &err,
        "libcurl: servers can be called, as once send and --server do");
}

static void check_all(struct doctor *doctor)
{
    struct stat facts;
    char path[PATH_MAX];
    const char *way = NULL;
    examine(doctor, VERDICT_PASS, "version", NULL, "once %s", once_version());
    check_brokers(doctor);
    check_libraries(doctor);
    if (doctor->dir == NULL && strncmp(doctor->url, "mem:", 4) == 0) {
        examine(doctor, VERDICT_WARN, "store", "name a store with --store URL",
            "'%s' is in memory: there is nothing to check", doctor->url);
        return;
    }
    if (doctor->dir == NULL) {
        check_store(doctor, &way);
        return;
    }
    unsigned owner = 0;
    bool is_there = stat(doctor->dir, &facts) == 0;
    if ((!is_there && errno == ENOENT) || is_empty(doctor->dir)) {
        check_missing(doctor, is_there);
        return;
    }
    if (cli_store_denied(doctor->cli, &owner)) {
        examine(doctor, VERDICT_FAIL, "directory",
            "run once doctor as that user; nothing is wrong with the store itself",
            "'%s' belongs to user %u, and you may not open it", doctor->dir, owner);
        return;
    }
    check_server(doctor);
    check_store(doctor, &way);
    check_mode(doctor, doctor->dir, "directory", 0700);
    (void)snprintf(path, sizeof path, "%s/identity", doctor->dir);
    check_mode(doctor, path, "identity", 0600);
    check_space(doctor, doctor->dir);
    check_flush(doctor, doctor->dir, way);
}

int cmd_doctor(struct cli *cli)
{
    struct remote *remote = NULL;
    int named = backend_named_server(cli, &remote);
    if (named != CLI_OK) {
        return named;
    }
    struct doctor doctor = {.cli = cli, .url = cli_text(cli, "store")};
    doctor.dir = cli_store_dir(cli, doctor.url);
    doctor.shown = cli_store_shown(cli);
    buf_init(&doctor.bytes, &mem_libc, 1 << 20);
    doctor.json.out = &doctor.bytes;
    jsonw_open(&doctor.json, NULL, '[');
    if (remote != NULL) {
        examine(&doctor, VERDICT_PASS, "version", NULL, "once %s", once_version());
        check_remote(&doctor, remote);
        remote_free(remote);
    } else {
        check_all(&doctor);
    }
    jsonw_close(&doctor.json, ']');
    int code = cli->json ? jsonw_print(&doctor.json) : out_finish();
    buf_release(&doctor.bytes);
    return code != CLI_OK ? code : doctor.failed ? CLI_DAMAGE : CLI_OK;
}

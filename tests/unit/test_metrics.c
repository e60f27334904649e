/* Figures: that they add up, that labels are bounded, and that a tenant sees its own alone. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "check_c.h"
#include "core/decide.h"
#include "door/metrics.h"
#include "prng.h"

static void count(struct metrics *metrics, unsigned loop, const char *tenant, const char *scope,
    const char *decision)
{
    struct metrics_decision said = {.tenant = slice_str(tenant),
        .scope = slice_str(scope),
        .decision = decision,
        .first_to_seal_ms = strcmp(decision, "sealed") == 0 ? 200 : -1,
        .is_conflict = strcmp(decision, "conflict_rejected") == 0,
        .diff_bytes = 100};
    metrics_decision(metrics, loop, &said);
}

/* The page as a terminated text. */
static const char *page(struct metrics *metrics, const char *tenant, struct buf *out)
{
    struct metrics_view view = {.tenant = slice_str(tenant),
        .engine = {.calls = 10,
            .flush_nanos = 1500000,
            .gathers = 7,
            .queued = 4,
            .quarantined = 2,
            .batch_sizes = {1, 2, [15] = 3},
            .flush_micros = {5},
            .entries = 77,
            .now_ms = 1000000,
            .checkpoint_ms = 970000,
            .counts = {.records = 1234567890123,
                .by_status = {[RECORD_IN_PROGRESS] = 2, [RECORD_UNKNOWN] = 1}},
            .kinds =
                {[RECORD_EFFECT] =
                        {.by_status =
                                {[RECORD_PENDING] = 8, [RECORD_UNKNOWN] = 3, [RECORD_DEAD] = 5},
                            .unknown_since_ms = 940000},
                    [RECORD_DELIVERY] = {.by_status = {[RECORD_WAITING] = 6}}}},
        .http = {.open = 9,
            .loops_serving = 2,
            .moved = 17,
            .refused = {1, 2, 3, 4, 5, 6},
            .certificate_expiry = 1800000000},
        .log_dropped = 3};
    buf_clear(out);
    metrics_put(metrics, &view, out);
    buf_char(out, '\0');
    assert_int_equal(buf_status(out), OK);
    return out->data;
}

static void assert_has(const char *text, const char *line)
{
    char want[512];
    (void)snprintf(want, sizeof want, "\n%s\n", line);
    if (strstr(text, want) == NULL) {
        fail_msg("no line %s in\n%s", line, text);
    }
}

static size_t lines_with(const char *text, const char *part)
{
    size_t lines = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at = strchr(at, '\n')) {
        lines++;
    }
    return lines;
}

/* As many as the context says, each with calls by its number. */
static size_t tell_some(void *context, struct upstream_figures *ret_upstreams, size_t max)
{
    static char names[METRICS_UPSTREAMS_MAX][32];
    size_t count = *(const size_t *)context;
    assert_true(count <= max && max == METRICS_UPSTREAMS_MAX);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "http://up%zu", i);
        ret_upstreams[i] = (struct upstream_figures){.name = i + 1 == max ? NULL : names[i],
            .stats = {.calls = i + 1,
                .failed = {10, 20, 30},
                .connects = 2,
                .reused = 3,
                .open = 4,
                .idle = 5,
                .waiting = 6,
                .down = 7}};
    }
    return count;
}

static void each_upstream_has_its_figures(void **state)
{
    (void)state;
    struct buf out;
    size_t count = 2;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    assert_null(strstr(page(metrics, "", &out), "once_upstream"));
    metrics_upstreams(metrics, tell_some, &count);
    const char *text = page(metrics, "", &out);
    assert_has(text, "once_upstream_calls_total{upstream=\"http://up0\"} 1");
    assert_has(text, "once_upstream_calls_total{upstream=\"http://up1\"} 2");
    assert_has(text, "once_upstream_failed_total{upstream=\"http://up0\",point=\"not_sent\"} 10");
    assert_has(text, "once_upstream_failed_total{upstream=\"http://up0\",point=\"sent\"} 20");
    assert_has(text, "once_upstream_failed_total{upstream=\"http://up1\",point=\"head\"} 30");
    assert_has(text, "once_upstream_connects_total{upstream=\"http://up1\"} 2");
    assert_has(text, "once_upstream_reused_total{upstream=\"http://up1\"} 3");
    assert_has(text, "once_upstream_connections{upstream=\"http://up1\"} 4");
    assert_has(text, "once_upstream_idle{upstream=\"http://up1\"} 5");
    assert_has(text, "once_upstream_waiting{upstream=\"http://up1\"} 6");
    assert_has(text, "once_upstream_addresses_down{upstream=\"http://up1\"} 7");
    count = METRICS_UPSTREAMS_MAX;
    text = page(metrics, "", &out);
    assert_has(text, "once_upstream_calls_total{upstream=\"_other\"} 64");
    assert_int_equal(lines_with(text, "once_upstream_calls_total{"), METRICS_UPSTREAMS_MAX);
    buf_release(&out);
    metrics_free(metrics);
}

/* As many as the context says. */
static size_t tell_targets(void *context, struct metrics_target *ret_targets, size_t max)
{
    static char names[METRICS_TARGETS_MAX][32];
    size_t count = *(const size_t *)context;
    assert_true(count <= max && max == METRICS_TARGETS_MAX);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "to%zu", i);
        ret_targets[i] = (struct metrics_target){.kind = i + 1 == max ? NULL : "effects",
            .name = i + 1 == max ? NULL : names[i],
            .breakers = {7, 8, 9},
            .opened = i + 1,
            .in_flight = 2,
            .queued = 3,
            .attempts = {10, 20, 30, 40, 50},
            .questions = 4,
            .oldest_due_ms = 1,
            .delays = {5, [8] = 6, [METRICS_DELAYS - 1] = 7},
            .delay_ms_sum = 12500};
    }
    return count;
}

static void a_delay_is_in_the_bucket_of_the_next_bound(void **state)
{
    (void)state;
    assert_int_equal(metrics_delay(-1), 0); /* a clock that stepped back */
    assert_int_equal(metrics_delay(5), 0);
    assert_int_equal(metrics_delay(6), 1);
    assert_int_equal(metrics_delay(3600000), METRICS_DELAYS - 2);
    assert_int_equal(metrics_delay(INT64_MAX), METRICS_DELAYS - 1);
}

#define TARGET "{kind=\"effects\",target=\"to1\""
static void each_target_has_its_figures(void **state)
{
    (void)state;
    static const char *const lines[] = {"once_dispatch_breaker" TARGET ",state=\"closed\"} 7",
        "once_dispatch_breaker" TARGET ",state=\"open\"} 8",
        "once_dispatch_breaker" TARGET ",state=\"half_open\"} 9",
        "once_dispatch_breaker_opened_total" TARGET "} 2", "once_dispatch_in_flight" TARGET "} 2",
        "once_dispatch_queued" TARGET "} 3",
        "once_dispatch_attempts_total" TARGET ",verdict=\"unknown\"} 10",
        "once_dispatch_attempts_total" TARGET ",verdict=\"executed\"} 20",
        "once_dispatch_attempts_total" TARGET ",verdict=\"failed\"} 30",
        "once_dispatch_attempts_total" TARGET ",verdict=\"released\"} 40",
        "once_dispatch_attempts_total" TARGET ",verdict=\"later\"} 50",
        "once_dispatch_questions_total" TARGET "} 4",
        "once_dispatch_delay_seconds_bucket" TARGET ",le=\"0.005\"} 5",
        "once_dispatch_delay_seconds_bucket" TARGET ",le=\"1\"} 5",
        "once_dispatch_delay_seconds_bucket" TARGET ",le=\"2.5\"} 11",
        "once_dispatch_delay_seconds_bucket" TARGET ",le=\"+Inf\"} 18",
        "once_dispatch_delay_seconds_sum" TARGET "} 12.5",
        "once_dispatch_delay_seconds_count" TARGET "} 18"};
    struct buf out;
    size_t count = 0;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    assert_null(strstr(page(metrics, "", &out), "once_dispatch"));
    metrics_targets(metrics, tell_targets, &count);
    assert_null(strstr(page(metrics, "", &out), "once_dispatch"));
    count = 2;
    const char *text = page(metrics, "", &out);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_has(text, lines[i]);
    }
    count = METRICS_TARGETS_MAX;
    text = page(metrics, "", &out);
    assert_has(text, "once_dispatch_breaker_opened_total{kind=\"_other\",target=\"_other\"} 256");
    assert_int_equal(lines_with(text, "once_dispatch_queued{"), METRICS_TARGETS_MAX);
    buf_release(&out);
    metrics_free(metrics);
}
#undef TARGET

static void calls_are_counted_by_scope_and_tenant(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "once_dispatch_scope_attempts_total{scope=\"mail\",tenant=\"a\",verdict=\"executed\"} 2",
        "once_dispatch_scope_delay_seconds_total{scope=\"mail\",tenant=\"a\"} 1.5",
        "once_dispatch_scope_waited_total{scope=\"mail\",tenant=\"a\"} 1",
        "once_dispatch_scope_call_seconds_total{scope=\"mail\",tenant=\"a\"} 0.5"};
    struct buf out;
    char name[16];
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 2);
    struct metrics_call call = {.tenant = SLICE_LIT("a"),
        .scope = SLICE_LIT("mail"),
        .verdict = 1,
        .delay_ms = 1500,
        .call_ms = 250};
    metrics_call(metrics, 0, &call);
    call.delay_ms = -1; /* its caller waited, so that it did not */
    metrics_call(metrics, 1, &call);
    const char *text = page(metrics, "", &out);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_has(text, lines[i]);
    }
    assert_has(page(metrics, "a", &out), lines[0]);
    assert_null(strstr(page(metrics, "b", &out), "scope=\"mail\"")); /* P9 */
    for (int i = 0; i < METRICS_SERIES_MAX + METRICS_SCOPES_OWN + 10; i++) {
        (void)snprintf(name, sizeof name, "type%d", i);
        call.scope = slice_str(name);
        metrics_call(metrics, 0, &call);
    }
    text = page(metrics, "", &out);
    assert_non_null(
        strstr(text, "once_dispatch_scope_waited_total{scope=\"_other\",tenant=\"a\"}"));
    assert_true(lines_with(text, "once_dispatch_scope_waited_total{") <=
                METRICS_SERIES_MAX + METRICS_SCOPES_OWN + 1);
    buf_release(&out);
    metrics_free(metrics);
}

static void work_is_shown_by_kind_and_status(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    const char *text = page(metrics, "", &out);
    assert_has(text, "once_work{kind=\"effects\",status=\"pending\"} 8");
    assert_has(text, "once_work{kind=\"effects\",status=\"unknown\"} 3");
    assert_has(text, "once_work{kind=\"effects\",status=\"dead\"} 5");
    assert_has(text, "once_work{kind=\"deliveries\",status=\"waiting\"} 6");
    assert_has(text, "once_work{kind=\"commands\",status=\"dead\"} 0");
    assert_has(text, "once_work_unknown_oldest_seconds{kind=\"effects\"} 60");
    assert_has(text, "once_work_unknown_oldest_seconds{kind=\"deliveries\"} 0");
    assert_int_equal(lines_with(text, "once_work{"), 18);
    buf_release(&out);
    metrics_free(metrics);
}

static void every_decision_is_counted_under_its_own_name(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    for (int kind = 0; strcmp(decision_name((enum decision_kind)kind), "unnamed") != 0; kind++) {
        count(metrics, 0, "acme", "pay", decision_name((enum decision_kind)kind));
    }
    const char *text = page(metrics, "", &out);
    for (int kind = 0; strcmp(decision_name((enum decision_kind)kind), "unnamed") != 0; kind++) {
        char line[128];
        (void)snprintf(line, sizeof line,
            "once_decisions_total{decision=\"%s\",scope=\"pay\",tenant=\"acme\"} 1",
            decision_name((enum decision_kind)kind));
        assert_has(text, line);
    }
    buf_release(&out);
    metrics_free(metrics);
}

static void what_loops_counted_is_added_up(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 3);
    for (unsigned loop = 0; loop < 3; loop++) {
        count(metrics, loop, "acme", "pay", "first_seen");
        count(metrics, loop, "acme", "pay", "sealed");
        count(metrics, loop, "acme", "mail", "conflict_rejected");
        count(metrics, loop, "acme", "pay", "something new");
        metrics_request(metrics, loop, "/v1/fences", 201, 300000);
        metrics_request(metrics, loop, "/v1/fences", 299, 70000000000);
    }
    count(metrics, 1, "acme", "pay", "duplicate_refused");
    const char *text = page(metrics, "", &out);
    assert_has(
        text, "once_decisions_total{decision=\"first_seen\",scope=\"pay\",tenant=\"acme\"} 3");
    assert_has(text, "once_decisions_total{decision=\"other\",scope=\"pay\",tenant=\"acme\"} 3");
    assert_has(text, "once_conflicts_total{tenant=\"acme\"} 3");
    assert_has(text, "once_duplicates_refused_total{tenant=\"acme\"} 1");
    assert_has(text, "once_first_seen_to_seal_seconds_bucket{tenant=\"acme\",le=\"0.1\"} 0");
    assert_has(text, "once_first_seen_to_seal_seconds_bucket{tenant=\"acme\",le=\"0.25\"} 3");
    assert_has(text, "once_first_seen_to_seal_seconds_bucket{tenant=\"acme\",le=\"+Inf\"} 3");
    assert_has(text, "once_first_seen_to_seal_seconds_sum{tenant=\"acme\"} 0.6");
    assert_has(text, "once_first_seen_to_seal_seconds_count{tenant=\"acme\"} 3");
    assert_has(text, "once_conflict_diff_bytes_bucket{tenant=\"acme\",le=\"64\"} 0");
    assert_has(text, "once_conflict_diff_bytes_bucket{tenant=\"acme\",le=\"128\"} 3");
    assert_has(text, "once_conflict_diff_bytes_sum{tenant=\"acme\"} 300");
    assert_has(text, "once_http_requests_total{route=\"/v1/fences\",code=\"201\"} 3");
    assert_has(text, "once_http_requests_total{route=\"/v1/fences\",code=\"other\"} 3");
    assert_has(text, "once_http_request_seconds_bucket{route=\"/v1/fences\",le=\"0.0005\"} 3");
    assert_has(text, "once_http_request_seconds_bucket{route=\"/v1/fences\",le=\"60\"} 3");
    assert_has(text, "once_http_request_seconds_count{route=\"/v1/fences\"} 6");
    buf_release(&out);
    metrics_free(metrics);
}

static void the_engines_figures_are_shown_in_their_units(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    const char *text = page(metrics, "", &out);
    assert_has(text, "once_commit_batch_size_bucket{le=\"1\"} 1");
    assert_has(text, "once_commit_batch_size_bucket{le=\"16384\"} 3");
    assert_has(text, "once_commit_batch_size_bucket{le=\"+Inf\"} 6");
    assert_has(text, "once_commit_batch_size_sum 10");
    assert_has(text, "once_flush_seconds_bucket{le=\"6.4e-05\"} 5");
    assert_has(text, "once_batch_waits_total 7");
    assert_has(text, "once_flush_seconds_sum 0.0015");
    assert_has(text, "once_flush_seconds_count 5");
    assert_has(text, "once_operations{status=\"in_progress\"} 2");
    assert_has(text, "once_operations{status=\"unknown\"} 1");
    assert_has(text, "once_live_keys 1234567890123");
    assert_has(text, "once_unknown_oldest_seconds 0");
    assert_has(text, "once_queue_depth 4");
    assert_has(text, "once_quarantined_tenants 2");
    assert_has(text, "once_evidence_seq 77");
    assert_has(text, "once_checkpoint_age_seconds 30");
    assert_has(text, "once_certificate_expiry_timestamp_seconds 1800000000");
    assert_has(text, "once_config_last_reload_successful 1");
    assert_null(strstr(text, "once_store")); /* it was not said where */
    metrics_store(metrics, "/");
    metrics_reloaded(metrics, false);
    text = page(metrics, "", &out);
    assert_has(text, "once_config_last_reload_successful 0");
    assert_has(text, "once_store_segments 0");
    assert_null(strstr(text, "\nonce_store_disk_free_bytes 0\n"));
    assert_has(text, "once_http_connections 9");
    assert_has(text, "once_http_loops_serving 2");
    assert_has(text, "once_http_moved_total 17");
    assert_has(text, "once_http_refused_total{reason=\"head_too_large\"} 4");
    assert_has(text, "once_log_dropped_total 3");
    assert_has(text, "once_clock_held 0");
    assert_has(text, "once_build_info{version=\"" ONCE_VERSION "\"} 1");
    assert_non_null(strstr(text, "\nprocess_resident_memory_bytes "));
    assert_null(strstr(text, "\nprocess_resident_memory_bytes 0\n"));
    assert_null(strstr(text, "\nprocess_open_fds 0\n"));
    buf_release(&out);
    metrics_free(metrics);
}

static void labels_are_escaped(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    count(metrics, 0, "a\"b\\c", "", "first_seen");
    assert_has(page(metrics, "", &out),
        "once_decisions_total{decision=\"first_seen\",scope=\"\",tenant=\"a\\\"b\\\\c\"} 1");
    buf_release(&out);
    metrics_free(metrics);
}

static void what_is_expected_is_shown_at_zero(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    metrics_expect(metrics, SLICE_LIT("acme"), SLICE_EMPTY);
    metrics_expect(metrics, SLICE_LIT("corp"), SLICE_LIT("POST /pay"));
    const char *text = page(metrics, "", &out);
    assert_has(text, "once_conflicts_total{tenant=\"acme\"} 0");
    assert_has(text, "once_unknown_total{tenant=\"corp\"} 0");
    assert_has(text, "once_duplicates_refused_total{tenant=\"corp\"} 0");
    assert_has(text,
        "once_decisions_total{decision=\"held_unknown\",scope=\"POST /pay\",tenant=\"corp\"} 0");
    assert_null(strstr(text, "_other"));
    assert_int_equal(lines_with(page(metrics, "acme", &out), "corp"), 0); /* P9 */
    buf_release(&out);
    metrics_free(metrics);
}

/* Records are older than the rule for names. Spelled in any way, such a name could be that of a
 * tenant which may not see its figures. */
static void what_is_no_name_is_one_of_the_others(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    count(metrics, 0, "acme", "pay\x01", "first_seen");
    count(metrics, 0, "acme", "pay\xff", "first_seen");
    count(metrics, 0, "ac\nme", "pay", "sealed");
    const char *text = page(metrics, "", &out);
    assert_int_equal(
        lines_with(text, "decision=\"first_seen\",scope=\"_other\",tenant=\"acme\""), 1);
    assert_has(
        text, "once_decisions_total{decision=\"first_seen\",scope=\"_other\",tenant=\"acme\"} 2");
    assert_has(
        text, "once_decisions_total{decision=\"sealed\",scope=\"_other\",tenant=\"_other\"} 1");
    assert_int_equal(lines_with(page(metrics, "ac\nme", &out), "tenant="), 0);
    buf_release(&out);
    metrics_free(metrics);
}

static void a_tenant_sees_its_own_series_and_nothing_of_others(void **state)
{
    (void)state;
    struct buf out, quiet;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    buf_init(&quiet, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 2);
    size_t upstreams = 2;
    metrics_upstreams(metrics, tell_some, &upstreams);
    metrics_targets(metrics, tell_targets, &upstreams);
    count(metrics, 0, "acme", "pay", "first_seen");
    (void)page(metrics, "acme", &quiet);
    for (int i = 0; i < 50; i++) {
        count(metrics, 1, "acme2", "pay", "conflict_rejected");
        count(metrics, 1, "acm", "pay", "sealed");
        count(metrics, 0, "other", "secret", "duplicate_refused");
        metrics_request(metrics, 1, "/v1/fences", 200, 100);
    }
    /* The others' traffic changes not one byte of it. */
    assert_string_equal(page(metrics, "acme", &out), quiet.data);
    assert_has(
        out.data, "once_decisions_total{decision=\"first_seen\",scope=\"pay\",tenant=\"acme\"} 1");
    static const char *const hidden[] = {"once_http", "once_live_keys", "once_operations",
        "once_queue_depth", "once_parked", "once_commit", "once_flush", "once_evidence_seq",
        "once_unknown_oldest", "once_quarantined", "once_log", "once_flood", "process_resident",
        "process_open_fds", "process_max_fds", "process_cpu", "once_upstream", "once_store",
        "once_checkpoint", "once_config", "once_certificate", "once_dispatch", "once_work"};
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        assert_null(strstr(out.data, hidden[i]));
    }
    assert_non_null(strstr(page(metrics, "", &out), "secret"));
    buf_release(&out);
    buf_release(&quiet);
    metrics_free(metrics);
}

static void scopes_past_the_cap_share_one_series_of_their_tenant(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    count(metrics, 0, "late", "early scope", "first_seen");
    for (int i = 0; i < 3 * METRICS_SERIES_MAX; i++) {
        char scope[32];
        (void)snprintf(scope, sizeof scope, "s%d", i);
        count(metrics, 0, "wild", scope, "first_seen");
    }
    count(metrics, 0, "late", "late scope", "first_seen");
    count(metrics, 0, "late", "early scope", "first_seen");
    const char *text = page(metrics, "", &out);
    int wild = METRICS_SERIES_MAX + METRICS_SCOPES_OWN;
    assert_int_equal(
        lines_with(text, "once_decisions_total{decision=\"first_seen\""), wild + 1 + 2);
    char line[128];
    (void)snprintf(line, sizeof line,
        "once_decisions_total{decision=\"first_seen\",scope=\"_other\",tenant=\"wild\"} %d",
        3 * METRICS_SERIES_MAX - wild);
    assert_has(text, line);
    assert_has(text,
        "once_decisions_total{decision=\"first_seen\",scope=\"early scope\",tenant=\"late\"} 2");
    buf_release(&out);
    metrics_free(metrics);
}

static void a_tenant_keeps_room_for_scopes_whatever_others_use(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    char scope[32];
    for (int i = 0; i < 3 * METRICS_SERIES_MAX; i++) {
        (void)snprintf(scope, sizeof scope, "s%d", i);
        count(metrics, 0, "wild", scope, "first_seen");
    }
    for (int i = 0; i < METRICS_SCOPES_OWN + 1; i++) {
        (void)snprintf(scope, sizeof scope, "mine %d", i);
        count(metrics, 0, "late", scope, "first_seen");
    }
    const char *text = page(metrics, "late", &out);
    assert_int_equal(lines_with(text, "decision=\"first_seen\",scope=\"mine "), METRICS_SCOPES_OWN);
    assert_has(
        text, "once_decisions_total{decision=\"first_seen\",scope=\"_other\",tenant=\"late\"} 1");
    buf_release(&out);
    metrics_free(metrics);
}

static void tenants_past_the_cap_share_what_none_of_them_sees(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 1);
    for (int i = 0; i < METRICS_TENANTS_MAX + 50; i++) {
        char tenant[32];
        (void)snprintf(tenant, sizeof tenant, "t%d", i);
        count(metrics, 0, tenant, "pay", "sealed");
    }
    count(metrics, 0, "_other", "pay", "sealed");
    const char *text = page(metrics, "", &out);
    assert_has(
        text, "once_decisions_total{decision=\"sealed\",scope=\"_other\",tenant=\"_other\"} 51");
    assert_has(text, "once_first_seen_to_seal_seconds_count{tenant=\"_other\"} 51");
    assert_int_equal(
        lines_with(text, "once_decisions_total{decision=\"sealed\""), METRICS_TENANTS_MAX + 1);
    assert_int_equal(lines_with(page(metrics, "t120", &out), "tenant="), 0);
    assert_int_equal(lines_with(page(metrics, "_other", &out), "tenant="), 0);
    assert_true(lines_with(page(metrics, "t99", &out), "tenant=\"t99\"") > 0);
    buf_release(&out);
    metrics_free(metrics);
}

struct metrics_run {
    struct metrics *metrics;
    unsigned loop;
};

static void *count_much(void *context)
{
    const struct metrics_run *run = context;
    for (int i = 0; i < 20000; i++) {
        char scope[32];
        (void)snprintf(scope, sizeof scope, "s%d", i % 1500);
        count(run->metrics, run->loop, i % 2 == 0 ? "a" : "b", scope, "sealed");
        metrics_request(run->metrics, run->loop, i % 2 == 0 ? "/one" : "/two", 200, 1000);
    }
    return NULL;
}

static void loops_count_side_by_side_while_somebody_looks(void **state)
{
    (void)state;
    enum { LOOPS = 4 };
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, LOOPS);
    struct metrics_run runs[LOOPS];
    pthread_t threads[LOOPS];
    for (unsigned i = 0; i < LOOPS; i++) {
        runs[i] = (struct metrics_run){metrics, i};
        assert_int_equal(pthread_create(&threads[i], NULL, count_much, &runs[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        (void)page(metrics, "", &out);
    }
    for (unsigned i = 0; i < LOOPS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    const char *text = page(metrics, "", &out);
    assert_has(text, "once_first_seen_to_seal_seconds_count{tenant=\"a\"} 40000");
    assert_has(text, "once_first_seen_to_seal_seconds_count{tenant=\"b\"} 40000");
    assert_has(text, "once_http_requests_total{route=\"/two\",code=\"200\"} 40000");
    buf_release(&out);
    metrics_free(metrics);
}

static void *resize_few(void *context, void *pointer, size_t size)
{
    int *left = context;
    if (size > 0 && (*left)-- <= 0) {
        return NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

static void without_memory_nothing_is_lost_but_names(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    for (int room = 0; room < 10; room++) {
        int left = room;
        struct mem few = {resize_few, &left};
        struct metrics *metrics = metrics_new(&few, 1);
        assert_true((metrics == NULL) == (room < 3));
        if (metrics != NULL) {
            for (int i = 0; i < 10; i++) {
                count(metrics, 0, "acme", i < 5 ? "pay" : "mail", "sealed");
            }
            (void)page(metrics, "", &out);
        }
        metrics_free(metrics);
    }
    buf_release(&out);
}

/* Bytes of any kind, and more often those that a text format has plans for. */
static struct slice any_name(struct prng *prng, char room[16])
{
    static const char special[] = "\0\"\\\n\r{},=# \x7f\x80\xc2\xc2\x85\xed\xa0\xff\xc3\xa9_";
    size_t len = prng_below(prng, 17);
    for (size_t i = 0; i < len; i++) {
        room[i] = prng_below(prng, 2) == 0 ? (char)(unsigned char)prng_below(prng, 256)
                                           : special[prng_below(prng, sizeof special - 1)];
    }
    return slice_of(room, len);
}

static void count_any(struct metrics *metrics, uint64_t seed)
{
    struct prng prng = {seed};
    static const char *const words[] = {
        "first_seen", "sealed", "conflict_rejected", "duplicate_refused"};
    for (int i = 0; i < 500; i++) {
        char tenant[16], scope[16];
        const char *word = words[prng_below(&prng, 4)];
        struct metrics_decision said = {.tenant = any_name(&prng, tenant),
            .scope = any_name(&prng, scope),
            .decision = word,
            .first_to_seal_ms = word[0] == 's' ? i : -1,
            .is_conflict = word[0] == 'c',
            .diff_bytes = 100};
        metrics_decision(metrics, 0, &said);
    }
}

/* For check_pages: "test_metrics page SEED" prints one, with any bytes as names. */
static int print_page(const char *seed)
{
    struct buf out;
    buf_init(&out, &mem_libc, METRICS_PAGE_BYTES_MAX);
    struct metrics *metrics = metrics_new(&mem_libc, 2);
    count(metrics, 0, "acme", "pay", "first_seen");
    count(metrics, 1, "a\"b\\c", "p\xc3\xa9", "conflict_rejected");
    count(metrics, 1, "acme", "pay", "sealed");
    count(metrics, 1, "acme", "pay", "duplicate_refused");
    uint64_t number = 0;
    if (!text_u64(slice_str(seed), &number)) {
        return 1;
    }
    count_any(metrics, number);
    metrics_request(metrics, 0, "/v1/fences/{operation_id}/seal", 200, 100000);
    size_t upstreams = 2;
    metrics_upstreams(metrics, tell_some, &upstreams);
    metrics_targets(metrics, tell_targets, &upstreams);
    (void)page(metrics, "", &out);
    ssize_t wrote = write(STDOUT_FILENO, out.data, out.len - 1);
    int failed = wrote != (ssize_t)out.len - 1;
    buf_release(&out);
    metrics_free(metrics);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "page") == 0) {
        return print_page(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        TEST(every_decision_is_counted_under_its_own_name),
        TEST(what_loops_counted_is_added_up),
        TEST(the_engines_figures_are_shown_in_their_units),
        TEST(each_upstream_has_its_figures),
        TEST(each_target_has_its_figures),
        TEST(a_delay_is_in_the_bucket_of_the_next_bound),
        TEST(calls_are_counted_by_scope_and_tenant),
        TEST(work_is_shown_by_kind_and_status),
        TEST(labels_are_escaped),
        TEST(what_is_no_name_is_one_of_the_others),
        TEST(what_is_expected_is_shown_at_zero),
        TEST(a_tenant_sees_its_own_series_and_nothing_of_others),
        TEST(scopes_past_the_cap_share_one_series_of_their_tenant),
        TEST(a_tenant_keeps_room_for_scopes_whatever_others_use),
        TEST(tenants_past_the_cap_share_what_none_of_them_sees),
        TEST(loops_count_side_by_side_while_somebody_looks),
        TEST(without_memory_nothing_is_lost_but_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

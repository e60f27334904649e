/*
 * Sources: in which order versions come, and that nothing older than the last sealed version of its
 * source is granted (OPS-7), across tenants, restarts, expiry, saved indexes and squeezing.
 */
#include "core/source.h"
#include "engine_kit.h"
#include "entry_text.h"
#include "evidence/redecide.h"

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

static void versions_are_in_natural_order(void **state)
{
    (void)state;
    /* Each is less than all behind it. */
    static const char *const order[] = {"", "-", "0", "00", "1", "01", "001", "1-rc", "1.2", "1.10",
        "2", "9", "10", "010", "99999999999999999999999999999999",
        "100000000000000000000000000000000", "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z",
        "2026-01-10T00:00:00Z", "a", "v", "v9", "v10", "v10a", "v11", "\xc3\xa4"};
    const size_t count = sizeof order / sizeof *order;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            struct slice a = slice_str(order[i]);
            struct slice b = slice_str(order[j]);
            /* 2026 stands behind the longest number here, and is less: it is looked at alone. */
            bool dates = (order[i][0] == '2' && order[i][1] == '0') ||
                         (order[j][0] == '2' && order[j][1] == '0');
            if (dates && (order[i][0] != order[j][0] || order[i][1] != order[j][1])) {
                continue;
            }
            if (sign(version_compare(a, b)) != (i > j) - (i < j)) {
                fail_msg("'%s' against '%s'", order[i], order[j]);
            }
        }
    }
    assert_true(version_compare(SLICE_LIT("9"), SLICE_LIT("2026-01-02")) < 0);
}

static void zeros_in_front_make_no_version_older(void **state)
{
    (void)state;
    assert_false(version_older(SLICE_LIT("7"), SLICE_LIT("007")));
    assert_false(version_older(SLICE_LIT("007"), SLICE_LIT("7")));
    assert_true(version_older(SLICE_LIT("007"), SLICE_LIT("8")));
    assert_true(version_older(SLICE_LIT("v1.007.1"), SLICE_LIT("v1.7.2")));
    assert_false(version_older(SLICE_LIT("x"), SLICE_LIT("x")));
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

/* Over a small alphabet, where numbers, zeros and letters meet often: a total order. */
static void the_order_is_total(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int i = 0; i < 200000; i++) {
        char text[3][5];
        struct slice of[3];
        for (int j = 0; j < 3; j++) {
            size_t len = next_random(&random) % 5;
            for (size_t k = 0; k < len; k++) {
                text[j][k] = "00129a."[next_random(&random) % 7];
            }
            of[j] = slice_of(text[j], len);
        }
        int ab = sign(version_compare(of[0], of[1]));
        int bc = sign(version_compare(of[1], of[2]));
        int ac = sign(version_compare(of[0], of[2]));
        assert_int_equal(ab, -sign(version_compare(of[1], of[0])));
        assert_int_equal(ab == 0, slice_equal(of[0], of[1]));
        if (ab == bc && ab != 0) {
            assert_int_equal(ac, ab);
        }
        /* What is older is older in the total order too. */
        assert_true(!version_older(of[0], of[1]) || ab < 0);
    }
}

static void no_source_has_the_key_of_an_operation(void **state)
{
    (void)state;
    struct record_key operation = {.tenant = SLICE_LIT("acme"),
        .scope = SLICE_LIT("s"),
        .principal = SLICE_LIT("feed"),
        .key = SLICE_LIT("o-1")};
    struct source source = {SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("1")};
    struct record_key key;
    assert_int_equal(record_key_seal(&operation, NULL), OK);
    assert_int_equal(source_key_seal(&operation, &source, &key, NULL), OK);
    assert_true(slice_equal(key.key, operation.key));
    assert_true(slice_equal(key.principal, operation.principal));
    assert_false(digest_equal(&key.hash, &operation.hash));
}

/* ---- through the engine ------------------------------------------------------------------- */

static struct engine_call sourced(
    const char *tenant, const char *scope, const char *key, const char *version)
{
    struct engine_call call = kit_begin(tenant, scope, key);
    call.request.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), slice_str(version)};
    return call;
}

static enum decision_kind begin(const char *key, const char *version)
{
    struct engine_call call = sourced("acme", "s", key, version);
    return kit_do(&call);
}

static void begin_and_seal(const char *key, const char *version)
{
    struct engine_call call = sourced("acme", "s", key, version);
    assert_int_equal(kit_do(&call), DECISION_FIRST_SEEN);
    struct engine_call seal = kit_seal(&call, SLICE_LIT("done"));
    assert_int_equal(kit_do(&seal), DECISION_SEALED);
}

static void what_is_older_than_the_last_sealed_version_is_refused(void **state)
{
    (void)state;
    begin_and_seal("ten", "10");
    struct engine_call stale = sourced("acme", "s", "nine", "9");
    assert_int_equal(kit_do(&stale), DECISION_STALE_VERSION);
    assert_string_equal(stale.decision.rule, "B9");
    assert_int_equal(stale.decision.next.fence, 0);
    assert_int_equal(begin("nine", "9"), DECISION_STALE_VERSION); /* still */
    assert_int_equal(begin("ten again", "10"), DECISION_FIRST_SEEN);
    assert_int_equal(begin("eleven", "11"), DECISION_FIRST_SEEN);
    assert_int_equal(begin("ten", "10"), DECISION_DUPLICATE_REPLAYED);
    /* Only what is sealed counts: eleven runs, and ten and a half may still come before it. */
    assert_int_equal(begin("between", "10.5"), DECISION_FIRST_SEEN);
    struct verify_result result;
    kit_verify(&result);
    assert_int_equal(result.not_redecidable, 0);
}

static void a_duplicate_of_what_was_sealed_is_replayed_whatever_came_since(void **state)
{
    (void)state;
    begin_and_seal("nine", "9");
    begin_and_seal("ten", "10");
    assert_int_equal(begin("nine", "9"), DECISION_DUPLICATE_REPLAYED);
}

static void another_source_scope_or_tenant_knows_nothing_of_it(void **state)
{
    (void)state;
    begin_and_seal("ten", "10");
    struct engine_call calls[] = {sourced("zeta", "s", "k", "9"), sourced("acme", "t", "k", "9"),
        sourced("acme", "s", "k1", "9"), sourced("acme", "s", "k2", "9"),
        sourced("acme", "s", "k3", "9")};
    calls[2].request.source.id = SLICE_LIT("o-2");
    calls[3].request.source.type = SLICE_LIT("mail");
    calls[4].request.source.type = SLICE_EMPTY; /* not all three: not ordered */
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        assert_int_equal(kit_do(&calls[i]), DECISION_FIRST_SEEN);
    }
}

static void a_late_seal_of_an_older_version_does_not_take_it_back(void **state)
{
    (void)state;
    struct engine_call nine = sourced("acme", "s", "nine", "9");
    assert_int_equal(kit_do(&nine), DECISION_FIRST_SEEN);
    begin_and_seal("ten", "10");
    struct engine_call seal = kit_seal(&nine, SLICE_LIT("late"));
    assert_int_equal(kit_do(&seal), DECISION_SEALED);
    assert_int_equal(begin("nine and a half", "9.5"), DECISION_STALE_VERSION);
    struct verify_result result;
    kit_verify(&result);
}

static void a_release_remembers_nothing_and_a_second_attempt_is_compared_anew(void **state)
{
    (void)state;
    struct engine_call nine = sourced("acme", "s", "nine", "9");
    assert_int_equal(kit_do(&nine), DECISION_FIRST_SEEN);
    struct engine_call release = kit_seal(&nine, SLICE_EMPTY);
    release.request.kind = REQUEST_RELEASE;
    assert_int_equal(kit_do(&release), DECISION_RELEASED);
    assert_int_equal(begin("eight", "8"), DECISION_FIRST_SEEN);
    begin_and_seal("ten", "10");
    struct engine_call again = sourced("acme", "s", "nine", "9");
    assert_int_equal(kit_do(&again), DECISION_STALE_VERSION); /* B6 would have granted */
    assert_int_equal(again.decision.next.status, RECORD_RELEASED);
    struct verify_result result;
    kit_verify(&result);
}

/* Released and begun again as a newer version: it is that one that is sealed. */
static void the_version_that_was_granted_last_is_the_one_that_is_remembered(void **state)
{
    (void)state;
    struct engine_call first = sourced("acme", "s", "k", "9");
    (void)kit_do(&first);
    struct engine_call release = kit_seal(&first, SLICE_EMPTY);
    release.request.kind = REQUEST_RELEASE;
    (void)kit_do(&release);
    begin_and_seal("k", "12");
    assert_int_equal(begin("eleven", "11"), DECISION_STALE_VERSION);
    struct verify_result result;
    kit_verify(&result);
}

static void resolving_an_unknown_one_as_executed_remembers_its_version(void **state)
{
    (void)state;
    struct engine_call ten = sourced("acme", "s", "ten", "10");
    (void)kit_do(&ten);
    struct engine_call unknown = kit_seal(&ten, SLICE_EMPTY);
    unknown.request.kind = REQUEST_UNKNOWN;
    assert_int_equal(kit_do(&unknown), DECISION_UNKNOWN);
    assert_int_equal(begin("nine", "9"), DECISION_FIRST_SEEN);
    struct engine_call resolve = kit_seal(&ten, SLICE_LIT("found"));
    resolve.request.kind = REQUEST_RESOLVE;
    resolve.request.key.tenant = SLICE_EMPTY; /* an operator's */
    assert_int_equal(kit_do(&resolve), DECISION_RESOLVED);
    assert_int_equal(begin("eight", "8"), DECISION_STALE_VERSION);
    struct verify_result result;
    kit_verify(&result);
}

static void what_is_remembered_survives_a_restart_and_ends_with_its_window(void **state)
{
    (void)state;
    begin_and_seal("ten", "10");
    kit_close();
    kit_open();
    assert_int_equal(begin("nine", "9"), DECISION_STALE_VERSION);
    kit.now_ms += policy_default.window_ms - 1;
    assert_int_equal(begin("nine", "9"), DECISION_STALE_VERSION);
    kit.now_ms += 1;
    assert_int_equal(begin("nine", "9"), DECISION_FIRST_SEEN);
    struct verify_result result;
    kit_verify(&result);
    assert_int_equal(result.redecided, 5);
}

/* The same version, sealed later under another key. */
static void a_version_that_is_sealed_again_is_remembered_for_longer(void **state)
{
    (void)state;
    begin_and_seal("ten", "10");
    kit.now_ms += policy_default.window_ms / 2;
    begin_and_seal("ten again", "10");
    kit.now_ms += policy_default.window_ms - 1; /* past the first one's window */
    assert_int_equal(begin("nine", "9"), DECISION_STALE_VERSION);
    kit.now_ms += 1;
    assert_int_equal(begin("nine", "9"), DECISION_FIRST_SEEN);
    struct verify_result result;
    kit_verify(&result);
}

static void requests_of_one_commit_see_the_seals_before_them(void **state)
{
    (void)state;
    struct kit_gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};
    struct engine_call ten = sourced("acme", "s", "ten", "10");
    (void)kit_do(&ten);
    struct engine_call before = sourced("acme", "s", "before", "8");
    struct engine_call seal = kit_seal(&ten, SLICE_LIT("done"));
    struct engine_call after = sourced("acme", "s", "after", "9");
    struct engine_call *const group[] = {&before, &seal, &after};
    struct err err = {0};
    for (size_t i = 0; i < 3; i++) {
        group[i]->context = &gate;
        group[i]->done = kit_gate_done;
    }
    assert_int_equal(engine_submit_all(kit.engine, group, 3, &err), OK);
    kit_gate_pass(&gate, 3);
    assert_int_equal(before.decision.kind, DECISION_FIRST_SEEN);
    assert_int_equal(seal.decision.kind, DECISION_SEALED);
    assert_int_equal(after.decision.kind, DECISION_STALE_VERSION);
    struct verify_result result;
    kit_verify(&result);
}

struct looked {
    size_t scanned;
    bool found;
    struct store_counts operations;
    struct store_counts sources;
};

static enum status look(struct store *store, void *context, struct err *err)
{
    struct looked *looked = context;
    const struct record *records[8];
    struct scan scan = {.kinds = STORE_OPERATIONS, .limit = 8};
    enum status status = store->ops->scan(store, &scan, &kit.arena, records, &looked->scanned, err);
    for (size_t i = 0; status == OK && i < looked->scanned; i++) {
        assert_int_equal(records[i]->kind, RECORD_OPERATION);
        struct store_want want = {
            .id = &records[i]->operation_id, .kinds = STORE_KINDS_ALL, .source = true};
        struct store_batch batch = {.wants = &want, .count = 1, .arena = &kit.arena};
        status = store->ops->read(store, &batch, err);
        looked->found = want.record != NULL && want.record->kind == RECORD_OPERATION &&
                        want.source_record != NULL && want.source_record->kind == RECORD_SOURCE;
    }
    status = status == OK ? store->ops->counts(store, STORE_OPERATIONS, &looked->operations, err)
                          : status;
    return status == OK
               ? store->ops->counts(store, STORE_KIND(RECORD_SOURCE), &looked->sources, err)
               : status;
}

static void a_source_is_no_operation_to_anybody_who_looks(void **state)
{
    (void)state;
    begin_and_seal("ten", "10");
    for (int i = 0; i < 2; i++) {
        struct looked looked = {0};
        kit_visit(look, &looked);
        assert_int_equal(looked.scanned, 1);
        assert_true(looked.found);
        assert_int_equal(looked.operations.records, 1);
        assert_int_equal(looked.sources.records, 1);
        kit_close();
        kit_open();
    }
}

/* Decides the journal again, with the first of some text in the entries replaced by another. */
struct forgery {
    const char *from;
    const char *to;
    bool done;
    struct redecide redecide;
    struct buf scratch;
    struct err err; /* of the first entry that comes out otherwise */
};

static bool decide_forged(void *context, const struct entry *entry)
{
    struct forgery *forgery = context;
    struct redecide_stored nothing = {.squeezed = true};
    struct entry_view view;
    struct err err = {0};
    struct buf text;
    struct entry told = *entry;
    if (entry->kind != ENTRY_EVIDENCE) {
        return true;
    }
    buf_init(&text, &mem_libc, 4096);
    if (!forgery->done && entry_replace(entry, forgery->from, forgery->to, &text)) {
        told.bytes = buf_view(&text);
        forgery->done = true;
    }
    enum status status = entry_view_read(&told, &kit.arena, &forgery->scratch, &view, &err);
    if (status == OK) {
        status = redecide_entry(&forgery->redecide, &view, &nothing, &err);
    }
    if (status != OK && forgery->err.status == OK) {
        forgery->err = err;
    }
    buf_release(&text);
    return true;
}

static enum status read_forged(struct store *store, void *context, struct err *err)
{
    struct entry_range all = {0};
    return store->ops->entries(store, &all, decide_forged, context, err);
}

static void forge(const char *from, const char *to, const char *said)
{
    struct forgery forgery = {.from = from, .to = to};
    redecide_init(&forgery.redecide, &mem_libc);
    buf_init(&forgery.scratch, &mem_libc, 1 << 20);
    kit_visit(read_forged, &forgery);
    redecide_release(&forgery.redecide);
    buf_release(&forgery.scratch);
    assert_int_equal(forgery.done, *from != '#');
    if (strstr(forgery.err.text, said) == NULL || (*said == 0) != (forgery.err.text[0] == 0)) {
        fail_msg("'%s' and not '%s'", forgery.err.text, said);
    }
}

static void an_entry_that_tells_of_no_newer_version_is_found(void **state)
{
    (void)state;
    begin_and_seal("ten", "10");
    (void)begin("eleven", "11");
    (void)begin("nine", "9");
    forge("#", "", "");
    forge("B1\",\"sealed_version\":\"10\"", "B1\"",
        "the last sealed version of the source is '10' and not ''");
    forge("B9\",\"sealed_version\":\"10\"", "B9\",\"sealed_version\":\"99\"",
        "the last sealed version of the source is '10' and not '99'");
    forge("H5\",\"sealed_version\":\"10\"", "H5\",\"sealed_version\":\"12\"",
        "the last sealed version of the source is '10' and not '12'");
    forge("\"version\":\"11\"},\"version\"", "\"version\":\"12\"},\"version\"",
        "source differs from the one asked for");
    forge(",\"seq\":2,\"source\":{\"id\":\"o-1\"", ",\"seq\":2,\"source\":{\"id\":\"o-2\"",
        "source differs from its operation's");
    forge("\"rule\":\"B9\"", "\"rule\":\"B8\"", "the rule is 'B9' and not 'B8'");
}

/* Small segments, many of them: the index is saved, old segments are squeezed, and what is
 * remembered is moved along. */
static void what_is_remembered_survives_squeezing(void **state)
{
    (void)state;
    char key[32];
    struct engine_call ten = sourced("acme", "s", "ten", "10");
    ten.request.policy.window_ms = INT64_C(30) * 86400000;
    (void)kit_do(&ten);
    struct engine_call seal = kit_seal(&ten, SLICE_LIT("done"));
    (void)kit_do(&seal);
    for (int i = 0; i < 600; i++) {
        (void)snprintf(key, sizeof key, "other-%d", i);
        struct engine_call other = kit_begin("acme", "s", key);
        other.request.policy.window_ms = 60000;
        (void)kit_do(&other);
        struct engine_call sealed = kit_seal(&other, SLICE_LIT("done"));
        (void)kit_do(&sealed);
        kit.now_ms += 10000;
    }
    kit_close();
    kit_open();
    for (int i = 0; i < 40; i++) {
        kit.now_ms += 60000;
        assert_int_equal(begin("nine", "9"), DECISION_STALE_VERSION);
    }
    struct verify_result result;
    kit_verify(&result);
    assert_true(result.squeezed > 0);
    assert_int_equal(begin("nine", "9"), DECISION_STALE_VERSION);
    assert_int_equal(begin("ten", "10"), DECISION_DUPLICATE_REPLAYED);
}

static int set_up_small(void **state)
{
    kit.url_options = "?segment=64KiB&snapshot=64KiB";
    return kit_set_up(state);
}

static int tear_down_small(void **state)
{
    int failed = kit_tear_down(state);
    kit.url_options = NULL;
    return failed;
}

int main(void)
{
#define SOURCE_TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(versions_are_in_natural_order),
        TEST(zeros_in_front_make_no_version_older),
        TEST(the_order_is_total),
        TEST(no_source_has_the_key_of_an_operation),
        SOURCE_TEST(what_is_older_than_the_last_sealed_version_is_refused),
        SOURCE_TEST(a_duplicate_of_what_was_sealed_is_replayed_whatever_came_since),
        SOURCE_TEST(another_source_scope_or_tenant_knows_nothing_of_it),
        SOURCE_TEST(a_late_seal_of_an_older_version_does_not_take_it_back),
        SOURCE_TEST(a_release_remembers_nothing_and_a_second_attempt_is_compared_anew),
        SOURCE_TEST(the_version_that_was_granted_last_is_the_one_that_is_remembered),
        SOURCE_TEST(resolving_an_unknown_one_as_executed_remembers_its_version),
        SOURCE_TEST(what_is_remembered_survives_a_restart_and_ends_with_its_window),
        SOURCE_TEST(a_version_that_is_sealed_again_is_remembered_for_longer),
        SOURCE_TEST(requests_of_one_commit_see_the_seals_before_them),
        SOURCE_TEST(a_source_is_no_operation_to_anybody_who_looks),
        SOURCE_TEST(an_entry_that_tells_of_no_newer_version_is_found),
        cmocka_unit_test_setup_teardown(
            what_is_remembered_survives_squeezing, set_up_small, tear_down_small),
    };
    return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}

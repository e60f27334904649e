/*
 * What only a store on a Redis server can get wrong: lost answers, lost data, a server without
 * memory, its URL. The conformance suites run on it too. ONCE_TEST_REDIS names a server of its own
 * (tests/servers.py). This file is past 800 lines because all of it works on the one fixture below.
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/uuid.h"
#include "faulty_mem.h"
#include "store/kit.h"
#include "store/proxy.h"

enum { LARGE_MAX = 1600 }; /* records of large_record */

struct fixture {
    struct proxy *proxy;
    unsigned short port;  /* of the server itself */
    char name[64];        /* of a store of this test's own */
    struct store *store;  /* through the proxy */
    struct store *beside; /* straight to the server */
    struct arena arena;
};

static struct store *open_with(
    const struct fixture *fixture, unsigned short port, const struct mem *mem)
{
    char url[256];
    struct err err = {0};
    struct store *store = NULL;
    const struct store_options options = {.clock = &kit_clock, .mem = mem};
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%u?name=%s", port, fixture->name);
    enum status status = store_open(url, &options, &store, &err);
    if (status != OK) {
        print_error("open: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    return store;
}

static struct store *open_at(const struct fixture *fixture, unsigned short port)
{
    return open_with(fixture, port, NULL);
}

static int setup(void **state)
{
    static unsigned number;
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    const char *port = strrchr(getenv("ONCE_TEST_REDIS"), ':') + 1;
    fixture->port = (unsigned short)strtoul(port, NULL, 10);
    (void)snprintf(fixture->name, sizeof fixture->name, "own-%ld-%u", (long)getpid(), number++);
    fixture->proxy = proxy_new(fixture->port);
    arena_init(&fixture->arena, &mem_libc, 64 << 20);
    kit_set_time(KIT_NOW);
    fixture->store = open_at(fixture, proxy_port(fixture->proxy));
    fixture->beside = open_at(fixture, fixture->port);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    (void)kit_close(fixture->store); /* it may have failed on purpose */
    (void)kit_close(fixture->beside);
    proxy_free(fixture->proxy);
    arena_release(&fixture->arena);
    free(fixture);
    return 0;
}

/* A command to the server itself. */
static void command(const struct fixture *fixture, const char *text)
{
    redisContext *context = redisConnect("127.0.0.1", fixture->port);
    assert_true(context != NULL && context->err == 0);
    redisReply *reply = redisCommand(context, text);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    redisFree(context);
}

/* What the server answers to a command about the store, which "%s" stands for: a number. */
static uint64_t number_of(const struct fixture *fixture, const char *form)
{
    char text[192];
    const char *name = strstr(form, "%s");
    assert_non_null(name);
    (void)snprintf(
        text, sizeof text, "%.*s%s%s", (int)(name - form), form, fixture->name, name + 2);
    redisContext *context = redisConnect("127.0.0.1", fixture->port);
    assert_true(context != NULL && context->err == 0);
    redisReply *reply = redisCommand(context, text);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    uint64_t number = reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10)
                                                        : (uint64_t)reply->integer;
    freeReplyObject(reply);
    redisFree(context);
    return number;
}

static uint64_t counter_read(const struct fixture *fixture)
{
    return number_of(fixture, "GET {%s}:fence");
}

static enum status commit_one(struct store *store, const struct record *record, struct err *err)
{
    struct change change = {.kind = CHANGE_PUT,
        .record = record,
        .entry = kit_entry(store, &record->operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    return store->ops->commit(store, &commit, err);
}

static void prepare(struct store *store)
{
    struct store_batch batch = {.fences = 1};
    struct err err = {0};
    enum status status = store->ops->prepare(store, &batch, &err);
    if (status != OK) {
        print_error("prepare: %s\n", err.text);
    }
    assert_int_equal(status, OK);
}

struct counted {
    uint64_t seq;
};

static bool count_entry(void *context, const struct entry *entry)
{
    struct counted *counted = context;
    assert_int_equal(entry->seq, ++counted->seq); /* P10 */
    return true;
}

/* Whatever byte is the last to pass, of the request or of the answer: the commit says whether it
 * happened, that is what the server has, and the store goes on (P11). */
static void a_commit_knows_its_fate_wherever_the_connection_breaks(void **state)
{
    struct fixture *fixture = *state;
    unsigned number = 0;
    unsigned fates[2] = {0};
    bool is_long = getenv("ONCE_TEST_LONG") != NULL;
    for (int direction = 0; direction < 2; direction++) {
        bool cut = true;
        for (long bytes = 0; cut; bytes += is_long || bytes < 64 || direction == 1 ? 1 : 7) {
            struct err err = {0};
            number++;
            struct record record = kit_record(number, number);
            prepare(fixture->store);
            if (direction == 0) {
                proxy_cut_request(fixture->proxy, bytes);
            } else {
                proxy_cut_answer(fixture->proxy, bytes);
            }
            enum status status = commit_one(fixture->store, &record, &err);
            cut = proxy_has_cut(fixture->proxy);
            assert_true(status == OK || status == E_UNAVAILABLE);
            assert_true(cut || status == OK);
            assert_true(direction == 0 || status == OK); /* what is answered has happened */
            const struct record *found = kit_load(fixture->beside, number, &fixture->arena);
            assert_int_equal(found != NULL, status == OK);
            fates[status == OK]++;
        }
    }
    assert_true(fates[0] > 100 && fates[1] > 10);
    struct counted counted = {0};
    struct store_head head;
    struct err err = {0};
    fixture->store->ops->head(fixture->store, &head);
    assert_int_equal(head.seq, fates[1]);
    const struct entry_range all = {.pace = NULL};
    assert_int_equal(
        fixture->beside->ops->entries(fixture->beside, &all, count_entry, &counted, &err), OK);
    assert_int_equal(counted.seq, fates[1]);
}

/* Bytes of a broken connection may reach the server after the commit was looked up: they come too
 * late, because the caller was answered that nothing happened. */
static void a_commit_that_was_given_up_never_happens(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    char answer[256];
    struct record first = kit_record(1, 1);
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &first, &err), OK); /* the server has the script */
    struct record second = kit_record(2, 2);
    prepare(fixture->store);
    proxy_hold(fixture->proxy);
    assert_int_equal(commit_one(fixture->store, &second, &err), E_UNAVAILABLE);
    proxy_deliver(fixture->proxy, answer, sizeof answer);
    assert_non_null(strstr(answer, "LOST"));
    assert_null(kit_load(fixture->beside, 2, &fixture->arena));
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &second, &err), OK);
    assert_non_null(kit_load(fixture->beside, 2, &fixture->arena));
}

/* A failover to a replica that lagged, a restart without the file: what was answered is gone, so
 * that nothing may be granted on it (P11). */
static void a_server_that_lost_what_it_acknowledged_stops_the_store(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &record, &err), OK);
    command(fixture, "FLUSHALL");
    struct store_batch batch = {.fences = 1};
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "acknowledged"));
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT);
    kit_close(fixture->beside);
    fixture->beside = open_at(fixture, fixture->port); /* what is opened anew is a new store */
    prepare(fixture->beside);
    fixture->beside->ops->abort(fixture->beside);
}

/* The store is there, at an earlier state. */
static void a_server_that_went_back_in_time_stops_the_store(void **state)
{
    struct fixture *fixture = *state;
    char text[192];
    char chain[UUID_TEXT_BYTES];
    struct store_identity identity;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    struct store_batch batch = {.count = 0};
    kit_put_flush(fixture->store, &record, 0);
    fixture->store->ops->identity(fixture->store, &identity, NULL);
    (void)snprintf(text, sizeof text, "HSET {%s}:chain:%s commits 0", fixture->name,
        uuid_put(chain, identity.chain_id));
    command(fixture, text);
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT);
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT);
}

static void fences_that_went_back_stop_the_store(void **state)
{
    struct fixture *fixture = *state;
    char text[128];
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    struct record record = kit_record(1, 1);
    assert_true(kit_fences(fixture->store, 10) > 0);
    kit_put_flush(fixture->store, &record, 0);
    assert_true(kit_fences(fixture->store, 10) > 10);
    (void)snprintf(text, sizeof text, "SET {%s}:fence 10", fixture->name);
    command(fixture, text); /* what was drawn since then was never used */
    assert_int_equal(kit_fences(fixture->store, 1), 11);
    (void)snprintf(text, sizeof text, "SET {%s}:fence 3", fixture->name);
    command(fixture, text);
    assert_int_equal(
        fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT); /* P4 */
}

static void a_server_that_forgot_the_scripts_gets_them_again(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    for (unsigned i = 1; i < 4; i++) {
        struct record record = kit_record(i, i);
        command(fixture, "SCRIPT FLUSH");
        prepare(fixture->store);
        command(fixture, "SCRIPT FLUSH");
        assert_int_equal(commit_one(fixture->store, &record, &err), OK);
        assert_non_null(kit_load(fixture->beside, i, &fixture->arena));
    }
}

/* New keys are refused with the name of the limit, and nothing of the refused commit stays (P12);
 * what is over can still be forgotten. */
static void a_server_without_memory_refuses_and_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record over = kit_record(1, 1);
    struct record next = kit_record(2, 2);
    kit_put_flush(fixture->store, &over, 0);
    over = kit_sealed(&over, KIT_NOW + 5000);
    kit_put_flush(fixture->store, &over, 1);
    prepare(fixture->store);
    command(fixture, "CONFIG SET maxmemory 1000000");
    assert_int_equal(commit_one(fixture->store, &next, &err), E_LIMIT);
    assert_non_null(strstr(err.text, "maxmemory"));
    assert_int_equal(kit_maintain(fixture->store, KIT_NOW + 9000, &err), OK);
    command(fixture, "CONFIG SET maxmemory 0");
    assert_null(kit_load(fixture->beside, 1, &fixture->arena));
    assert_null(kit_load(fixture->beside, 2, &fixture->arena));
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &next, &err), OK);
}

/* The version of a key starts anew when its record was forgotten: a batch that read the old record
 * must not take the new one for it (P1). */
static void a_record_that_was_forgotten_and_made_anew_is_a_different_one(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record old = kit_record(1, 1);
    kit_put_flush(fixture->beside, &old, 0);
    struct record over = kit_sealed(&old, KIT_NOW + 1000);
    kit_put_flush(fixture->beside, &over, 1);
    kit_set_time(KIT_NOW + 2000);
    struct store_want want = {.key = &old.key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .fences = 1, .arena = &fixture->arena};
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
    assert_int_equal(want.record->version, 2);

    assert_int_equal(kit_maintain(fixture->beside, KIT_NOW + 2000, &err), OK);
    struct record fresh = kit_record(1, 7);
    kit_put_flush(fixture->beside, &fresh, 0);
    fresh = kit_sealed(&fresh, KIT_NOW + 86400000);
    kit_put_flush(fixture->beside, &fresh, 1);

    struct record again = kit_record(1, batch.fence_first);
    again.version = 3;
    bool stale = false;
    struct change change = {.kind = CHANGE_PUT, .record = &again, .version_expected = 2};
    struct commit commit = {.changes = &change, .count = 1, .ret_stale = &stale};
    assert_int_equal(fixture->store->ops->commit(fixture->store, &commit, &err), E_STALE);
    assert_true(stale);
    assert_int_equal(kit_load(fixture->beside, 1, &fixture->arena)->status, RECORD_EXECUTED);
}

/* Fail closed while the server is away, and go on by itself when it is back. */
static void a_server_that_was_away_is_found_again(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct store_batch batch = {.fences = 1};
    prepare(fixture->store);
    fixture->store->ops->abort(fixture->store);
    proxy_block(fixture->proxy, true);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_UNAVAILABLE);
    }
    proxy_block(fixture->proxy, false);
    enum status status = E_UNAVAILABLE;
    for (int i = 0; i < 3000 && status == E_UNAVAILABLE; i++) {
        (void)usleep(10000);
        status = fixture->store->ops->prepare(fixture->store, &batch, &err);
    }
    struct record record = kit_record(1, 1);
    assert_int_equal(status, OK);
    assert_int_equal(commit_one(fixture->store, &record, &err), OK);
}

struct left {
    uint64_t first_seq; /* of the entries that are left, of one chain */
    uint64_t last_seq;
    struct digest before; /* hash that the first one goes on from */
    struct entry_pace pace;
};

static bool left_see(void *context, const struct entry *entry)
{
    struct left *left = context;
    if (left->first_seq == 0) {
        left->first_seq = entry->seq;
        left->before = left->pace.hash;
    } else {
        assert_int_equal(entry->seq, left->last_seq + 1); /* P10 */
    }
    left->last_seq = entry->seq;
    return true;
}

static bool chain_keep(void *context, const struct store_chain *chain)
{
    struct store_chain *chains = context;
    chains[chain->seq > chain->removed_seq ? 0 : 1] = *chain; /* something is left, or nothing */
    return true;
}

/* The oldest first, in pieces; what is gone is noted in its chain, and a cursor into it goes on
 * with what is left. */
static void evidence_past_its_retention_leaves(void **state)
{
    struct fixture *fixture = *state;
    enum { OLD = 700, YOUNG = 20, DAY_MS = 86400000 };
    struct err err = {0};
    struct record record = kit_record(1, 1);
    kit_put_flush(fixture->beside, &record, 0);
    assert_int_equal(kit_close(fixture->beside), OK); /* its chain is one entry */
    for (unsigned i = 2; i < 2 + OLD + YOUNG; i++) {
        struct record next = kit_record(i, i); /* its entry is a millisecond after the last */
        kit_put_flush(fixture->store, &next, 0);
    }
    for (int64_t i = 0; i < 9; i++) {
        assert_int_equal(
            kit_maintain(fixture->store, KIT_NOW + INT64_C(400) * DAY_MS + OLD, &err), OK);
    }
    fixture->beside = open_at(fixture, fixture->port);
    struct left left = {.pace = {.bytes_max = SIZE_MAX}};
    const struct entry_range all = {.pace = &left.pace};
    assert_int_equal(
        fixture->beside->ops->entries(fixture->beside, &all, left_see, &left, &err), OK);
    assert_int_equal(left.first_seq, OLD + 1);
    assert_int_equal(left.last_seq, OLD + YOUNG);
    struct store_chain chains[2] = {{.removed_seq = 0}};
    assert_int_equal(fixture->beside->ops->chains(fixture->beside, chain_keep, chains, &err), OK);
    assert_int_equal(chains[0].removed_seq, OLD);
    assert_int_equal(chains[0].seq, OLD + YOUNG);
    assert_true(digest_equal(&chains[0].removed_hash, &left.before));
    struct left again = {.first_seq = 0};
    struct entry_range range = {.after = {.seq = 5}};
    memcpy(range.after.chain_id, chains[0].chain_id, sizeof range.after.chain_id);
    assert_int_equal(
        fixture->beside->ops->entries(fixture->beside, &range, left_see, &again, &err), OK);
    assert_int_equal(again.first_seq, OLD + 1);
    struct record last = kit_record(2 + OLD + YOUNG, 2 + OLD + YOUNG);
    kit_put_flush(fixture->store, &last, 0); /* its own chain is there */
}

/* Likewise for what comes before a commit: it is asked again, and nothing is refused. */
static void a_prepare_is_asked_again_wherever_the_connection_breaks(void **state)
{
    struct fixture *fixture = *state;
    struct record record = kit_record(1, 1);
    long step = getenv("ONCE_TEST_LONG") != NULL ? 1 : 17;
    kit_put_flush(fixture->store, &record, 0);
    for (int direction = 0; direction < 2; direction++) {
        bool cut = true;
        unsigned cuts = 0;
        uint64_t last = 0;
        for (long bytes = 0; cut; bytes += step, cuts += cut) {
            struct store_want want = {.key = &record.key.hash};
            struct store_batch batch = {
                .wants = &want, .count = 1, .fences = 1, .arena = &fixture->arena};
            struct err err = {0};
            if (direction == 0) {
                proxy_cut_request(fixture->proxy, bytes);
            } else {
                proxy_cut_answer(fixture->proxy, bytes);
            }
            assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
            fixture->store->ops->abort(fixture->store);
            cut = proxy_has_cut(fixture->proxy);
            assert_true(batch.fence_first > last); /* P4 */
            last = batch.fence_first;
            assert_non_null(want.record);
        }
        assert_true(cuts > 5);
    }
}

/* The look-up is cut too, at each of its bytes: it is asked again, and says the same. */
static void a_look_up_is_asked_again_wherever_it_breaks(void **state)
{
    struct fixture *fixture = *state;
    long step = getenv("ONCE_TEST_LONG") != NULL ? 1 : 23;
    unsigned number = 0;
    for (int happens = 0; happens < 2; happens++) {
        for (int direction = 0; direction < 2; direction++) {
            bool cut = true;
            for (long bytes = 0; cut; bytes += direction == 1 ? 1 : step) {
                struct err err = {0};
                number++;
                struct record record = kit_record(number, number);
                prepare(fixture->store);
                if (happens) {
                    proxy_cut_answer(fixture->proxy, 0);
                } else {
                    proxy_cut_request(fixture->proxy, 40);
                }
                proxy_cut_again(
                    fixture->proxy, direction == 0 ? bytes : -1, direction == 1 ? bytes : -1);
                enum status status = commit_one(fixture->store, &record, &err);
                assert_int_equal(status, happens ? OK : E_UNAVAILABLE);
                cut = !proxy_is_armed(fixture->proxy);
                (void)proxy_has_cut(fixture->proxy);
                const struct record *found = kit_load(fixture->beside, number, &fixture->arena);
                assert_int_equal(found != NULL, happens);
            }
        }
    }
    assert_true(number > 20);
}

/* A commit whose answer is lost while nobody can be asked. */
struct untold {
    const struct fixture *fixture;
    struct proxy *proxy;
    struct store *store;
    unsigned key;
    bool happens;
    struct record record;
    struct change change;
    struct err err;
    enum status status;
};

static void untold_start(struct untold *untold, const struct fixture *fixture, bool happens)
{
    *untold = (struct untold){
        .fixture = fixture, .proxy = proxy_new(fixture->port), .key = happens, .happens = happens};
    untold->store = open_at(fixture, proxy_port(untold->proxy));
    struct record first = kit_record(10 + untold->key, kit_fences(untold->store, 1));
    kit_put_flush(untold->store, &first, 0); /* the server has the scripts, the chain an entry */
    untold->record = kit_record(untold->key, kit_fences(untold->store, 1));
    untold->change = (struct change){.kind = CHANGE_PUT,
        .record = &untold->record,
        .entry = kit_entry(untold->store, &untold->record.operation_id, "{\"a\":1}")};
    prepare(untold->store);
    if (happens) {
        proxy_cut_answer(untold->proxy, 0);
    } else {
        proxy_cut_request(untold->proxy, 40);
    }
    proxy_block_after_cut(untold->proxy);
}

static void *untold_commit(void *context)
{
    struct untold *untold = context;
    struct commit commit = {.changes = &untold->change, .count = 1};
    untold->status = untold->store->ops->commit(untold->store, &commit, &untold->err);
    return NULL;
}

static bool no_entry(void *context, const struct entry *entry)
{
    (void)context;
    (void)entry;
    return false;
}

/* Nothing is read or written while it is not known what the server has (P11). */
static void untold_refuses(struct untold *untold)
{
    const struct store_ops *ops = untold->store->ops;
    struct store_batch batch = {.fences = 1};
    struct store_due_filter filter = {.kinds = STORE_KINDS_ALL, .reasons = STORE_DUES_ALL};
    struct store_due due;
    struct store_counts counts;
    struct err err = {0};
    size_t count = 0;
    const struct entry_range all = {.pace = NULL};
    assert_int_equal(ops->prepare(untold->store, &batch, &err), E_UNAVAILABLE);
    assert_int_equal(ops->read(untold->store, &batch, &err), E_UNAVAILABLE);
    assert_int_equal(ops->beat(untold->store, 1, &err), E_UNAVAILABLE);
    assert_int_equal(ops->due(untold->store, &filter, &due, 1, &count, &err), E_UNAVAILABLE);
    assert_int_equal(ops->counts(untold->store, STORE_KINDS_ALL, &counts, &err), E_UNAVAILABLE);
    assert_int_equal(ops->entries(untold->store, &all, no_entry, NULL, &err), E_UNAVAILABLE);
    assert_true(err.text[0] != '\0');
}

static void untold_check(struct untold *untold, struct arena *arena)
{
    struct store *store = untold->store;
    struct store_batch batch = {.fences = 1};
    struct store_head head;
    struct err err = {0};
    const struct fixture *fixture = untold->fixture;
    bool is_there = kit_load(fixture->beside, untold->key, arena) != NULL;
    enum status status = E_UNAVAILABLE;
    assert_int_equal(is_there, untold->happens);
    proxy_block(untold->proxy, false);
    for (int i = 0; i < 3000 && status == E_UNAVAILABLE; i++) {
        (void)usleep(10000);
        status = store->ops->prepare(store, &batch, &err);
    }
    assert_int_equal(status, OK); /* settled, not guessed */
    store->ops->abort(store);
    store->ops->head(store, &head);
    assert_int_equal(head.seq, 1 + untold->happens);
    assert_int_equal(kit_put(store, &untold->record, 0), untold->happens ? E_STALE : OK);
    assert_int_equal(kit_close(store), OK);
    proxy_free(untold->proxy);
}

/* The time in which it may be asked runs out. The calls of the commit are not told what became of
 * it; the store knows as soon as the server is back, and goes on. */
static void a_commit_that_nobody_could_ask_about_is_settled_later(void **state)
{
    struct fixture *fixture = *state;
    struct untold untold[2];
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        untold_start(&untold[i], fixture, i == 0);
        assert_int_equal(pthread_create(&threads[i], NULL, untold_commit, &untold[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(untold[i].status, E_UNKNOWN);
        untold_refuses(&untold[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        untold_check(&untold[i], &fixture->arena);
    }
}

/* The server came back without that commit and the one before it: what was acknowledged is gone. */
static void a_server_without_more_than_the_open_commit_has_lost_some(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    char text[192];
    char chain[UUID_TEXT_BYTES];
    struct store_identity identity;
    struct record record = kit_record(1, 1);
    kit_put_flush(fixture->store, &record, 0);
    fixture->store->ops->identity(fixture->store, &identity, NULL);
    (void)snprintf(text, sizeof text, "HSET {%s}:chain:%s commits 0", fixture->name,
        uuid_put(chain, identity.chain_id));
    struct record next = kit_record(2, 2);
    prepare(fixture->store);
    command(fixture, text);
    proxy_cut_request(fixture->proxy, 40);
    assert_int_equal(commit_one(fixture->store, &next, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "acknowledged"));
    struct store_batch batch = {.fences = 1};
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT);
}

/* An account that may not use a command of the script: half of the commit is there, and nobody is
 * granted anything on it (P11, S1). */
static void a_commit_that_fails_halfway_stops_the_store(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    prepare(fixture->store);
    command(fixture, "ACL SETUSER default -xadd");
    enum status status = commit_one(fixture->store, &record, &err);
    command(fixture, "ACL SETUSER default +xadd");
    assert_int_equal(status, E_CORRUPT);
    assert_non_null(strstr(err.text, "half"));
    struct store_batch batch = {.fences = 1};
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_CORRUPT);
}

/* It is refused before the script writes: nothing happened, and the store goes on. */
static void a_commit_that_fails_before_its_first_write_never_happened(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    prepare(fixture->store);
    command(fixture, "ACL SETUSER default -time"); /* the look-up does not use it */
    enum status status = commit_one(fixture->store, &record, &err);
    command(fixture, "ACL SETUSER default +time");
    assert_int_equal(status, E_UNAVAILABLE);
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &record, &err), OK);
}

/* Fences that a commit set aside are given out without asking, until somebody else draws (P4). */
static void fences_set_aside_are_the_next_ones_or_none(void **state)
{
    struct fixture *fixture = *state;
    uint64_t last = 0;
    unsigned quiet = 0;
    for (unsigned i = 1; i <= 65; i++) {
        struct record record = kit_record(i, i);
        struct store_want want = {.key = &record.key.hash};
        struct store_batch batch = {
            .wants = &want, .count = 1, .fences = 3, .arena = &fixture->arena};
        struct err err = {0};
        uint64_t before = counter_read(fixture);
        assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
        quiet += counter_read(fixture) == before;
        assert_true(batch.fence_first > last);
        last = batch.fence_first + 2;
        assert_true(last <= counter_read(fixture)); /* nobody else is given one of them */
        if (i % 7 == 6) {
            fixture->store->ops->abort(fixture->store);
        } else {
            record.fence = last;
            assert_int_equal(commit_one(fixture->store, &record, &err), OK);
        }
        if (i % 10 == 9) {
            uint64_t drawn = kit_fences(fixture->beside, 2);
            assert_true(drawn > last);
            last = drawn + 1;
        }
    }
    assert_true(quiet > 30); /* or nothing is gained */
    uint64_t counter = counter_read(fixture);
    struct store *store = fixture->store;
    fixture->store = open_at(fixture, fixture->port);
    assert_int_equal(kit_close(store), OK);
    assert_true(counter_read(fixture) < counter); /* the rest is given back */
    assert_true(counter_read(fixture) >= last);
    assert_true(kit_fences(fixture->store, 1) > last);
}

/* As many are drawn between prepare and commit as the commit wants to set aside: the counter is
 * where it would be if it had set them aside (P4). */
static void fences_that_somebody_else_drew_are_not_set_aside(void **state)
{
    struct fixture *fixture = *state;
    uint64_t highest = 0;
    for (unsigned i = 1; i <= 30; i++) {
        struct record record = kit_record(i, i);
        struct store_want want = {.key = &record.key.hash};
        uint64_t fences = 1 + i % 3;
        struct store_batch batch = {
            .wants = &want, .count = 1, .fences = fences, .arena = &fixture->arena};
        struct err err = {0};
        assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), OK);
        assert_true(batch.fence_first > highest);
        highest = record.fence = batch.fence_first + fences - 1;
        if (i % 4 == 0) {
            highest = kit_fences(fixture->beside, (unsigned)fences) + fences - 1;
        }
        assert_int_equal(commit_one(fixture->store, &record, &err), OK);
    }
}

static void a_wrong_url_is_refused_and_shows_no_password(void **state)
{
    (void)state;
    static const char *const wrong[] = {"redis:", "redis:/x", "redis://", "redis://:sekret@",
        "redis://me:sekret@host:0", "redis://me:sekret@host:99999", "redis://me:sekret@host/x",
        "redis://me:sekret@host?name=a b", "redis://me:sekret@host?name=", "redis://h?speed=9",
        "redis://me:sekret@host?wait=99", "redis://me:sekret@host?wait_timeout=1h",
        "redis://me:sekret@host?socket=/x", "redis://me:sekret%zz@host", "redis://?socket=x",
        "redis://h?name", "redis://[::1", "redis://me:sekret@a,,b", "redis://a,b,c,d,e,f,g,h,i",
        "redis://h?cacert=/x", "rediss://h?cert=/x", "rediss://h?key=/x",
        "rediss://h?cacert=", "redis+sentinel://me:sekret@h", "redis+sentinel://h/",
        "redis+sentinel://h/a/x", "redis+sentinel:///a", "rediss+sentinel://h"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = {0};
        enum status status = store_url_check(wrong[i], &err);
        if (status != E_INVALID) {
            print_error("'%s' is taken\n", wrong[i]);
        }
        assert_int_equal(status, E_INVALID);
        assert_true(err.text[0] != '\0');
        assert_null(strstr(err.text, "sekret"));
    }
    static const char *const right[] = {"redis://h", "redis://h:1/3", "redis://u:p%40@h/0?name=a.b",
        "redis://?socket=/run/redis.sock", "redis://[::1]:7000?wait=2&wait_timeout=100ms",
        "redis://:p@h", "rediss://h", "rediss://me:p@h:1/2?cacert=/x&cert=/y&key=/z",
        "redis://a,b:7000,[::1]:7001", "redis+sentinel://a,b:26380/mymaster",
        "rediss+sentinel://:p@a/mymaster/3?name=x"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct err err = {0};
        enum status status = store_url_check(right[i], &err);
        if (status != OK) {
            print_error("'%s': %s\n", right[i], err.text);
        }
        assert_int_equal(status, OK);
        assert_true(store_url_shared(right[i])); /* or it would be verified as a journal is */
    }
    struct store *store = NULL;
    struct err err = {0};
    assert_int_equal(
        store_open("redis://me:sekret@127.0.0.1:1", NULL, &store, &err), E_UNAVAILABLE);
    assert_null(strstr(err.text, "sekret"));
}

enum { MADE = 3 }; /* records of a commit: with a short request, a long one, and none */

static enum status commit_made(struct store *store, const struct record records[MADE],
    const struct slice bodies[MADE], struct err *err)
{
    struct change changes[MADE] = {{.kind = CHANGE_NONE}};
    struct entry entry = kit_entry(store, &records[0].operation_id, "{\"a\":1}");
    for (unsigned i = 0; i < MADE; i++) {
        changes[i] = (struct change){
            .kind = CHANGE_PUT, .record = &records[i], .request_body = bodies[i], .entry = entry};
        entry.seq++;
        entry.hash.bytes[0]++;
    }
    struct commit commit = {.changes = changes, .count = MADE};
    return store->ops->commit(store, &commit, err);
}

/* Whichever allocation fails: the commit says so and nothing of it is there; the store goes on. */
static void a_commit_without_memory_never_happened(void **state)
{
    enum { LONG_BODY = 5000 };
    static const char text[LONG_BODY];
    struct fixture *fixture = *state;
    struct faulty faulty = {0};
    const struct mem mem = {.resize = faulty_resize, .context = &faulty};
    const struct slice bodies[MADE] = {SLICE_LIT("pay"), slice_of(text, LONG_BODY), SLICE_EMPTY};
    bool failed = true;
    unsigned number = 0;
    long nth = 0;
    while (failed) {
        struct err err = {0};
        struct record records[MADE];
        struct store *store = open_with(fixture, fixture->port, &mem);
        for (unsigned i = 0; i < MADE; i++) {
            number++;
            records[i] = kit_record(number, number);
            records[i].request = bodies[i].len > 0 ? kit_body(bodies[i]) : records[i].request;
        }
        prepare(store);
        faulty_arm(&faulty, ++nth, 0);
        enum status status = commit_made(store, records, bodies, &err);
        failed = faulty.asked >= nth;
        faulty_arm(&faulty, 0, 0);
        assert_int_equal(status, failed ? E_NOMEM : OK);
        for (unsigned i = 0; i < MADE; i++) {
            const struct record *found = kit_load(fixture->beside, number - i, &fixture->arena);
            assert_int_equal(found != NULL, status == OK);
        }
        if (failed) {
            prepare(store);
            assert_int_equal(commit_made(store, records, bodies, &err), OK);
            assert_non_null(kit_load(fixture->beside, number, &fixture->arena));
        }
        assert_int_equal(kit_close(store), OK);
    }
    assert_true(nth > 10);
    assert_int_equal(faulty.live, 0);
}

static struct record large_record(unsigned number, unsigned round)
{
    static char keys[LARGE_MAX][24];
    struct err err = {0};
    assert_true(number < LARGE_MAX);
    (void)snprintf(keys[number], sizeof keys[number], "large-%u", number);
    struct record record = kit_record(number, number + 1);
    record.key.key = slice_str(keys[number]);
    assert_int_equal(record_key_seal(&record.key, &err), OK);
    record.operation_id = op_id_make(KIT_NOW, &record.key.hash, number + 1);
    return round == 0 ? record : kit_sealed(&record, KIT_NOW + 86400000);
}

/* One commit of these records, which makes them in round 0 and seals them in round 1. Then all are
 * found by their ids. */
static void large_put(struct fixture *fixture, unsigned from, unsigned until, unsigned round)
{
    static struct record records[LARGE_MAX];
    static struct change changes[LARGE_MAX];
    struct err err = {0};
    for (unsigned i = from; i < until; i++) {
        records[i] = large_record(i, round);
        changes[i] =
            (struct change){.kind = CHANGE_PUT, .record = &records[i], .version_expected = round};
    }
    struct commit commit = {.changes = changes + from, .count = until - from};
    assert_int_equal(kit_commit(fixture->store, &commit, KIT_NOW, &err), OK);
    for (unsigned i = from; i < until; i++) {
        const struct record *found = NULL;
        assert_int_equal(kit_find(fixture->beside, &records[i].operation_id, STORE_OPERATIONS,
                             &fixture->arena, &found, &err),
            OK);
        assert_non_null(found);
        assert_int_equal(found->version, round + 1);
    }
}

/* One server command takes fewer values than the largest commit has: it is sent in pieces. */
static void the_largest_commit_is_whole(void **state)
{
    enum { COUNT = LIMIT_BATCH_REQUESTS_MAX };
    struct fixture *fixture = *state;
    struct err err = {0};
    for (unsigned round = 0; round < 2; round++) { /* they are made, and sealed */
        large_put(fixture, 0, COUNT, round);
        struct store_counts counts = kit_counts(fixture->beside, STORE_OPERATIONS);
        assert_int_equal(
            counts.by_status[round == 0 ? RECORD_IN_PROGRESS : RECORD_EXECUTED], COUNT);
    }
    assert_int_equal(kit_maintain(fixture->store, KIT_NOW + 86400001, &err), OK);
    assert_int_equal(kit_counts(fixture->beside, STORE_OPERATIONS).records, 0);
}

static int hash_compare(const void *a, const void *b)
{
    return memcmp(a, b, DIGEST_BYTES);
}

/* The hashes that a scan shows, by so many looks at a time. */
static void scan_expect(
    struct fixture *fixture, size_t looks, const struct digest *hashes, size_t count)
{
    enum { LIMIT = 100 };
    struct scan_pace pace = {.looks_max = looks, .reads_max = looks};
    struct scan scan = {.kinds = STORE_OPERATIONS, .limit = LIMIT, .pace = &pace};
    size_t seen = 0;
    while (!pace.done) {
        const struct record *found[LIMIT];
        size_t shown = 0;
        struct err err = {0};
        arena_clear(&fixture->arena);
        assert_int_equal(fixture->beside->ops->scan(
                             fixture->beside, &scan, &fixture->arena, found, &shown, &err),
            OK);
        for (size_t i = 0; i < shown; i++, seen++) {
            assert_true(seen < count);
            assert_memory_equal(&found[i]->key.hash, &hashes[seen], DIGEST_BYTES);
        }
        assert_true(pace.done || hash_compare(&pace.after, &scan.after) > 0); /* or it never ends */
        scan.after = pace.after;
    }
    assert_int_equal(seen, count);
}

/* How often the server has searched a set of keys. */
static uint64_t searches_count(const struct fixture *fixture)
{
    return number_of(fixture, "EVAL return(tonumber(string.match(redis.call('INFO','commandstats'),"
                              "'zrangebylex:calls=([0-9]+)'))) 1 {%s}:keys");
}

/* A scan that may look at many keys and read one searches for one. */
static void scan_costs(struct fixture *fixture, const struct digest *hashes)
{
    enum { CALLS = 20, EACH = 200 }; /* some 40 parts for each key, and more are passed at once */
    struct scan_pace pace = {.looks_max = LARGE_MAX, .reads_max = 1};
    struct scan scan = {.kinds = STORE_OPERATIONS, .limit = 1, .pace = &pace};
    uint64_t before = searches_count(fixture);
    for (size_t i = 0; i < CALLS; i++) {
        const struct record *found = NULL;
        size_t shown = 0;
        struct err err = {0};
        assert_int_equal(fixture->beside->ops->scan(
                             fixture->beside, &scan, &fixture->arena, &found, &shown, &err),
            OK);
        assert_int_equal(shown, 1);
        assert_memory_equal(&found->key.hash, &hashes[i], DIGEST_BYTES);
        scan.after = hashes[i];
    }
    assert_in_range(searches_count(fixture) - before, CALLS, CALLS * EACH);
}

/* The first 32768 keys are in one sorted set, later ones in parts: in a scan's order all the same,
 * found by their ids, and gone when they are forgotten. */
static void keys_of_a_large_store_are_spread_and_keep_their_order(void **state)
{
    enum { TOGETHER = 1000, COUNT = LARGE_MAX };
    static struct digest hashes[COUNT];
    struct fixture *fixture = *state;
    struct err err = {0};
    for (unsigned i = 0; i < COUNT; i++) {
        hashes[i] = large_record(i, 0).key.hash;
    }
    qsort(hashes, COUNT, sizeof *hashes, hash_compare);
    large_put(fixture, 0, TOGETHER / 2, 0);
    /* As if so many others were there, that one more commit just fits. */
    (void)number_of(
        fixture, "EVAL for\ti=1,31768\tdo\tredis.call('ZADD','{%s}:keys',0,'other:'..i)\tend 0");
    large_put(fixture, TOGETHER / 2, TOGETHER, 0);
    assert_int_equal(number_of(fixture, "ZCARD {%s}:keys"), 32768);
    assert_int_equal(number_of(fixture, "HEXISTS {%s}:store spread"), 0);
    large_put(fixture, TOGETHER, COUNT, 0);
    assert_int_equal(number_of(fixture, "HEXISTS {%s}:store spread"), 1);
    assert_int_equal(number_of(fixture, "ZREMRANGEBYLEX {%s}:keys [other: (other;"), 31768);
    assert_int_equal(number_of(fixture, "ZCARD {%s}:keys"), TOGETHER);
    for (size_t looks = 5; looks < 4 * COUNT; looks *= 5) {
        scan_expect(fixture, looks, hashes, COUNT);
    }
    large_put(fixture, 0, COUNT / 2, 1);
    large_put(fixture, COUNT / 2, COUNT, 1);
    scan_expect(fixture, COUNT, hashes, COUNT);
    scan_costs(fixture, hashes);
    for (unsigned i = 0; i < 2; i++) { /* each forgets up to 1024 */
        assert_int_equal(kit_maintain(fixture->store, KIT_NOW + 86400001, &err), OK);
    }
    scan_expect(fixture, COUNT, NULL, 0);
    assert_int_equal(number_of(fixture, "EVAL return(#redis.call('KEYS','{%s}:keys*')) 0"), 0);
}

/* All records of the store become this text. */
static void records_damage(const struct fixture *fixture, const char *text)
{
    char script[256];
    (void)snprintf(script, sizeof script,
        "for _, key in ipairs(redis.call('KEYS', '{%s}:r:*')) do redis.call('SET', key, ARGV[1]) "
        "end return redis.call('DBSIZE')",
        fixture->name);
    redisContext *context = redisConnect("127.0.0.1", fixture->port);
    assert_true(context != NULL && context->err == 0);
    redisReply *reply = redisCommand(context, "EVAL %s 0 %s", script, text);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
    redisFree(context);
}

/* A record that is a string and does not have its parts is invalid, never absent (S4). */
static void a_record_without_its_parts_is_not_absent(void **state)
{
    static const char *const damages[] = {"", "x", "1", "1 2", "1 2 ab", "4 1 abc",
        "18446744073709551615 2 abc", "1 18446744073709551615 abc", "-1 1 abc", "1 2 abc"};
    struct fixture *fixture = *state;
    struct err err = {0};
    struct record record = kit_record(1, 1);
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &record, &err), OK);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct record *found = NULL;
        records_damage(fixture, damages[i]);
        struct store *store = open_at(fixture, fixture->port);
        assert_int_equal(
            kit_read(store, &record.key.hash, &fixture->arena, &found, &err), E_CORRUPT);
        assert_null(found);
        (void)kit_close(store);
    }
}

#define ON_SERVER(name)                                                                            \
    {                                                                                              \
#name, name, setup, teardown, NULL                                                         \
    }

int main(void)
{
    if (getenv("ONCE_TEST_REDIS") == NULL) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        ON_SERVER(a_commit_knows_its_fate_wherever_the_connection_breaks),
        ON_SERVER(a_commit_that_was_given_up_never_happens),
        ON_SERVER(a_server_that_lost_what_it_acknowledged_stops_the_store),
        ON_SERVER(a_server_that_went_back_in_time_stops_the_store),
        ON_SERVER(fences_that_went_back_stop_the_store),
        ON_SERVER(a_server_that_forgot_the_scripts_gets_them_again),
        ON_SERVER(a_server_without_memory_refuses_and_goes_on),
        ON_SERVER(a_commit_without_memory_never_happened),
        ON_SERVER(a_record_without_its_parts_is_not_absent),
        ON_SERVER(the_largest_commit_is_whole),
        ON_SERVER(keys_of_a_large_store_are_spread_and_keep_their_order),
        ON_SERVER(a_record_that_was_forgotten_and_made_anew_is_a_different_one),
        ON_SERVER(a_server_that_was_away_is_found_again),
        ON_SERVER(evidence_past_its_retention_leaves),
        ON_SERVER(a_prepare_is_asked_again_wherever_the_connection_breaks),
        ON_SERVER(a_look_up_is_asked_again_wherever_it_breaks),
        ON_SERVER(a_commit_that_nobody_could_ask_about_is_settled_later),
        ON_SERVER(a_server_without_more_than_the_open_commit_has_lost_some),
        ON_SERVER(a_commit_that_fails_halfway_stops_the_store),
        ON_SERVER(a_commit_that_fails_before_its_first_write_never_happened),
        ON_SERVER(fences_set_aside_are_the_next_ones_or_none),
        ON_SERVER(fences_that_somebody_else_drew_are_not_set_aside),
        TEST(a_wrong_url_is_refused_and_shows_no_password),
    };
    return cmocka_run_group_tests_name("redis", tests, NULL, NULL);
}

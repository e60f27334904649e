/*
 * What only a store on a Redis cluster can get wrong: its slot is moved between a prepare and its
 * commit. ONCE_TEST_REDIS names the nodes of a cluster of its own (tests/servers.py).
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/kit.h"

enum { NODES = 3 };

struct fixture {
    redisContext *nodes[NODES];
    char ids[NODES][64];
    char name[64];
    char key[80];   /* that every script names */
    unsigned owner; /* of the slot, at first */
    unsigned target;
    struct store *store;
    struct arena arena;
};

/* What a node answers, as text; an error too. */
static void ask(
    struct fixture *fixture, unsigned node, char *ret_text, size_t size, const char *text)
{
    redisReply *reply = redisCommand(fixture->nodes[node], text);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_INTEGER) {
        (void)snprintf(ret_text, size, "%lld", reply->integer);
    } else {
        (void)snprintf(ret_text, size, "%s", reply->str);
    }
    freeReplyObject(reply);
}

static void tell(struct fixture *fixture, unsigned node, const char *text)
{
    char answer[128];
    ask(fixture, node, answer, sizeof answer, text);
    assert_string_equal(answer, "OK");
}

static void slot_set(struct fixture *fixture, unsigned node, const char *state)
{
    char slot[32];
    char text[160];
    (void)snprintf(text, sizeof text, "CLUSTER KEYSLOT %s", fixture->key);
    ask(fixture, node, slot, sizeof slot, text);
    (void)snprintf(text, sizeof text, "CLUSTER SETSLOT %s %s", slot, state);
    tell(fixture, node, text);
}

static void move_begin(struct fixture *fixture)
{
    char state[96];
    (void)snprintf(state, sizeof state, "IMPORTING %s", fixture->ids[fixture->owner]);
    slot_set(fixture, fixture->target, state);
    (void)snprintf(state, sizeof state, "MIGRATING %s", fixture->ids[fixture->target]);
    slot_set(fixture, fixture->owner, state);
}

static void move_cancel(struct fixture *fixture)
{
    slot_set(fixture, fixture->owner, "STABLE");
    slot_set(fixture, fixture->target, "STABLE");
}

/* How many nodes serve the slot, the last of them in owner. One that has not heard of all others
 * yet answers CLUSTERDOWN. */
static unsigned find_owner(struct fixture *fixture)
{
    char text[160];
    char answer[128];
    unsigned found = 0;
    (void)snprintf(text, sizeof text, "EXISTS %s", fixture->key);
    for (unsigned i = 0; i < NODES; i++) {
        ask(fixture, i, answer, sizeof answer, text);
        if (strcmp(answer, "0") == 0 || strcmp(answer, "1") == 0) {
            fixture->owner = i;
            found++;
        }
    }
    return found;
}

static void nodes_connect(struct fixture *fixture)
{
    int tries = 1000;
    const char *at = getenv("ONCE_TEST_REDIS");
    for (unsigned i = 0; i < NODES; i++) {
        at = strchr(strstr(at, "127.0.0.1:"), ':') + 1;
        fixture->nodes[i] = redisConnect("127.0.0.1", (int)strtol(at, NULL, 10));
        assert_true(fixture->nodes[i] != NULL && fixture->nodes[i]->err == 0);
        ask(fixture, i, fixture->ids[i], sizeof fixture->ids[i], "CLUSTER MYID");
    }
    while (find_owner(fixture) != 1) {
        assert_true(tries-- > 0);
        (void)usleep(10000);
    }
    fixture->target = (fixture->owner + 1) % NODES;
}

static int setup(void **state)
{
    static unsigned number;
    char url[256];
    struct err err = {0};
    struct fixture *fixture = calloc(1, sizeof *fixture);
    const struct store_options options = {.clock = &kit_clock};
    assert_non_null(fixture);
    (void)snprintf(fixture->name, sizeof fixture->name, "own-%ld-%u", (long)getpid(), number++);
    (void)snprintf(fixture->key, sizeof fixture->key, "{%s}:store", fixture->name);
    (void)snprintf(url, sizeof url, "%s?name=%s", getenv("ONCE_TEST_REDIS"), fixture->name);
    arena_init(&fixture->arena, &mem_libc, 64 << 20);
    kit_set_time(KIT_NOW);
    nodes_connect(fixture);
    assert_int_equal(store_open(url, &options, &fixture->store, &err), OK);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    (void)kit_close(fixture->store);
    for (unsigned i = 0; i < NODES; i++) {
        redisFree(fixture->nodes[i]);
    }
    arena_release(&fixture->arena);
    free(fixture);
    return 0;
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
    assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
}

/* Its first keys could be written here while others are said to be there: half of it would stay. */
static void a_commit_that_meets_a_moving_slot_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    char text[160];
    char keys[128];
    struct record first = kit_record(1, 1);
    struct record second = kit_record(2, 2);
    kit_put_flush(fixture->store, &first, 0);
    prepare(fixture->store);
    move_begin(fixture);
    assert_int_equal(commit_one(fixture->store, &second, &err), E_UNAVAILABLE);
    struct store_batch batch = {.fences = 1};
    assert_int_equal(fixture->store->ops->prepare(fixture->store, &batch, &err), E_UNAVAILABLE);
    move_cancel(fixture);
    (void)snprintf(text, sizeof text, "ZCARD {%s}:keys", fixture->name);
    ask(fixture, fixture->owner, keys, sizeof keys, text);
    assert_string_equal(keys, "1");
    (void)snprintf(text, sizeof text, "XLEN {%s}:entries", fixture->name);
    ask(fixture, fixture->owner, keys, sizeof keys, text);
    assert_string_equal(keys, "1");
    prepare(fixture->store);
    assert_int_equal(commit_one(fixture->store, &second, &err), OK);
    assert_non_null(kit_load(fixture->store, 2, &fixture->arena));
}

/* The slot went to a different node between the two, with all its keys: nothing was run where it
 * was, and the commit holds where it is. */
static void a_commit_is_sent_to_where_the_slot_went(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    char slot_state[96];
    char text[160];
    char answer[128];
    struct record first = kit_record(1, 1);
    kit_put_flush(fixture->store, &first, 0);
    prepare(fixture->store);
    move_begin(fixture);
    /* All keys of the slot, as redis-cli moves them. */
    (void)snprintf(text, sizeof text, "CLUSTER KEYSLOT %s", fixture->key);
    ask(fixture, fixture->owner, answer, sizeof answer, text);
    (void)snprintf(text, sizeof text, "CLUSTER GETKEYSINSLOT %s 1000", answer);
    redisReply *keys = redisCommand(fixture->nodes[fixture->owner], text);
    assert_true(keys != NULL && keys->type == REDIS_REPLY_ARRAY && keys->elements > 5);
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *moved = redisCommand(fixture->nodes[fixture->owner],
            "MIGRATE 127.0.0.1 %d %b 0 5000", fixture->nodes[fixture->target]->tcp.port,
            keys->element[i]->str, (size_t)keys->element[i]->len);
        assert_non_null(moved);
        assert_string_equal(moved->str, "OK");
        freeReplyObject(moved);
    }
    freeReplyObject(keys);
    (void)snprintf(slot_state, sizeof slot_state, "NODE %s", fixture->ids[fixture->target]);
    slot_set(fixture, fixture->target, slot_state);
    slot_set(fixture, fixture->owner, slot_state);
    struct record second = kit_record(2, 2);
    assert_int_equal(commit_one(fixture->store, &second, &err), OK);
    assert_non_null(kit_load(fixture->store, 1, &fixture->arena));
    (void)snprintf(text, sizeof text, "ZCARD {%s}:keys", fixture->name);
    ask(fixture, fixture->target, answer, sizeof answer, text);
    assert_string_equal(answer, "2");
}

#define ON_CLUSTER(name)                                                                           \
    {                                                                                              \
#name, name, setup, teardown, NULL                                                         \
    }

int main(void)
{
    if (getenv("ONCE_TEST_REDIS") == NULL) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        ON_CLUSTER(a_commit_that_meets_a_moving_slot_leaves_nothing),
        ON_CLUSTER(a_commit_is_sent_to_where_the_slot_went),
    };
    return cmocka_run_group_tests_name("redis_cluster", tests, NULL, NULL);
}

/*
 * GET /v1/evidence and GET /v1/evidence/head.
 *
 *     query > look (a page of this tenant's entries) > note (access.read, durable) > show
 *
 * Nothing of a page is shown before the entry that says who read it is on stable storage (GRD-4): a
 * crash or a full disk between the two leaves somebody who was told nothing. The other way round it
 * is harmless: the entry says that a page was read which its reader never got.
 *
 * What a tenant learns of others (P9). There is one chain for all tenants of a store, dense, so
 * that a dropped entry shows as a gap; an entry's seq is part of its hashed bytes and cannot be
 * hidden or renumbered for one reader without breaking the proof. Whoever holds the right to audit
 * can tell from two numbers how many entries lie between them, and no more: neither whose they are
 * nor what they say. The head shows nothing beyond that: a tenant could as well read its own newest
 * entry, which its reading has just made. Counts of records, which no proof needs, are not shown.
 * Without the right to audit there is neither.
 */
#include <stdio.h>

#include "api/body.h"
#include "api/routes.h"
#include "base/limits.h"
#include "base/text.h"
#include "canon/jsonw.h"
#include "engine/query.h"
#include "evidence/cursor.h"
#include "evidence/entry.h"

enum {
    ENTRIES_DEFAULT = 100,
    TIES_BYTES = 256, /* what entry_show adds to the stored bytes: two hashes and their names */
};

/* One reading of a page. In the exchange's arena. */
struct reading {
    struct query look;
    struct engine_call call; /* of the note */
    struct note note;
    struct api_ask *ask;
    char reason[LIMIT_REASON_BYTES_MAX]; /* what was asked */
};

/* On the engine's thread: go on on the exchange's own. */
static void wake(struct engine_call *call)
{
    http_wake(call->context);
}

/* The chain that a page is of, and where in it. */
static struct evidence_cursor cursor_at(const struct api_ask *ask, uint64_t seq)
{
    struct evidence_cursor cursor = {.seq = seq};
    const struct store_identity *identity = engine_identity(door_engine(ask->api->door));
    memcpy(cursor.chain_id, identity->chain_id, sizeof cursor.chain_id);
    return cursor;
}

static void refuse_parameter(struct api_ask *ask, const char *detail)
{
    struct problem problem = {.status = 400,
        .code = "invalid_parameter",
        .detail = slice_str(detail),
        .effect = PROBLEM_EFFECT_NO,
        .retry = PROBLEM_RETRY_NO};
    api_refuse(ask, &problem);
}

/* E_INVALID says what is wrong. */
static enum status read_query(const struct api_ask *ask, struct query *look, struct err *err)
{
    struct slice text;
    uint64_t limit = ENTRIES_DEFAULT;
    if (api_param(ask, "operation_id", &text) && !op_id_read(text, &look->operation_id)) {
        return err_set(err, E_INVALID, "parameter 'operation_id' is not the id of an operation");
    }
    /* An empty one is the first page, as a loop over pages asks for it. */
    struct evidence_cursor start = cursor_at(ask, 0);
    if (api_param(ask, "after", &text) &&
        evidence_cursor_read(text, start.chain_id, &look->after_seq, err) != OK) {
        err_prefix(err, "parameter 'after'");
        return E_INVALID;
    }
    if (api_param(ask, "limit", &text) &&
        (!text_u64(text, &limit) || limit < 1 || limit > LIMIT_PAGE_ENTRIES_MAX)) {
        return err_set(err, E_INVALID, "parameter 'limit' is not a whole number from 1 to 1000");
    }
    look->limit = (size_t)limit;
    return OK;
}

/* Entries take as much as they are stored with, and the ties: one piece of the arena. */
static size_t page_bytes(const struct query *look)
{
    size_t bytes = TIES_BYTES;
    for (size_t i = 0; i < look->count; i++) {
        bytes += look->entries[i].entry.bytes.len + TIES_BYTES;
    }
    return bytes;
}

/* `next` ends with the last page; `resume` does not: what comes later is after it. */
static void put_cursors(const struct api_ask *ask, const struct query *look, struct buf *out)
{
    char text[EVIDENCE_CURSOR_BYTES];
    struct evidence_cursor cursor = cursor_at(ask, look->next_seq);
    (void)evidence_cursor_put(text, &cursor);
    buf_str(out, ",\"next\":");
    if (look->has_more) {
        buf_char(out, '"');
        buf_str(out, text);
        buf_char(out, '"');
    } else {
        buf_str(out, "null");
    }
    buf_str(out, ",\"resume\":\"");
    buf_str(out, text);
    buf_char(out, '"');
}

static enum status put_page(const struct api_ask *ask, const struct query *look, struct buf *out)
{
    enum status status = buf_reserve(out, page_bytes(look));
    buf_str(out, "{\"entries\":[");
    for (size_t i = 0; i < look->count && status == OK; i++) {
        buf_str(out, i == 0 ? "" : ",");
        status = entry_show(&look->entries[i].entry, &look->entries[i].prev_hash, out);
    }
    buf_char(out, ']');
    put_cursors(ask, look, out);
    buf_char(out, '}');
    return status == OK ? buf_status(out) : status;
}

static void show(struct api_ask *ask, const struct query *look)
{
    struct buf out;
    buf_init(&out, &ask->mem, 2 * (size_t)LIMIT_PAGE_BYTES_MAX);
    enum status status = put_page(ask, look, &out);
    if (status == E_CORRUPT) {
        struct err err;
        (void)err_set(&err, E_CORRUPT, "an entry of the evidence does not check out");
        api_fail(ask, &err);
    } else if (status != OK) {
        api_fail_memory(ask);
    } else {
        api_answer_begin(ask, 200);
        api_answer_end(ask, SLICE_LIT("application/json"), buf_view(&out), true);
    }
}

static void noted(void *api, struct http_exchange *exchange)
{
    (void)api;
    struct reading *reading = exchange->state;
    if (reading->call.err.status != OK) {
        api_fail(reading->ask, &reading->call.err);
    } else {
        show(reading->ask, &reading->look);
    }
}

/* What was asked, as it was understood. */
static struct slice reason_of(struct reading *reading)
{
    static const struct op_id none = {{0}};
    const struct query *look = &reading->look;
    char id[OP_ID_TEXT_BYTES] = "";
    if (!op_id_equal(&look->operation_id, &none)) {
        (void)op_id_put(id, &look->operation_id);
    }
    int size =
        snprintf(reading->reason, sizeof reading->reason, "evidence %s%safter %llu limit %zu", id,
            id[0] == '\0' ? "" : " ", (unsigned long long)look->after_seq, look->limit);
    return slice_of(reading->reason, (size_t)size);
}

/* The page was found: leave access.read before anybody sees it. */
static void looked(void *api, struct http_exchange *exchange)
{
    (void)api;
    struct reading *reading = exchange->state;
    struct api_ask *ask = reading->ask;
    if (reading->look.call.err.status != OK) {
        api_fail(ask, &reading->look.call.err);
        return;
    }
    reading->note = (struct note){.kind = NOTE_ACCESS_READ,
        .tenant = ask->caller.tenant,
        .actor = ask->caller.actor,
        .reason = reason_of(reading),
        .count = reading->look.count};
    struct err err = {0};
    if (api_trace(ask, NULL, &reading->note.trace, &err) != OK) {
        api_fail_memory(ask);
        return;
    }
    if (reading->look.count > 0) {
        reading->note.operation_id = reading->look.operation_id; /* it is one of this tenant's */
    }
    reading->call = (struct engine_call){
        .note = &reading->note, .arena = exchange->arena, .context = exchange, .done = wake};
    exchange->resume = noted;
    if (engine_submit(door_engine(ask->api->door), &reading->call, &err) != OK) {
        api_fail(ask, &err);
    }
}

void api_evidence_list(struct api_ask *ask)
{
    struct http_exchange *exchange = ask->exchange;
    struct reading *reading = arena_zalloc(exchange->arena, sizeof *reading);
    if (reading == NULL) {
        api_fail_memory(ask);
        return;
    }
    reading->ask = ask;
    struct query *look = &reading->look;
    look->kind = QUERY_ENTRIES;
    look->tenant = ask->caller.tenant;
    look->call.arena = exchange->arena;
    look->call.context = exchange;
    look->call.done = wake;
    struct err err = {0};
    if (read_query(ask, look, &err) != OK) {
        refuse_parameter(ask, err.text);
        return;
    }
    exchange->state = reading;
    exchange->resume = looked;
    if (query_submit(door_engine(ask->api->door), look, &err) != OK) {
        api_fail(ask, &err);
    }
}

/* --- The head --------------------------------------------------------------------------------- */

struct heading {
    struct query query; /* answered as every query is: only when what it saw is durable (E1) */
    struct api_ask *ask;
};

static void headed(void *api, struct http_exchange *exchange)
{
    (void)api;
    struct heading *heading = exchange->state;
    struct api_ask *ask = heading->ask;
    const struct store_head *head = &heading->query.head;
    if (heading->query.call.err.status != OK) {
        api_fail(ask, &heading->query.call.err);
        return;
    }
    struct chain chain;
    chain_init(&chain, head, engine_identity(door_engine(ask->api->door)));
    char hash[DIGEST_HEX_BYTES];
    struct buf out;
    buf_init(&out, &ask->mem, 1024);
    struct jsonw json = {.out = &out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "chain_id", chain.chain_id);
    jsonw_u64(&json, "seq", head->seq);
    jsonw_str(&json, "hash", digest_put_hex(hash, &head->hash));
    jsonw_close(&json, '}');
    if (buf_status(&out) != OK) {
        api_fail_memory(ask);
        return;
    }
    api_answer_begin(ask, 200);
    api_answer_end(ask, SLICE_LIT("application/json"), buf_view(&out), true);
}

void api_evidence_head(struct api_ask *ask)
{
    struct http_exchange *exchange = ask->exchange;
    struct heading *heading = arena_zalloc(exchange->arena, sizeof *heading);
    if (heading == NULL) {
        api_fail_memory(ask);
        return;
    }
    heading->ask = ask;
    heading->query = (struct query){
        .kind = QUERY_HEAD, .call = {.arena = exchange->arena, .context = exchange, .done = wake}};
    exchange->state = heading;
    exchange->resume = headed;
    struct err err = {0};
    if (query_submit(door_engine(ask->api->door), &heading->query, &err) != OK) {
        api_fail(ask, &err);
    }
}

/*
 * GET /v1/evidence and GET /v1/evidence/head.
 *
 *     name? > query (a page of this tenant's entries) > note (access.read, durable) > answer
 *
 * Nothing of a page is shown before the entry that says who read it is on stable storage (GRD-4).
 * After a crash or a full disk between the two, the reader has seen nothing. Then the entry reports
 * a read that never reached its reader, which is harmless.
 *
 * What a tenant learns of others (P9). All tenants of a store share one chain. It is dense, so that
 * a dropped entry shows as a gap. An entry's seq is part of its hashed bytes: it cannot be hidden
 * or renumbered for one reader without breaking the proof. A caller with the right to audit can
 * tell from two numbers how many entries lie between them, but neither whose they are nor what they
 * say. The head shows no more: a tenant could as well read its own newest entry, which its own read
 * has just made. Counts of records, which no proof needs, are not shown. Without the right to
 * audit, a caller sees neither.
 *
 * Entries about the whole store have no tenant: that segments were archived, that a process was
 * interrupted, that somebody read every tenant's evidence. They are shown on the own socket alone,
 * to a caller who asks for every tenant.
 */
#include <stdio.h>

#include "api/call.h"
#include "api/named.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "canon/jsonw.h"
#include "evidence/cursor.h"
#include "evidence/entry.h"
#include "evidence/entry_form.h"

enum {
    ENTRIES_DEFAULT = 100,
    ADDED_BYTES = 1024, /* at most: what entry_show adds to the stored bytes */
};

/* A page on its way to its reader. In the exchange's arena. */
struct evidence_page {
    struct api_query page;
    struct engine_call call; /* of the note */
    struct note note;
    enum record_kind about;              /* the kind of the id in the query */
    struct api_named named;              /* the search for an id that a submitter gave */
    char reason[LIMIT_REASON_BYTES_MAX]; /* the query, as text */
};

/* E_INVALID says what is wrong. */
static enum status read_query(
    const struct api_request *request, struct evidence_page *self, struct err *err)
{
    struct slice text;
    struct query *query = &self->page.query;
    uint64_t limit = ENTRIES_DEFAULT;
    if (api_param(request, "operation_id", &self->named.name) && self->named.name.len == 0) {
        return err_set(err, E_INVALID, "parameter 'operation_id' is empty");
    }
    /* An empty cursor means the first page, as a loop over pages sends it. */
    if (api_param(request, "after", &text) &&
        evidence_cursor_read(text, &query->after_entry, err) != OK) {
        err_prefix(err, "parameter 'after'");
        return E_INVALID;
    }
    if (api_param(request, "limit", &text) &&
        (!text_u64(text, &limit) || limit < 1 || limit > LIMIT_PAGE_ENTRIES_MAX)) {
        return err_set(err, E_INVALID, "parameter 'limit' is not a whole number from 1 to 1000");
    }
    query->limit = (size_t)limit;
    return OK;
}

/* Entries take as much as they are stored with, plus ADDED_BYTES: one piece of the arena. */
static size_t page_bytes(const struct query *query)
{
    size_t bytes = ADDED_BYTES;
    for (size_t i = 0; i < query->count; i++) {
        bytes += query->entries[i].entry.bytes.len + ADDED_BYTES;
    }
    return bytes;
}

/* `next` is null on the last page. `resume` never is: later entries come after it. */
static void put_cursors(const struct query *query, struct buf *out)
{
    char text[EVIDENCE_CURSOR_BYTES];
    (void)evidence_cursor_put(text, &query->next_entry);
    buf_str(out, ",\"next\":");
    if (query->has_more) {
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

static enum status put_page(const struct query *query, struct buf *out)
{
    enum status status = buf_reserve(out, page_bytes(query));
    buf_str(out, "{\"entries\":[");
    for (size_t i = 0; i < query->count && status == OK; i++) {
        buf_str(out, i == 0 ? "" : ",");
        status = entry_show(&query->entries[i].entry, &query->entries[i].prev_hash, out);
    }
    buf_char(out, ']');
    put_cursors(query, out);
    buf_char(out, '}');
    return status;
}

static void answer_page(struct api_request *request, const struct query *query)
{
    struct buf out;
    buf_init(&out, &request->mem,
        2 * (size_t)LIMIT_PAGE_BYTES_MAX + LIMIT_PAGE_ENTRIES_MAX * (size_t)ADDED_BYTES);
    enum status status = put_page(query, &out);
    if (status == E_CORRUPT) {
        struct err err;
        (void)err_set(&err, E_CORRUPT, "an entry of the evidence does not check out");
        api_fail(request, &err);
    } else {
        api_answer_json(request, &out);
    }
}

static void noted(void *api, struct http_exchange *exchange)
{
    (void)api;
    struct evidence_page *self = exchange->state;
    if (self->call.err.status != OK) {
        api_fail(self->page.request, &self->call.err);
    } else {
        answer_page(self->page.request, &self->page.query);
    }
}

static void note_done(struct engine_call *call)
{
    http_wake(call->context);
}

/* The query, as it was understood. */
static struct slice reason_of(struct evidence_page *self)
{
    static const struct op_id zeros = {{0}};
    const struct query *query = &self->page.query;
    char id[KIND_ID_TEXT_BYTES] = "";
    if (!op_id_equal(&query->operation_id, &zeros)) {
        (void)kind_id_put(id, self->about, &query->operation_id);
    }
    int size = snprintf(self->reason, sizeof self->reason, "evidence %s%safter %llu limit %zu", id,
        id[0] == '\0' ? "" : " ", (unsigned long long)query->after_entry.seq, query->limit);
    return slice_of(self->reason, (size_t)size);
}

/* The page was found: write access.read before anybody sees it. */
static void note_page(struct api_query *page)
{
    struct evidence_page *self = CONTAINER_OF(page, struct evidence_page, page);
    struct api_request *request = page->request;
    bool is_of_all = page->query.any_tenant;
    struct http_exchange *exchange = request->exchange;
    self->note = (struct note){.kind = NOTE_ACCESS_READ,
        .tenant = is_of_all ? SLICE_EMPTY : request->caller.tenant,
        .actor = request->caller.actor,
        .reason = reason_of(self),
        .count = page->query.count};
    struct err err = {0};
    if (api_trace(request, NULL, &self->note.trace, &err) != OK) {
        api_fail_memory(request);
        return;
    }
    if (page->query.count > 0 && !is_of_all) { /* else the id is in the reason only (P9) */
        self->note.operation_id = page->query.operation_id; /* it is this tenant's */
        self->note.about = self->about;
    }
    self->call = (struct engine_call){
        .note = &self->note, .arena = exchange->arena, .context = exchange, .done = note_done};
    exchange->state = self;
    exchange->resume = noted;
    if (engine_submit(door_engine(request->api->door), &self->call, &err) != OK) {
        api_fail(request, &err);
    }
}

/* A cursor from a different chain is the caller's mistake. */
static void page_failed(struct api_query *page, const struct err *err)
{
    struct err said = *err;
    if (err->status == E_INVALID) {
        err_prefix(&said, "parameter 'after'");
        api_refuse_plain(page->request, 400, "invalid_parameter", said.text);
    } else {
        api_fail(page->request, err);
    }
}

/* The search is over: name is our id, or no record has it. Evidence outlives its record, so our id
 * of an absent one has a page too. */
static void take_name(struct api_named *named)
{
    struct evidence_page *self = CONTAINER_OF(named, struct evidence_page, named);
    if (kind_id_read(named->name, &self->about, &self->page.query.operation_id)) {
        api_query_run(&self->page, named->query.request);
    } else {
        api_refuse_plain(named->query.request, 400, "invalid_parameter",
            "parameter 'operation_id' is not the id of an operation");
    }
}

/* Our id of a kind that has no given ids is not searched for. Nor is a name in all tenants at once:
 * two of them may have given it. */
static void find_name(struct api_request *request, struct evidence_page *self)
{
    enum record_kind kind;
    struct op_id id;
    unsigned kinds = api_named_kinds(request->api);
    bool is_ours = kind_id_read(self->named.name, &kind, &id);
    bool is_plain = self->page.query.any_tenant || (is_ours && (kinds & 1u << kind) == 0);
    self->named.kinds = is_plain ? 0 : kinds;
    self->named.end = take_name;
    api_named_run(&self->named, request);
}

void api_evidence_list(struct api_request *request)
{
    struct evidence_page *self = arena_zalloc(request->exchange->arena, sizeof *self);
    struct err err = {0};
    if (self == NULL) {
        api_fail_memory(request);
        return;
    }
    self->page.query.kind = QUERY_ENTRIES;
    self->page.query.any_tenant = slice_is(request->caller.tenant, "*"); /* on the own socket */
    self->page.answer = note_page;
    self->page.failed = page_failed;
    if (read_query(request, self, &err) != OK) {
        api_refuse_plain(request, 400, "invalid_parameter", err.text);
        return;
    }
    if (self->named.name.len > 0) {
        find_name(request, self);
    } else {
        api_query_run(&self->page, request);
    }
}

/* --- The head --------------------------------------------------------------------------------- */

static void answer_head(struct api_query *self)
{
    struct api_request *request = self->request;
    const struct store_head *head = &self->query.head;
    struct chain chain;
    chain_init(&chain, head, engine_identity(door_engine(request->api->door)));
    char hash[DIGEST_HEX_BYTES];
    struct buf out;
    buf_init(&out, &request->mem, 1024);
    struct jsonw json = {.out = &out};
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "chain_id", chain.chain_id);
    jsonw_u64(&json, "seq", head->seq);
    jsonw_str(&json, "hash", digest_put_hex(hash, &head->hash));
    jsonw_close(&json, '}');
    api_answer_json(request, &out);
}

void api_evidence_head(struct api_request *request)
{
    /* Answered like every query: only when what it read is durable (EN1). */
    struct api_query *self = api_query_new(request, QUERY_HEAD, answer_head);
    if (self != NULL) {
        api_query_run(self, request);
    }
}

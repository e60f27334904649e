/* GET /v1/commands/{command_id}, GET /v1/commands and GET /v1/registry. A different tenant's
 * commands are not found (P9). */
#include "api/query.h"
#include "base/macros.h"
#include "command/impl.h"
#include "engine/query.h"

enum {
    ENTRY_IDS_MAX = 100,          /* in the document of one command; evidence_url has the others */
    ENTRY_IDS_READ_MAX = 4 << 20, /* bytes of evidence read for them: some milliseconds, in pieces
                                     between which requests go first */
};

static void answer_missing(struct api_request *request)
{
    api_refuse_plain(request, 404, "command_not_found", "there is no such command");
}

static enum status put_one(
    struct jsonw *json, const struct command_document *document, struct arena *arena)
{
    struct detail detail;
    enum status status = detail_read(document->record->detail, arena, &detail);
    if (status == OK) {
        jsonw_open(json, NULL, '{');
        document_put(json, document, &detail);
        jsonw_close(json, '}');
    }
    return status;
}

/* ---- one --------------------------------------------------------------------------------- */

/* A command on its way to its reader, in the exchange's arena. Two queries: its record, and the ids
 * of its entries, from its creation on. A caller without the right to audit gets no ids: their
 * numbers count the entries of all tenants (api/evidence.c). */
struct command_reading {
    struct api_query record; /* first */
    struct api_query entries;
};

static void put_command(
    struct api_request *request, const struct query *query, const struct query *entries)
{
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &request->mem, COMMAND_ANSWER_BYTES_MAX);
    struct command_document document = {.record = query->record,
        .outcome_body = query->outcome_body,
        .has_outcome = true,
        .evidence = entries};
    if (put_one(&json, &document, request->exchange->arena) == OK) {
        api_answer_json(request, &out);
    } else {
        api_refuse_plain(
            request, 500, "store_corrupt", "the record cannot be read; run once verify");
    }
}

static void answer_with_entries(struct api_query *entries)
{
    const struct command_reading *self = CONTAINER_OF(entries, struct command_reading, entries);
    put_command(entries->request, &self->record.query, &entries->query);
}

static void answer_command(struct api_query *record)
{
    struct command_reading *self = CONTAINER_OF(record, struct command_reading, record);
    struct api_request *request = record->request;
    if (record->query.record == NULL) {
        answer_missing(request);
        return;
    }
    if ((request->caller.rights & CONFIG_RIGHT_AUDIT) == 0) {
        put_command(request, &record->query, NULL);
        return;
    }
    self->entries = (struct api_query){.query = {.kind = QUERY_ENTRIES,
                                           .operation_id = record->query.operation_id,
                                           .limit = ENTRY_IDS_MAX,
                                           .read_max = ENTRY_IDS_READ_MAX},
        .answer = answer_with_entries};
    api_query_run(&self->entries, request);
}

bool command_is_named(const struct record *record, struct slice name, struct arena *arena)
{
    struct detail detail;
    return detail_read(record->detail, arena, &detail) == OK &&
           slice_equal(detail.command_id, name);
}

void command_get(struct api_request *request)
{
    enum record_kind kind;
    struct op_id id;
    if (!kind_id_read(request->path_value, &kind, &id) || kind != RECORD_COMMAND) {
        answer_missing(request);
        return;
    }
    struct command_reading *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return;
    }
    self->record = (struct api_query){
        .query = {.kind = QUERY_OPERATION, .kinds = 1u << RECORD_COMMAND, .operation_id = id},
        .answer = answer_command};
    api_query_run(&self->record, request);
}

/* ---- many -------------------------------------------------------------------------------- */

/* Whether a command matches the query. */
static bool is_wanted(
    const struct api_request *request, const struct record *record, const struct detail *detail)
{
    struct slice value;
    return (!api_param(request, "command", &value) || slice_equal(value, detail->command)) &&
           (!api_param(request, "actor_id", &value) || slice_equal(value, detail->actor_id) ||
               slice_equal(value, detail->effective_actor_id)) &&
           (!api_param(request, "status", &value) ||
               slice_is(value, document_status(record, detail)));
}

static void answer_commands(struct api_query *self)
{
    const struct query *query = &self->query;
    struct api_request *request = self->request;
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &request->mem, COMMAND_ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "commands", '[');
    for (size_t i = 0; i < query->count; i++) {
        struct detail detail;
        struct command_document document = {.record = query->records[i]};
        if (detail_read(document.record->detail, request->exchange->arena, &detail) == OK &&
            is_wanted(request, document.record, &detail)) {
            jsonw_open(&json, NULL, '{');
            document_put(&json, &document, &detail);
            jsonw_close(&json, '}');
        }
    }
    jsonw_close(&json, ']');
    api_query_put_next(&json, query);
    jsonw_close(&json, '}');
    api_answer_json(request, &out);
}

/* The status that every command of this word has; 0: it can have several, and the page is filtered
 * after it was read. False: there is no such word. */
static bool take_word(struct slice text, enum record_status *ret_status)
{
    static const struct {
        const char *word;
        enum record_status status;
    } words[] = {{"received", RECORD_PENDING}, {"confirmed", RECORD_PENDING},
        {"awaiting_confirmation", RECORD_WAITING}, {"awaiting_effects", RECORD_WAITING},
        {"started", RECORD_IN_PROGRESS}, {"blocked", 0}, {"executed", RECORD_EXECUTED},
        {"failed", RECORD_FAILED}, {"rejected", RECORD_REJECTED},
        {"compensating", RECORD_COMPENSATING}, {"compensated", RECORD_COMPENSATED}};
    for (size_t i = 0; i < COUNT(words); i++) {
        if (slice_is(text, words[i].word)) {
            *ret_status = words[i].status;
            return true;
        }
    }
    return false;
}

static const char *take_filters(const struct api_request *request, struct scan *scan)
{
    struct slice value;
    scan->kinds = 1u << RECORD_COMMAND;
    (void)!api_param(request, "key", &scan->key);
    if (api_param(request, "status", &value) && !take_word(value, &scan->status)) {
        return "parameter 'status' must be one of received, confirmed, awaiting_confirmation, "
               "awaiting_effects, started, blocked, executed, failed, rejected, compensating or "
               "compensated";
    }
    return NULL;
}

void command_list(struct api_request *request)
{
    struct api_query *self = api_query_new(request, QUERY_RECORDS, answer_commands);
    if (self != NULL) {
        api_query_list(self, request, take_filters(request, &self->query.scan));
    }
}

/* ---- the registry ------------------------------------------------------------------------ */

void command_registry(struct api_request *request)
{
    struct registry *registry = registry_take(request->state);
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &request->mem, COMMAND_ANSWER_BYTES_MAX);
    config_put_registry(&json, registry->config->commands, registry->config->command_count, false);
    registry_drop(registry);
    api_answer_json(request, &out);
}

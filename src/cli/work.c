/* Lists commands, effects and deliveries, and finds one by its id; once confirm and once deny; once
 * retry, cancel, compensate. work_show.c prints one; work_many.c does the last three to many
 * effects. */
#include "cli/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/jsonw.h"
#include "cli/backend.h"
#include "cli/confirm_many.h"
#include "cli/filter.h"
#include "cli/out.h"
#include "cli/remote_read.h"

enum {
    PATH_BYTES_MAX = 1024,
    GIVEN_KINDS = 2, /* the first of kinds: their submitters may give ids */
    ID_COLUMNS = 40, /* a prefix and a UUID */
    ITEMS_MAX = 100000,
    BODY_BYTES_MAX = 64 << 10,
    PAGE_ARENA_BYTES_MAX = 256 << 20, /* a page, and its tree */
};

static const struct work_kind kinds[] = {
    {"cmd_", "commands", "command_id", "operation_id", "command", "actor_id", "command"},
    {"eff_", "effects", "effect_id", "once_effect_id", "effect_type", "command_id", "effect"},
    {"dlv_", "deliveries", "delivery_id", NULL, "source", "key", "delivery"},
};

const struct work_kind *work_kind_of_id(const char *id)
{
    for (size_t i = 0; id != NULL && i < COUNT(kinds); i++) {
        if (strncmp(id, kinds[i].prefix, strlen(kinds[i].prefix)) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

const struct work_kind *work_kind_named(const char *name)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

static int no_server(struct cli *cli)
{
    bool is_shared = cli_store_dir(cli, cli_text(cli, "store")) == NULL;
    cli_say("no server to ask: commands, effects and deliveries live in a running server");
    cli_hint(is_shared ? "--server URL names one of the servers of this store"
                       : "once serve runs one on this store; --server URL names a different one");
    return CLI_UNAVAILABLE;
}

int work_open_server(struct cli *cli, struct remote **ret_remote)
{
    int code = backend_find_server(cli, ret_remote);
    return code == CLI_OK && *ret_remote == NULL ? no_server(cli) : code;
}

/* ---- pages ------------------------------------------------------------------------------- */

/* The records of a kind, page by page. */
struct pages {
    struct cli *cli;
    struct remote *remote;
    const struct work_kind *kind;
    struct arena *arena;              /* for a page, until the caller clears it */
    const struct work_filter *filter; /* NULL: all */
    bool is_over;
    char after[CURSOR_BYTES_MAX]; /* empty: from the start */
    struct slice text;            /* of the current page */
    const struct json_value *list;
};

static const char *page_path(const struct pages *pages)
{
    const char *status = pages->filter == NULL ? NULL : pages->filter->status;
    const char *key = pages->filter == NULL ? NULL : pages->filter->key;
    bool is_uncertain = status != NULL && strcmp(status, "uncertain") == 0;
    const char *values[] = {is_uncertain ? "true" : status, key};
    const char *names[] = {is_uncertain ? "uncertain" : "status", "key"};
    struct mem mem = arena_mem(pages->arena);
    struct buf path;
    buf_init(&path, &mem, PATH_BYTES_MAX);
    buf_printf(&path, "/v1/%s?limit=1000", pages->kind->name);
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *escaped = values[i] == NULL ? NULL : remote_escape(pages->arena, values[i]);
        if (escaped != NULL) {
            buf_printf(&path, "&%s=%s", names[i], escaped);
        }
    }
    if (pages->after[0] != '\0') {
        buf_printf(&path, "&after=%s", pages->after);
    }
    buf_char(&path, '\0');
    return buf_status(&path) == OK ? path.data : NULL;
}

static int next_page(struct pages *pages)
{
    struct err err = {0};
    struct remote_answer answer;
    const char *path = page_path(pages);
    if (path == NULL) {
        cli_say("--status and --key are too long");
        return CLI_USAGE;
    }
    int code = remote_get(pages->remote, path, pages->arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    pages->text = answer.text;
    pages->list = json_find(answer.root, slice_str(pages->kind->name));
    if (!json_is(pages->list, JSON_ARRAY) ||
        !remote_take_next(answer.root, pages->after, &pages->is_over)) {
        (void)err_set(&err, E_INVALID, "the answer is not a page of %s", pages->kind->name);
        return remote_unreadable(pages->remote, &err);
    }
    return CLI_OK;
}

/* These are not statuses of an effect, but they are what an operator looks for. So are "blocked" of
 * a command and "dead_letter". */
static struct slice shown_status(const struct json_value *item)
{
    struct slice status = cli_member(item, SLICE_LIT("status"));
    bool is_ended = slice_is(status, "blocked") || slice_is(status, "dead_letter");
    bool is_uncertain = !is_ended && json_is(json_find(item, SLICE_LIT("uncertain")), JSON_TRUE);
    bool is_compensating = json_is(json_find(item, SLICE_LIT("compensating")), JSON_TRUE);
    return is_uncertain      ? SLICE_LIT("uncertain")
           : is_compensating ? SLICE_LIT("compensating")
                             : status;
}

struct work_filter work_filter_of(const struct cli *cli, const char *status)
{
    struct filter basic = filter_of(cli, (enum once_status)0);
    return (struct work_filter){.status = status,
        .scope = basic.basic.scope,
        .key = basic.basic.key,
        .from_ms = basic.basic.updated_from_ms,
        .until_ms = basic.basic.updated_until_ms};
}

/* The filters that a server does not apply. */
static bool is_chosen(const struct pages *pages, const struct json_value *item)
{
    const struct work_filter *filter = pages->filter;
    int64_t updated_ms = 0;
    if (filter == NULL) {
        return true;
    }
    (void)text_time(cli_member(item, SLICE_LIT("updated_at")), &updated_ms);
    return (filter->scope == NULL ||
               slice_is(cli_member(item, slice_str(pages->kind->what)), filter->scope)) &&
           (filter->from_ms == 0 || updated_ms >= filter->from_ms) &&
           (filter->until_ms == 0 || updated_ms <= filter->until_ms);
}

/* Visit each one that matches. An arena of its own is cleared after each page. */
static int each(struct pages *pages, work_visit visit, void *context)
{
    int code = CLI_OK;
    int stop = 0;
    bool is_own = pages->arena != &pages->cli->arena;
    while (code == CLI_OK && stop == 0 && !pages->is_over) {
        if (is_own) {
            arena_clear(pages->arena);
        }
        code = next_page(pages);
        for (uint32_t i = 0; code == CLI_OK && stop == 0 && i < pages->list->count; i++) {
            const struct json_value *item = &pages->list->items[i];
            stop = is_chosen(pages, item) ? visit(context, item, json_raw(pages->text, item)) : 0;
        }
    }
    return code;
}

int work_each(struct cli *cli, struct remote *remote, const struct work_kind *kind,
    const struct work_filter *filter, work_visit visit, void *context)
{
    struct arena arena;
    struct pages pages = {
        .cli = cli, .remote = remote, .kind = kind, .arena = &arena, .filter = filter};
    arena_init(&arena, &mem_libc, PAGE_ARENA_BYTES_MAX);
    int code = each(&pages, visit, context);
    arena_release(&arena);
    return code;
}

/* ---- by an id, or by its beginning ---------------------------------------------------------- */

/* Whether the text is a whole id of ours. Any other text may be an id that its submitter gave, or
 * the beginning of an id. */
static bool is_whole(const struct work_kind *kind, const char *typed)
{
    size_t begin = strlen(kind->prefix);
    return strncmp(typed, kind->prefix, begin) == 0 &&
           strlen(typed) == begin + UUID_TEXT_BYTES - 1 && !found_is_prefix(kind->prefix, typed);
}

/* Whether a record of this kind has this id. Silent: what follows reports a server that is gone. */
static bool has_id(
    struct cli *cli, struct remote *remote, const struct work_kind *kind, const char *typed)
{
    char path[PATH_BYTES_MAX];
    struct once_error error;
    struct remote_answer answer;
    const char *escaped = remote_escape(&cli->arena, typed);
    (void)snprintf(path, sizeof path, "/v1/%s/%s", kind->name, escaped == NULL ? "" : escaped);
    return remote_try(remote, path, SLICE_EMPTY, &cli->arena, &answer, &error) == ONCE_OK &&
           answer.status == 200 && slice_is(cli_member(answer.root, slice_str(kind->id)), typed);
}

struct by_prefix {
    const struct work_kind *kind;
    struct slice prefix;
    struct found found;
};

static int take_item(void *context, const struct json_value *item, struct slice text)
{
    struct by_prefix *self = context;
    struct slice id = cli_member(item, slice_str(self->kind->id));
    if (!slice_starts(id, self->prefix) && self->kind->own != NULL) {
        id = cli_member(item, slice_str(self->kind->own));
    }
    const struct found_member members[] = {
        {self->kind->what, cli_member(item, slice_str(self->kind->what))},
        {self->kind->who, cli_member(item, slice_str(self->kind->who))},
    };
    (void)text;
    if (id.len < FOUND_ID_BYTES && slice_starts(id, self->prefix)) {
        found_add(&self->found, id, shown_status(item), members, COUNT(members));
    }
    return 0;
}

int work_name(struct cli *cli, struct remote *remote, const struct work_kind *kind,
    const char *typed, const char **ret)
{
    struct by_prefix self = {
        .kind = kind, .prefix = slice_str(typed), .found = {.kind = kind->name}};
    *ret = typed;
    if (remote == NULL) {
        return no_server(cli);
    }
    if (is_whole(kind, typed) || has_id(cli, remote, kind, typed)) {
        return CLI_OK;
    }
    int code = work_each(cli, remote, kind, NULL, take_item, &self);
    code = found_pick(&self.found, code, &cli->arena, ret);
    if (code == CLI_OK && *ret == NULL) {
        cli_say("there is no %s that begins with '%s'", kind->one, typed);
        cli_hint("once ls %s lists them", kind->name);
        return CLI_DATA;
    }
    return code;
}

/* The one command or effect whose id begins with this text; *ret stays NULL if there is none. */
static int find_prefix(
    struct cli *cli, struct remote *remote, const char **typed, const struct work_kind **ret)
{
    struct by_prefix self = {
        .prefix = slice_str(*typed), .found = {.kind = "commands and effects"}};
    const struct work_kind *kind = NULL;
    const char *id = NULL;
    int code = CLI_OK;
    for (size_t i = 0; i < GIVEN_KINDS && code == CLI_OK; i++) {
        size_t before = self.found.count;
        self.kind = &kinds[i];
        code = work_each(cli, remote, self.kind, NULL, take_item, &self);
        kind = self.found.count > before ? self.kind : kind;
    }
    code = found_pick(&self.found, code, &cli->arena, &id);
    if (code == CLI_OK && id != NULL) {
        *typed = id;
        *ret = kind;
    }
    return code;
}

int work_find(struct cli *cli, const char **typed, const struct work_kind **ret)
{
    struct remote *remote = NULL;
    *ret = work_kind_of_id(*typed);
    if (*ret != NULL || *typed == NULL || **typed == '\0' || strncmp(*typed, "op_", 3) == 0) {
        return CLI_OK;
    }
    int code = backend_find_server(cli, &remote);
    for (size_t i = 0; i < GIVEN_KINDS && code == CLI_OK && remote != NULL && *ret == NULL; i++) {
        *ret = has_id(cli, remote, &kinds[i], *typed) ? &kinds[i] : NULL;
    }
    if (code == CLI_OK && remote != NULL && *ret == NULL) {
        code = find_prefix(cli, remote, typed, ret);
    }
    remote_free(remote);
    return code;
}

int work_open_named(struct cli *cli, const struct work_kind *kind, const char *typed,
    struct remote **ret_remote, const char **ret_id)
{
    int code = work_open_server(cli, ret_remote);
    code = code == CLI_OK ? work_name(cli, *ret_remote, kind, typed, ret_id) : code;
    if (code != CLI_OK) {
        remote_free(*ret_remote);
        *ret_remote = NULL;
    }
    return code;
}

/* ---- many -------------------------------------------------------------------------------- */

struct work_item {
    struct slice updated_at; /* RFC 3339, so that texts sort by time */
    struct slice json;
    const struct json_value *root;
};

static int newest_first(const void *a, const void *b)
{
    struct slice x = ((const struct work_item *)a)->updated_at;
    struct slice y = ((const struct work_item *)b)->updated_at;
    size_t len = x.len < y.len ? x.len : y.len;
    return len == 0 ? 0 : memcmp(y.data, x.data, len);
}

static void print_item(const struct cli *cli, const struct work_kind *kind,
    const struct work_item *item, bool is_first)
{
    if (cli->json) {
        out_text(is_first ? "" : ",");
        out_bytes(item->json);
        return;
    }
    struct slice id = cli_member(item->root, slice_str(kind->id)); /* an effect's may be any text */
    out_safe(id);
    out_text("%*s  %-22.*s  ", id.len < ID_COLUMNS ? (int)(ID_COLUMNS - id.len) : 0, "",
        SLICE_ARGS(shown_status(item->root)));
    out_safe(cli_member(item->root, slice_str(kind->what)));
    out_text("  ");
    out_safe(cli_member(item->root, slice_str(kind->who)));
    out_text("  %.*s\n", SLICE_ARGS(item->updated_at));
}

/* What is listed; it points into the pages. */
struct work_items {
    struct work_item *items;
    size_t count;
};

static int add_item(void *context, const struct json_value *item, struct slice text)
{
    struct work_items *self = context;
    self->items[self->count++] = (struct work_item){
        .updated_at = cli_member(item, SLICE_LIT("updated_at")), .json = text, .root = item};
    return self->count == ITEMS_MAX ? 1 : 0;
}

int work_list(struct cli *cli, const struct work_kind *kind)
{
    struct work_filter filter = work_filter_of(cli, cli_text(cli, "status"));
    struct pages pages = {.cli = cli, .kind = kind, .arena = &cli->arena, .filter = &filter};
    size_t limit = (size_t)cli_count(cli, "limit");
    if (cli_flag(cli, "principal")) {
        return cli_usage(cli, "ls: --principal is of operations");
    }
    struct work_items list = {
        .items = arena_zalloc(&cli->arena, ITEMS_MAX * sizeof(struct work_item))};
    int code = list.items == NULL ? CLI_UNAVAILABLE : work_open_server(cli, &pages.remote);
    code = code == CLI_OK ? each(&pages, add_item, &list) : code;
    if (code == CLI_OK) {
        qsort(list.items, list.count, sizeof *list.items, newest_first);
        out_text(cli->json ? "[" : "");
        for (size_t i = 0; i < list.count && (limit == 0 || i < limit) && !out_broken(); i++) {
            print_item(cli, kind, &list.items[i], i == 0);
        }
        out_text(cli->json ? "]\n" : "");
    }
    int written = out_finish_listing();
    remote_free(pages.remote);
    return code == CLI_OK ? written : code;
}

/* ---- confirm and deny ---------------------------------------------------------------------- */

/* The confirmation token: from the option or its variable, else a line of standard input. */
static int read_token(struct cli *cli, struct slice *ret_token)
{
    const char *given = cli_text(cli, "confirmation");
    if (given != NULL && strcmp(given, "-") != 0) {
        *ret_token = slice_str(given);
        return CLI_OK;
    }
    int code = given == NULL ? CLI_OK : cli_read_stdin(cli, BODY_BYTES_MAX, ret_token);
    while (ret_token->len > 0 && strchr("\r\n ", ret_token->data[ret_token->len - 1]) != NULL) {
        ret_token->len--;
    }
    return code;
}

static int answer_command(struct cli *cli, const char *verb)
{
    const char *id = NULL;
    struct remote *remote = NULL;
    struct remote_answer answer;
    struct slice token = SLICE_EMPTY;
    struct mem mem = arena_mem(&cli->arena);
    struct buf body;
    struct jsonw json = {.out = &body};
    char path[PATH_BYTES_MAX];
    int code = read_token(cli, &token);
    code = code == CLI_OK
               ? work_open_named(cli, work_kind_named("commands"), cli->operands[0], &remote, &id)
               : code;
    if (code != CLI_OK) {
        return code;
    }
    const char *escaped = remote_escape(&cli->arena, id);
    buf_init(&body, &mem, BODY_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    if (token.len > 0) {
        jsonw_bytes(&json, "token", token);
    }
    jsonw_str_some(&json, "actor_id", cli_text(cli, "actor"));
    jsonw_str_some(&json, "reason", cli_text(cli, "reason"));
    jsonw_close(&json, '}');
    (void)snprintf(path, sizeof path, "/v1/commands/%s/%s", escaped == NULL ? "" : escaped, verb);
    code = remote_ask(remote, path, buf_view(&body), &cli->arena, &answer);
    if (code == CLI_OK && (answer.status >= 300 || !json_is(answer.root, JSON_OBJECT))) {
        code = remote_refused(remote, &answer);
    } else if (code == CLI_OK && cli->json) {
        out_bytes(answer.text);
        out_text("\n");
    } else if (code == CLI_OK) {
        struct slice summary = cli_member(answer.root, SLICE_LIT("summary"));
        out_text("%s is %.*s", id, SLICE_ARGS(cli_member(answer.root, SLICE_LIT("status"))));
        out_text(summary.len > 0 ? ": " : "");
        out_safe(summary);
        out_text("\n");
        code = answer.status == 202 ? CLI_AGAIN : CLI_OK;
    }
    int written = out_finish();
    remote_free(remote);
    return code == CLI_OK ? written : code;
}

/* ---- effects, and the recovery of commands -------------------------------------------------- */

int work_ask(struct remote *remote, const struct work_ask *ask, struct arena *arena,
    struct remote_answer *ret_answer)
{
    char path[PATH_BYTES_MAX];
    const char *escaped = remote_escape(arena, ask->id);
    (void)snprintf(path, sizeof path, "/v1/%s/%s/%s", ask->kind->name,
        escaped == NULL ? "" : escaped, ask->verb);
    int code = remote_ask(remote, path, ask->body, arena, ret_answer);
    if (code == CLI_OK && (ret_answer->status >= 300 || !json_is(ret_answer->root, JSON_OBJECT))) {
        code = remote_refused(remote, ret_answer);
    }
    return code;
}

/* The same for the one that was typed, and print the result. */
static int act(struct cli *cli, const struct work_kind *kind, const char *typed, const char *verb,
    const struct buf *body)
{
    struct remote *remote = NULL;
    struct remote_answer answer;
    struct work_ask ask = {.kind = kind, .verb = verb, .body = buf_view(body)};
    int code = work_open_named(cli, kind, typed, &remote, &ask.id);
    if (code != CLI_OK) {
        return code;
    }
    code = work_ask(remote, &ask, &cli->arena, &answer);
    if (code == CLI_OK && cli->json) {
        out_bytes(answer.text);
        out_text("\n");
    } else if (code == CLI_OK) {
        const struct json_value *undo = json_find(answer.root, SLICE_LIT("compensation"));
        out_text("%s is %.*s", ask.id, SLICE_ARGS(cli_member(answer.root, SLICE_LIT("status"))));
        if (undo != NULL) {
            out_text(", compensated by %.*s", SLICE_ARGS(cli_member(undo, SLICE_LIT("effect_id"))));
        }
        out_text("\n");
    }
    int written = out_finish();
    remote_free(remote);
    return code == CLI_OK ? written : code;
}

static int act_with_reason(struct cli *cli, const char *verb)
{
    bool is_many = false;
    int checked = many_check(cli, verb, "effect", &is_many);
    if (checked != CLI_OK || is_many) {
        return checked != CLI_OK ? checked : work_many(cli, verb);
    }
    const char *id = cli->operands[0];
    const struct work_kind *kind = NULL;
    struct mem mem = arena_mem(&cli->arena);
    struct buf body;
    struct jsonw json = {.out = &body};
    int code = work_find(cli, &id, &kind);
    if (code != CLI_OK) {
        return code;
    }
    bool is_command = kind != NULL && strcmp(kind->name, "commands") == 0;
    if (kind == NULL || (!is_command && strcmp(kind->name, "effects") != 0)) {
        return cli_usage(cli, "%s: '%s' is not the id of an effect or a command", verb, id);
    }
    buf_init(&body, &mem, BODY_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str_some(&json, "action", is_command ? verb : NULL);
    jsonw_str_some(&json, "reason", cli_text(cli, "reason"));
    jsonw_close(&json, '}');
    return act(cli, kind, id, is_command ? "recover" : verb, &body);
}

int cmd_retry(struct cli *cli)
{
    return act_with_reason(cli, "retry");
}

int cmd_cancel(struct cli *cli)
{
    return act_with_reason(cli, "cancel");
}

int cmd_compensate(struct cli *cli)
{
    return act_with_reason(cli, "compensate");
}

/* The JSON of --outcome, for a command. */
static int put_outcome(struct cli *cli, struct jsonw *json)
{
    const char *path = cli_text(cli, "outcome");
    const struct json_value *root = NULL;
    struct slice bytes = SLICE_EMPTY;
    struct err err;
    if (path == NULL) {
        return CLI_OK;
    }
    int code = cli_read_file(cli, path[0] == '@' ? path + 1 : path, BODY_BYTES_MAX, &bytes);
    if (code == CLI_OK && json_read(bytes, &cli->arena, &root, &err) != OK) {
        cli_say("the outcome of a command must be JSON: %s", err.text);
        code = CLI_DATA;
    } else if (code == CLI_OK) {
        jsonw_raw(json, "outcome", bytes);
    }
    return code;
}

const char *work_effect_status(const char *status)
{
    return strcmp(status, "executed") == 0       ? "acknowledged"
           : strcmp(status, "not_executed") == 0 ? "not_sent"
                                                 : status;
}

int work_resolve(struct cli *cli, const struct work_kind *kind, const char *id)
{
    const char *status = cli_text(cli, "status");
    struct mem mem = arena_mem(&cli->arena);
    struct buf body;
    struct jsonw json = {.out = &body};
    bool is_effect = strcmp(kind->name, "effects") == 0;
    bool is_command = strcmp(kind->name, "commands") == 0;
    int code = CLI_OK;
    buf_init(&body, &mem, 2 * BODY_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "status", is_effect ? work_effect_status(status) : status);
    jsonw_str_some(&json, "reason", cli_text(cli, "reason"));
    if (is_command) {
        code = put_outcome(cli, &json);
    } else {
        jsonw_str_some(&json, is_effect ? "provider_ref" : "effect_id", cli_text(cli, "effect-id"));
    }
    if ((is_effect || is_command) && cli_flag(cli, "attempt")) {
        jsonw_u64(&json, "attempt", (uint64_t)cli_count(cli, "attempt"));
    }
    if (!is_effect && !is_command && cli_flag(cli, "fence")) {
        jsonw_u64(&json, "fence", (uint64_t)cli_count(cli, "fence"));
    }
    jsonw_close(&json, '}');
    return code == CLI_OK ? act(cli, kind, id, "resolve", &body) : code;
}

int cmd_confirm(struct cli *cli)
{
    return answer_command(cli, "confirm");
}

int cmd_deny(struct cli *cli)
{
    return answer_command(cli, "deny");
}

/* ---- an operator's decisions about a delivery ---------------------------------------------- */

static int decide_delivery(struct cli *cli, const char *verb)
{
    const char *typed = cli->operands[0];
    const struct work_kind *kind = work_kind_of_id(typed);
    struct mem mem = arena_mem(&cli->arena);
    struct buf body;
    struct jsonw json = {.out = &body};
    if (kind == NULL || strcmp(kind->name, "deliveries") != 0) {
        return cli_usage(cli, "%s: '%s' is not the id of a delivery", verb, typed);
    }
    buf_init(&body, &mem, BODY_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str_some(&json, "reason", cli_text(cli, "reason"));
    jsonw_close(&json, '}');
    return act(cli, kind, typed, verb, &body);
}

int cmd_redeliver(struct cli *cli)
{
    return decide_delivery(cli, "redeliver");
}

int cmd_skip(struct cli *cli)
{
    return decide_delivery(cli, "skip");
}

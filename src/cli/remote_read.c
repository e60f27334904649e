#include "cli/remote_read.h"

#include <stdio.h>

#include "base/text.h"
#include "base/uuid.h"
#include "canon/jcs.h"

/* ---- members ----------------------------------------------------------------------------- */

static enum status no_memory(struct err *err)
{
    return err_set(err, E_NOMEM, "out of memory");
}

static int64_t time_of(const struct json_value *object, const char *name)
{
    int64_t ms = 0;
    (void)text_time(cli_member(object, slice_str(name)), &ms); /* absent or null: 0 */
    return ms;
}

bool remote_read_u64(const struct json_value *object, struct slice name, uint64_t *ret_value)
{
    return text_u64(cli_member(object, name), ret_value);
}

/* The canonical text of any value, in the arena. */
static enum status canonical(
    const struct json_value *value, struct arena *arena, struct slice *ret, struct err *err)
{
    struct buf text;
    buf_init(&text, &mem_libc, arena->max);
    enum status status = jcs_write(value, &text, NULL, err);
    if (status == OK && arena_copy(arena, buf_view(&text), ret) != OK) {
        status = no_memory(err);
    }
    buf_release(&text);
    return status;
}

/* ---- an entry ---------------------------------------------------------------------------- */

/* The same object without the two members that are not hashed. */
static enum status strip(const struct json_value *object, struct arena *arena,
    struct json_value *ret_bare, struct err *err)
{
    struct json_member *members = arena_alloc(arena, object->count * sizeof *members + 1);
    uint32_t count = 0;
    if (members == NULL) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < object->count; i++) {
        struct slice name = json_text(&object->members[i].name);
        if (!slice_is(name, "hash") && !slice_is(name, "prev_hash")) {
            members[count++] = object->members[i];
        }
    }
    *ret_bare = *object;
    ret_bare->members = members;
    ret_bare->count = count;
    return OK;
}

enum status remote_read_entry(const struct json_value *object, struct arena *arena,
    struct remote_entry *ret_entry, struct err *err)
{
    struct remote_entry read = {0};
    struct json_value bare;
    struct slice text;
    if (!json_is(object, JSON_OBJECT) ||
        !remote_read_u64(object, SLICE_LIT("seq"), &read.entry.seq) ||
        !text_hex(cli_member(object, SLICE_LIT("hash")), read.hash.bytes, DIGEST_BYTES) ||
        !text_hex(cli_member(object, SLICE_LIT("prev_hash")), read.prev_hash.bytes, DIGEST_BYTES)) {
        return err_set(err, E_INVALID, "an entry without seq, hash or prev_hash");
    }
    enum status status = strip(object, arena, &bare, err);
    status = status != OK ? status : canonical(&bare, arena, &text, err);
    if (status != OK) {
        return status;
    }
    read.entry.json = (struct once_bytes){text.data, text.len};
    read.entry.time_ms = time_of(object, "occurred_at");
    memcpy(read.entry.hash, read.hash.bytes, DIGEST_BYTES);
    read.words = entry_words_of(object);
    *ret_entry = read;
    struct entry_cursor cursor = {.seq = read.entry.seq};
    if (uuid_read(read.words.chain_id, cursor.chain_id)) {
        ret_entry->entry.cursor = evidence_cursor_put(ret_entry->cursor, &cursor);
    }
    return OK;
}

/* ---- pages ------------------------------------------------------------------------------- */

enum { PAGE_MAX = 1000, PATH_BYTES_MAX = 512 }; /* what a server gives at most */

int remote_unreadable(const struct remote *remote, struct err *err)
{
    err_prefix(err, "cannot read the answer of '%s'", remote_url(remote));
    (void)cli_fail_err(err);
    return CLI_UNAVAILABLE;
}

bool remote_take_next(
    const struct json_value *page, char cursor[CURSOR_BYTES_MAX], bool *ret_is_last)
{
    const struct json_value *next = json_find(page, SLICE_LIT("next"));
    struct slice text = json_is(next, JSON_STRING) ? json_text(next) : SLICE_EMPTY;
    *ret_is_last = next == NULL || json_is(next, JSON_NULL);
    if (*ret_is_last) {
        return true;
    }
    if (text.len == 0 || text.len >= CURSOR_BYTES_MAX || slice_is(text, cursor)) {
        return false;
    }
    memcpy(cursor, text.data, text.len);
    cursor[text.len] = '\0';
    /* The cursor goes into a query unescaped: a text that would need escaping is not one of
     * ours. */
    return strspn(cursor, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
           text.len;
}

const char *remote_evidence_path(struct arena *arena, const char *operation_id, const char *cursor)
{
    struct mem mem = arena_mem(arena);
    struct buf path;
    buf_init(&path, &mem, PATH_BYTES_MAX);
    buf_printf(&path, "/v1/evidence?limit=%d&after=%s", PAGE_MAX, cursor);
    if (operation_id != NULL) { /* typed by the user: text that is not an id affects only this
                                   parameter */
        const char *escaped = remote_escape(arena, operation_id);
        buf_printf(&path, "&operation_id=%s", escaped == NULL ? "" : escaped);
    }
    buf_char(&path, '\0');
    if (buf_status(&path) != OK) {
        cli_say("'%.64s…' is too long for an id", operation_id);
        return NULL;
    }
    return path.data;
}

int remote_evidence(struct remote *remote, const char *operation_id, char cursor[CURSOR_BYTES_MAX],
    struct arena *arena, struct remote_page *ret_page)
{
    struct err err = {0};
    struct remote_answer answer;
    const char *path = remote_evidence_path(arena, operation_id, cursor);
    int code = path == NULL ? CLI_USAGE : remote_get(remote, path, arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    ret_page->entries = json_find(answer.root, SLICE_LIT("entries"));
    if (!json_is(ret_page->entries, JSON_ARRAY) ||
        !remote_take_next(answer.root, cursor, &ret_page->is_last)) {
        (void)err_set(&err, E_INVALID, "the answer is not a page of evidence");
        return remote_unreadable(remote, &err);
    }
    return CLI_OK;
}

int remote_head(struct remote *remote, struct arena *arena, struct remote_head *ret_head)
{
    struct err err = {0};
    struct remote_answer answer;
    int code = remote_get(remote, "/v1/evidence/head", arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    struct slice chain_id = cli_member(answer.root, SLICE_LIT("chain_id"));
    struct slice hash = cli_member(answer.root, SLICE_LIT("hash"));
    *ret_head = (struct remote_head){0};
    if (!remote_read_u64(answer.root, SLICE_LIT("seq"), &ret_head->seq) ||
        !text_hex(hash, ret_head->hash.bytes, DIGEST_BYTES) || chain_id.len == 0 ||
        chain_id.len >= CHAIN_ID_BYTES_MAX) {
        (void)err_set(&err, E_INVALID, "the answer is not the head of a chain");
        return remote_unreadable(remote, &err);
    }
    memcpy(ret_head->chain_id, chain_id.data, chain_id.len);
    return CLI_OK;
}

#include "cli/remote_read.h"

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
    (void)text_time(cli_member(object, slice_str(name)), &ms); /* left out, or null: 0 */
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
    read.type = cli_member(object, SLICE_LIT("type"));
    read.chain_id = cli_member(object, SLICE_LIT("chain_id"));
    read.operation_id = cli_member(object, SLICE_LIT("operation_id"));
    read.request_id = cli_member(json_find(object, SLICE_LIT("trace")), SLICE_LIT("request_id"));
    *ret_entry = read;
    struct evidence_cursor cursor = {.seq = read.entry.seq};
    if (uuid_read(read.chain_id, cursor.chain_id)) {
        ret_entry->entry.cursor = evidence_cursor_put(ret_entry->cursor, &cursor);
    }
    return OK;
}

bool remote_read_next(const struct json_value *page, char cursor[CURSOR_BYTES_MAX], bool *ret_more)
{
    const struct json_value *next = json_find(page, SLICE_LIT("next"));
    struct slice text = json_is(next, JSON_STRING) ? json_text(next) : SLICE_EMPTY;
    *ret_more = next != NULL && !json_is(next, JSON_NULL);
    if (!*ret_more) {
        return true;
    }
    if (text.len == 0 || text.len >= CURSOR_BYTES_MAX || slice_is(text, cursor)) {
        return false;
    }
    memcpy(cursor, text.data, text.len);
    cursor[text.len] = '\0';
    /* It goes into a query as it is: what would need escaping is not a cursor of ours. */
    return strspn(cursor, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
           text.len;
}

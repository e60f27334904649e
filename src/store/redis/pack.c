/*
 * The entries of a commit as items of the stream.
 *
 * An item of one entry has its members as fields. Several entries share an item: their members are
 * packed into one field, because each word of a command costs the server's thread about as much as
 * a copy of the whole entry. docs/formats/redis.md has both forms.
 */
#include <limits.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "store/redis/impl.h"

enum {
    PACK_ENTRIES_MAX = 64,     /* in one item: a reader takes it whole */
    PACK_BYTES_MAX = 64 << 10, /* the same; a longer entry is alone */
    PLACE_EVERY = 64,          /* evidence entries between two that are found by their number */
    PACK_HEAD_BYTES = 1 + 8 + 8 + 2 * DIGEST_BYTES + 16 + 1 + 4, /* of one entry */
};

/* ---- one entry in bytes --------------------------------------------------------------------- */

static_assert(LIMIT_TENANT_BYTES_MAX <= UCHAR_MAX, "the length of a tenant is one byte");

static void entry_pack(struct buf *out, const struct entry *entry, const struct digest *previous)
{
    ASSERT(entry->tenant.len <= LIMIT_TENANT_BYTES_MAX);
    ASSERT(entry->bytes.len <= UINT32_MAX);
    buf_char(out, (char)entry->kind);
    buf_le64(out, entry->seq);
    buf_le64(out, (uint64_t)entry->time_ms);
    buf_append(out, entry->hash.bytes, DIGEST_BYTES);
    buf_append(out, previous->bytes, DIGEST_BYTES);
    buf_append(out, entry->operation_id.bytes, sizeof entry->operation_id.bytes);
    buf_char(out, (char)(unsigned char)entry->tenant.len);
    buf_le32(out, (uint32_t)entry->bytes.len);
    buf_slice(out, entry->tenant);
    buf_slice(out, entry->bytes);
}

/* The next bytes, which are there. */
static const unsigned char *taken(struct slice *bytes, size_t size)
{
    const char *data = bytes->data;
    ASSERT(bytes->len >= size);
    *bytes = slice_of(data + size, bytes->len - size);
    return (const unsigned char *)data;
}

static uint64_t number_take(struct slice *bytes, size_t size)
{
    const unsigned char *data = taken(bytes, size);
    uint64_t value = 0;
    for (size_t i = size; i > 0; i--) {
        value = value << 8 | data[i - 1];
    }
    return value;
}

bool entry_unpack(struct slice *bytes, struct entry *ret_entry, struct digest *ret_previous)
{
    struct slice rest = *bytes;
    struct entry entry = {.kind = ENTRY_EVIDENCE};
    if (rest.len < PACK_HEAD_BYTES) {
        return false;
    }
    uint64_t kind = number_take(&rest, 1);
    entry.kind = kind == ENTRY_EVIDENCE ? ENTRY_EVIDENCE : ENTRY_CHECKPOINT;
    entry.seq = number_take(&rest, 8);
    uint64_t time_ms = number_take(&rest, 8);
    entry.time_ms = (int64_t)time_ms;
    memcpy(entry.hash.bytes, taken(&rest, DIGEST_BYTES), DIGEST_BYTES);
    memcpy(ret_previous->bytes, taken(&rest, DIGEST_BYTES), DIGEST_BYTES);
    memcpy(entry.operation_id.bytes, taken(&rest, 16), 16);
    size_t tenant_len = number_take(&rest, 1);
    size_t bytes_len = number_take(&rest, 4);
    if ((kind != ENTRY_EVIDENCE && kind != ENTRY_CHECKPOINT) || time_ms > INT64_MAX ||
        rest.len < tenant_len || rest.len - tenant_len < bytes_len) {
        return false;
    }
    entry.tenant = slice_of(rest.data, tenant_len);
    entry.bytes = slice_of(rest.data + tenant_len, bytes_len);
    (void)taken(&rest, tenant_len + bytes_len);
    *ret_entry = entry;
    *bytes = rest;
    return true;
}

/* ---- items ---------------------------------------------------------------------------------- */

void pack_begin(struct redis *self, struct redis_pack *pack)
{
    *pack = (struct redis_pack){.count = 0};
    buf_clear(&self->packed);
    buf_clear(&self->places);
}

static void fields_put(struct redis *self, const struct entry *entry, const struct digest *previous)
{
    call_text(self, "k");
    call_u64(self, (uint64_t)entry->kind);
    call_text(self, "s");
    call_u64(self, entry->seq);
    call_text(self, "h");
    call_bytes(self, entry->hash.bytes, DIGEST_BYTES);
    call_text(self, "p");
    call_bytes(self, previous->bytes, DIGEST_BYTES);
    call_text(self, "o");
    call_bytes(self, entry->operation_id.bytes, sizeof entry->operation_id.bytes);
    call_text(self, "t");
    call_slice(self, entry->tenant);
    call_text(self, "m");
    call_i64(self, entry->time_ms);
    call_text(self, "b");
    call_slice(self, entry->bytes);
}

static void packed_put(struct redis *self, const struct redis_pack *pack)
{
    call_text(self, "n");
    call_u64(self, pack->count);
    call_text(self, "s");
    call_u64(self, pack->seq);
    call_text(self, "h");
    call_bytes(self, pack->hash.bytes, DIGEST_BYTES);
    call_text(self, "m");
    call_i64(self, pack->time_ms);
    call_text(self, "e");
    call_slice(self, buf_view(&self->packed));
}

enum status pack_end(struct redis *self, struct redis_pack *pack, struct err *err)
{
    char chain[UUID_TEXT_BYTES];
    if (buf_status(&self->packed) != OK || buf_status(&self->places) != OK) {
        return err_set(err, E_NOMEM, "out of memory for the entries of a commit");
    }
    if (pack->count == 0) {
        return OK;
    }
    (void)uuid_put(chain, pack->chain_id);
    call_text(self, "e");
    call_text(self, chain);
    call_u64(self, pack->count);
    call_u64(self, pack->seq);
    call_bytes(self, pack->hash.bytes, pack->seq == 0 ? 0 : DIGEST_BYTES);
    call_slice(self, buf_view(&self->places));
    call_text(self, pack->count == 1 ? "18" : "12");
    call_text(self, "c");
    call_text(self, chain);
    if (pack->count == 1) {
        fields_put(self, pack->first, &pack->before);
    } else {
        packed_put(self, pack);
    }
    pack_begin(self, pack);
    return OK;
}

enum status pack_add(struct redis *self, struct redis_pack *pack, const struct entry *entry,
    const unsigned char chain_id[16], const struct digest *previous, struct err *err)
{
    enum status status = OK;
    if (pack->count > 0 &&
        (pack->count == PACK_ENTRIES_MAX || self->packed.len + entry->bytes.len > PACK_BYTES_MAX ||
            memcmp(pack->chain_id, chain_id, sizeof pack->chain_id) != 0)) {
        status = pack_end(self, pack, err);
    }
    if (pack->count == 0) {
        memcpy(pack->chain_id, chain_id, sizeof pack->chain_id);
        pack->first = entry;
        pack->before = *previous;
    }
    entry_pack(&self->packed, entry, previous);
    pack->count++;
    pack->time_ms = entry->time_ms > pack->time_ms ? entry->time_ms : pack->time_ms;
    if (entry->kind == ENTRY_EVIDENCE) {
        pack->seq = entry->seq;
        pack->hash = entry->hash;
        if (entry->seq % PLACE_EVERY == 1) {
            buf_printf(&self->places, "%llu:%zu ", (unsigned long long)entry->seq, pack->count);
        }
    }
    return status;
}

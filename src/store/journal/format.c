#include "store/journal/format.h"

#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/limits.h"

static const char segment_magic[8] = {'O', 'N', 'C', 'E', 's', 'e', 'g', '1'};
static const char identity_magic[8] = {'O', 'N', 'C', 'E', 'i', 'd', '0', '1'};
static const char batch_magic[4] = {'O', 'N', 'C', 'B'};

enum { SEGMENT_FLAG_SQUEEZED = 1 };

static_assert(sizeof(struct digest) == 32, "digests are on disk");
static_assert(sizeof(struct op_id) == 16, "operation ids are on disk");

bool bytes_zero(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    /* The first byte is zero, and the range equals itself shifted by one: all are zero. */
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

/* A moment is 24 bytes on disk. The boot clock has 6 of them, enough for 8,900 years. The used part
 * of the jump has the next 2, which are zero in older journals. */
enum { BOOT_BITS = 48 };
static_assert(LIMIT_CLOCK_JUMP_MS_MAX <= UINT16_MAX, "the used part of the jump has two bytes");

static void moment_encode(const struct store_moment *moment, unsigned char *ret_bytes)
{
    ASSERT(moment->boot_ms >= 0 && moment->boot_ms < INT64_C(1) << BOOT_BITS);
    ASSERT(moment->jump_ms >= 0 && moment->jump_ms <= LIMIT_CLOCK_JUMP_MS_MAX);
    uint64_t boot_ms = (uint64_t)moment->boot_ms;
    le64_put(ret_bytes, (uint64_t)moment->time_ms);
    le64_put(ret_bytes + 8, boot_ms | (uint64_t)moment->jump_ms << BOOT_BITS);
    le64_put(ret_bytes + 16, moment->boot_id);
}

static struct store_moment moment_decode(const unsigned char *bytes)
{
    uint64_t boot = le64_get(bytes + 8);
    return (struct store_moment){
        .time_ms = (int64_t)le64_get(bytes),
        .boot_ms = (int64_t)(boot & ((UINT64_C(1) << BOOT_BITS) - 1)),
        .boot_id = le64_get(bytes + 16),
        .jump_ms = (int64_t)(boot >> BOOT_BITS),
    };
}

void mark_encode(const struct mark *mark, unsigned char ret_bytes[MARK_BYTES])
{
    le64_put(ret_bytes, mark->place);
    le64_put(ret_bytes + 8, mark->batch);
    le64_put(ret_bytes + 16, mark->seq);
    memcpy(ret_bytes + 24, mark->hash.bytes, 32);
    le64_put(ret_bytes + 56, mark->fence);
    moment_encode(&mark->moment, ret_bytes + 64);
}

void mark_decode(const unsigned char bytes[MARK_BYTES], struct mark *ret_mark)
{
    struct mark mark = {
        .place = le64_get(bytes),
        .batch = le64_get(bytes + 8),
        .seq = le64_get(bytes + 16),
        .fence = le64_get(bytes + 56),
        .moment = moment_decode(bytes + 64),
    };
    memcpy(mark.hash.bytes, bytes + 24, 32);
    *ret_mark = mark;
}

void segment_header_encode(
    const struct segment_header *header, unsigned char ret_block[JOURNAL_BLOCK_BYTES])
{
    memset(ret_block, 0, JOURNAL_BLOCK_BYTES);
    memcpy(ret_block, segment_magic, sizeof segment_magic);
    le32_put(ret_block + 8, JOURNAL_VERSION);
    le32_put(ret_block + 12, header->squeezed ? SEGMENT_FLAG_SQUEEZED : 0);
    le64_put(ret_block + 16, header->number);
    le64_put(ret_block + 24, header->size);
    memcpy(ret_block + 32, header->chain_id, 16);
    mark_encode(&header->mark, ret_block + 48);
    le32_put(ret_block + JOURNAL_BLOCK_BYTES - 4, crc32c(0, ret_block, JOURNAL_BLOCK_BYTES - 4));
}

const char *segment_header_decode(
    const unsigned char block[JOURNAL_BLOCK_BYTES], struct segment_header *ret_header)
{
    if (memcmp(block, segment_magic, sizeof segment_magic) != 0) {
        return "this is not a segment";
    }
    if (le32_get(block + JOURNAL_BLOCK_BYTES - 4) != crc32c(0, block, JOURNAL_BLOCK_BYTES - 4)) {
        return "the segment's header fails its checksum";
    }
    if (le32_get(block + 8) != JOURNAL_VERSION || le32_get(block + 12) > SEGMENT_FLAG_SQUEEZED) {
        return "the segment is of a version that is not known";
    }
    struct segment_header header = {
        .number = le64_get(block + 16),
        .size = le64_get(block + 24),
        .squeezed = (le32_get(block + 12) & SEGMENT_FLAG_SQUEEZED) != 0,
    };
    memcpy(header.chain_id, block + 32, 16);
    mark_decode(block + 48, &header.mark);
    if (header.number == 0 || header.number > UINT32_MAX || header.size > UINT32_MAX) {
        return "the segment's number or size is out of range";
    }
    if (header.mark.batch == 0 ||
        header.mark.place != place_make(header.number, JOURNAL_BLOCK_BYTES)) {
        return "the segment's first batch has no number or place";
    }
    *ret_header = header;
    return NULL;
}

uint32_t segment_seed(const unsigned char chain_id[16], uint64_t number)
{
    unsigned char bytes[24];
    memcpy(bytes, chain_id, 16);
    le64_put(bytes + 16, number);
    return crc32c(0, bytes, sizeof bytes);
}

static uint32_t batch_crc(const unsigned char *bytes, uint32_t seed, uint64_t offset)
{
    return crc32c(seed ^ (uint32_t)offset, bytes + 8, BATCH_HEADER_BYTES - 8);
}

void batch_header_encode(const struct batch_header *header, uint32_t seed, uint64_t offset,
    unsigned char ret_bytes[BATCH_HEADER_BYTES])
{
    memcpy(ret_bytes, batch_magic, sizeof batch_magic);
    le64_put(ret_bytes + 8, header->number);
    le32_put(ret_bytes + 16, header->length);
    le32_put(ret_bytes + 20, header->content);
    le32_put(ret_bytes + 24, header->frames);
    le32_put(ret_bytes + 28, header->zero_sectors);
    moment_encode(&header->moment, ret_bytes + 32);
    le64_put(ret_bytes + 56, header->fence);
    le32_put(ret_bytes + 4, batch_crc(ret_bytes, seed, offset));
}

const char *batch_header_decode(const unsigned char bytes[BATCH_HEADER_BYTES], uint32_t seed,
    uint64_t offset, struct batch_header *ret_header)
{
    if (memcmp(bytes, batch_magic, sizeof batch_magic) != 0) {
        return "there is no batch here";
    }
    if (le32_get(bytes + 4) != batch_crc(bytes, seed, offset)) {
        return "the batch's header fails its checksum";
    }
    struct batch_header header = {
        .number = le64_get(bytes + 8),
        .length = le32_get(bytes + 16),
        .content = le32_get(bytes + 20),
        .frames = le32_get(bytes + 24),
        .zero_sectors = le32_get(bytes + 28),
        .moment = moment_decode(bytes + 32),
        .fence = le64_get(bytes + 56),
    };
    if (header.content < BATCH_HEADER_BYTES || header.length < header.content ||
        header.length > BATCH_BYTES_MAX || header.length - header.content >= JOURNAL_BLOCK_BYTES) {
        return "the batch's length makes no sense";
    }
    *ret_header = header;
    return NULL;
}

uint32_t batch_zero_sectors(const char *bytes, uint32_t content)
{
    uint32_t count = 0;
    for (uint32_t at = JOURNAL_SECTOR_BYTES; at < content; at += JOURNAL_SECTOR_BYTES) {
        uint32_t left = content - at;
        count += bytes_zero(bytes + at, left < JOURNAL_SECTOR_BYTES ? left : JOURNAL_SECTOR_BYTES);
    }
    return count;
}

static uint32_t frame_crc(const char *frame, uint32_t payload_bytes, uint32_t seed, uint64_t offset)
{
    uint32_t crc = crc32c(seed ^ (uint32_t)offset, frame, 8);
    return crc32c(crc, frame + FRAME_HEADER_BYTES, payload_bytes);
}

void frame_header_encode(
    char *frame, enum frame_kind kind, uint32_t payload_bytes, uint32_t seed, uint64_t offset)
{
    le32_put(frame, payload_bytes);
    le32_put(frame + 4, (uint32_t)kind);
    le32_put(frame + 8, frame_crc(frame, payload_bytes, seed, offset));
}

const char *frame_decode(
    struct slice bytes, uint32_t seed, uint64_t offset, struct frame *ret_frame)
{
    if (bytes.len < FRAME_HEADER_BYTES) {
        return "a frame is cut short";
    }
    uint32_t length = le32_get(bytes.data);
    uint32_t kind = le32_get(bytes.data + 4);
    if (length > bytes.len - FRAME_HEADER_BYTES) {
        return "a frame is longer than what is there";
    }
    if (le32_get(bytes.data + 8) != frame_crc(bytes.data, length, seed, offset)) {
        return "a frame fails its checksum";
    }
    if (kind < FRAME_RECORD || kind > FRAME_ERASED) {
        return "a frame is of a kind that is not known";
    }
    *ret_frame = (struct frame){.kind = (enum frame_kind)kind,
        .offset = offset,
        .payload = slice_of(bytes.data + FRAME_HEADER_BYTES, length)};
    return NULL;
}

const char *batch_check(
    const char *bytes, const struct batch_header *header, uint32_t seed, uint64_t offset)
{
    uint32_t at = BATCH_HEADER_BYTES;
    uint32_t frames = 0;
    while (at < header->content) {
        struct frame frame;
        const char *wrong =
            frame_decode(slice_of(bytes + at, header->content - at), seed, offset + at, &frame);
        if (wrong != NULL) {
            return wrong;
        }
        at += FRAME_HEADER_BYTES + (uint32_t)frame.payload.len;
        frames++;
    }
    if (frames != header->frames) {
        return "the batch does not have as many frames as it says";
    }
    if (!bytes_zero(bytes + header->content, header->length - header->content)) {
        return "the batch is not followed by zeros";
    }
    return NULL;
}

enum { ENTRY_WITH_TENANT = 1 }; /* on disk, in byte 1 of the header of evidence */

size_t entry_lead_encode(const struct entry *entry, unsigned char ret_bytes[ENTRY_LEAD_BYTES_MAX])
{
    ASSERT(entry->tenant.len <= LIMIT_TENANT_BYTES_MAX);
    ASSERT(entry->kind == ENTRY_EVIDENCE || entry->tenant.len == 0); /* a note has no tenant */
    memset(ret_bytes, 0, 8);
    ret_bytes[0] = (unsigned char)entry->kind;
    if (entry->kind == ENTRY_EVIDENCE) {
        ret_bytes[1] = ENTRY_WITH_TENANT;
        ret_bytes[2] = (unsigned char)entry->tenant.len;
    }
    le64_put(ret_bytes + 8, entry->seq);
    le64_put(ret_bytes + 16, (uint64_t)entry->time_ms);
    memcpy(ret_bytes + 24, entry->hash.bytes, 32);
    memcpy(ret_bytes + 56, entry->operation_id.bytes, 16);
    if (entry->tenant.len > 0) {
        memcpy(ret_bytes + ENTRY_HEADER_BYTES, entry->tenant.data, entry->tenant.len);
    }
    return ENTRY_HEADER_BYTES + entry->tenant.len;
}

bool entry_has_tenant(struct slice payload)
{
    ASSERT(payload.len > ENTRY_HEADER_BYTES);
    return payload.data[1] == ENTRY_WITH_TENANT;
}

const char *entry_decode(struct slice payload, struct entry *ret_entry)
{
    if (payload.len <= ENTRY_HEADER_BYTES) {
        return "an entry is cut short";
    }
    const unsigned char *bytes = (const unsigned char *)payload.data;
    bool with_tenant = bytes[0] == ENTRY_EVIDENCE && bytes[1] == ENTRY_WITH_TENANT;
    if ((bytes[0] != ENTRY_EVIDENCE && bytes[0] != ENTRY_CHECKPOINT) ||
        !bytes_zero(bytes + (with_tenant ? 3 : 1), with_tenant ? 5 : 7)) {
        return "an entry is of a kind that is not known";
    }
    size_t tenant_bytes = with_tenant ? bytes[2] : 0;
    if (payload.len <= ENTRY_HEADER_BYTES + tenant_bytes) {
        return "an entry is cut short";
    }
    const char *after_header = payload.data + ENTRY_HEADER_BYTES;
    struct entry entry = {
        .kind = (enum entry_kind)bytes[0],
        .seq = le64_get(bytes + 8),
        .time_ms = (int64_t)le64_get(bytes + 16),
        .tenant = slice_of(after_header, tenant_bytes),
        .bytes =
            slice_of(after_header + tenant_bytes, payload.len - ENTRY_HEADER_BYTES - tenant_bytes),
    };
    memcpy(entry.hash.bytes, bytes + 24, 32);
    memcpy(entry.operation_id.bytes, bytes + 56, 16);
    *ret_entry = entry;
    return NULL;
}

void identity_encode(const struct identity *identity, unsigned char ret_bytes[IDENTITY_BYTES])
{
    memset(ret_bytes, 0, IDENTITY_BYTES);
    memcpy(ret_bytes, identity_magic, sizeof identity_magic);
    le32_put(ret_bytes + 8, JOURNAL_VERSION);
    memcpy(ret_bytes + 16, identity->keys.chain_id, 16);
    memcpy(ret_bytes + 32, identity->shared.fingerprint_key, 32);
    memcpy(ret_bytes + 64, identity->keys.signing_seed, 32);
    le64_put(ret_bytes + 96, identity->segment_bytes);
    le64_put(ret_bytes + 104, (uint64_t)identity->created_ms);
    memcpy(ret_bytes + 112, identity->origin.bytes, 32);
    le32_put(ret_bytes + IDENTITY_BYTES - 4, crc32c(0, ret_bytes, IDENTITY_BYTES - 4));
}

const char *identity_decode(
    const unsigned char bytes[IDENTITY_BYTES], struct identity *ret_identity)
{
    if (memcmp(bytes, identity_magic, sizeof identity_magic) != 0) {
        return "this is not an identity file";
    }
    if (le32_get(bytes + IDENTITY_BYTES - 4) != crc32c(0, bytes, IDENTITY_BYTES - 4)) {
        return "it fails its checksum";
    }
    if (le32_get(bytes + 8) != JOURNAL_VERSION) {
        return "it is of a version that is not known";
    }
    struct identity identity = {
        .segment_bytes = le64_get(bytes + 96),
        .created_ms = (int64_t)le64_get(bytes + 104),
    };
    memcpy(identity.keys.chain_id, bytes + 16, 16);
    memcpy(identity.shared.fingerprint_key, bytes + 32, 32);
    memcpy(identity.keys.signing_seed, bytes + 64, 32);
    memcpy(identity.origin.bytes, bytes + 112, 32);
    *ret_identity = identity;
    return NULL;
}

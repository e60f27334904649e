/*
 * fuzz_index: the loader of a saved index over hostile bytes.
 *
 * The first byte says how the rest is used: even, as the bytes behind the header of an index file;
 * odd, the same with the checksum of each partition and of the trailer made right first. The
 * journal beside it is empty but valid. Whatever the bytes are: the store opens, because a saved
 * index is never needed, or it says that the journal ends before the index does; and what it then
 * holds can be looked at.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_dir.h"
#include "store/journal/index.h"
#include "store/journal/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_BYTES_MAX = 256 << 10, HEADER_BYTES = 4096, PART_BYTES = 32, SLOT_BYTES = 40 };

static size_t index_make(char *file, const uint8_t *data, size_t size, const struct mark *mark)
{
    memset(file, 0, HEADER_BYTES);
    memcpy(file, "ONCEidx1", 8);
    le32_put(file + 8, JOURNAL_VERSION);
    le32_put(file + 12, INDEX_PARTS);
    mark_encode(mark, (unsigned char *)file + 32);
    le32_put(file + HEADER_BYTES - 4, crc32c(0, file, HEADER_BYTES - 4));
    memcpy(file + HEADER_BYTES, data + 1, size - 1);
    size_t total = HEADER_BYTES + size - 1;
    size_t at = HEADER_BYTES;
    for (unsigned part = 0; data[0] % 2 == 1 && part < INDEX_PARTS; part++) {
        if (total - at < PART_BYTES) {
            break;
        }
        uint64_t slots = (uint64_t)le32_get(file + at + 4) * SLOT_BYTES;
        if (slots > total - at - PART_BYTES) {
            break;
        }
        uint32_t crc = crc32c(0, file + at, 16);
        le32_put(file + at + 16, crc32c(crc, file + at + PART_BYTES, (size_t)slots));
        at += PART_BYTES + (size_t)slots;
    }
    if (data[0] % 2 == 1 && total - at == 64) {
        le32_put(file + total - 4, crc32c(0, file + at, 60));
    }
    return total;
}

static void store_use(const struct io *io)
{
    struct store_options options = {.io = io, .must_exist = true};
    struct store *store;
    struct err err = {0};
    char url[128];
    (void)snprintf(url, sizeof url, "%s?background=off&write=buffered", fuzz_directory());
    if (store_open(url, &options, &store, &err) != OK) {
        ASSERT(err.text[0] != '\0');
        return;
    }
    struct arena arena;
    arena_init(&arena, &mem_libc, 64 << 20);
    const struct record *records[64];
    size_t count;
    struct scan scan = {.kinds = STORE_KINDS_ALL, .limit = 64};
    (void)store->ops->scan(store, &scan, &arena, records, &count, &err);
    struct store_due dues[16];
    struct store_due_filter all = {.kinds = STORE_KINDS_ALL, .reasons = STORE_DUES_ALL};
    (void)store->ops->due(store, &all, dues, 16, &count, &err);
    (void)store->ops->housekeeping->maintain(store, &err);
    arena_release(&arena);
    (void)store->ops->close(store, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > FUZZ_BYTES_MAX) {
        return 0;
    }
    static char file[HEADER_BYTES + FUZZ_BYTES_MAX];
    static char segment[4 * JOURNAL_BLOCK_BYTES];
    struct identity identity = {.segment_bytes = 1 << 20};
    struct segment_header header = {.number = 1,
        .size = 1 << 20,
        .mark = {.place = place_make(1, JOURNAL_BLOCK_BYTES), .batch = 1}};
    unsigned char bytes[IDENTITY_BYTES];
    identity_encode(&identity, bytes);
    memset(segment, 0, sizeof segment);
    segment_header_encode(&header, (unsigned char *)segment);
    file_put("identity", bytes, sizeof bytes);
    file_put("segment-0000000000000001", segment, sizeof segment);
    file_put("index-0000000000000001", file, index_make(file, data, size, &header.mark));
    struct io io = io_system;
    io.fsync = io.fdatasync = no_sync;
    store_use(&io);
    static const char *const names[] = {
        "identity", "segment-0000000000000001", "index-0000000000000001", "lock", "reached"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        file_drop(names[i]);
    }
    return 0;
}

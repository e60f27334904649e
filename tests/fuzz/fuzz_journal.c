/*
 * fuzz_journal: recovery and the walk over hostile bytes of a segment.
 *
 * The first byte says how the rest is used: even, as the bytes behind a valid segment header; odd,
 * the same with every batch header's and frame's checksum made right first, so that what is behind
 * the checksums is reached too. Whatever the bytes are: no crash, and what opens can be read and
 * closed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/fuzz_dir.h"
#include "store/journal/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_BYTES_MAX = 256 << 10, FILE_BYTES = 512 << 10 };

/* Make the checksums right, from the lengths that are there. */
static void checksums_fix(char *file, size_t size, uint32_t seed)
{
    size_t at = JOURNAL_BLOCK_BYTES;
    while (at + BATCH_HEADER_BYTES <= size) {
        struct batch_header header = {.number = le64_get(file + at + 8),
            .length = le32_get(file + at + 16),
            .content = le32_get(file + at + 20),
            .frames = le32_get(file + at + 24),
            .zero_sectors = le32_get(file + at + 28),
            .moment = {.time_ms = (int64_t)le64_get(file + at + 32)},
            .fence = le64_get(file + at + 56)};
        batch_header_encode(&header, seed, at, (unsigned char *)file + at);
        size_t end = at + header.content < size ? at + header.content : size;
        size_t frame = at + BATCH_HEADER_BYTES;
        while (frame + FRAME_HEADER_BYTES <= end) {
            uint32_t length = le32_get(file + frame);
            if (length > end - frame - FRAME_HEADER_BYTES) {
                break;
            }
            enum frame_kind kind = (enum frame_kind)le32_get(file + frame + 4);
            frame_header_encode(file + frame, kind, length, seed, frame);
            frame += FRAME_HEADER_BYTES + length;
        }
        if (header.length == 0 || header.length > size - at) {
            return;
        }
        at += header.length;
    }
}

static bool walk_visit(void *context, const struct journal_walk *walk)
{
    (void)context;
    ASSERT((walk->event == JOURNAL_WALK_FRAME) == (walk->frame != NULL));
    return true;
}

static bool entry_visit_all(void *context, const struct entry *entry)
{
    (void)context;
    return entry->bytes.len > 0;
}

static void store_use(const struct io *io, bool read_only)
{
    struct store_options options = {.io = io, .read_only = read_only, .must_exist = true};
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
    struct entry_range range = {0};
    (void)store->ops->entries(store, &range, entry_visit_all, NULL, &err);
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
    static char file[FILE_BYTES];
    memset(file, 0, sizeof file);
    struct identity identity = {.segment_bytes = FILE_BYTES};
    struct segment_header header = {.number = 1,
        .size = FILE_BYTES,
        .mark = {.place = place_make(1, JOURNAL_BLOCK_BYTES), .batch = 1}};
    unsigned char bytes[IDENTITY_BYTES];
    identity_encode(&identity, bytes);
    segment_header_encode(&header, (unsigned char *)file);
    memcpy(file + JOURNAL_BLOCK_BYTES, data + 1, size - 1);
    size_t total = (size_t)block_up(JOURNAL_BLOCK_BYTES + size - 1) + JOURNAL_BLOCK_BYTES;
    if (data[0] % 2 == 1) {
        checksums_fix(file, total, segment_seed(header.chain_id, 1));
    }
    file_put("identity", bytes, sizeof bytes);
    file_put("segment-0000000000000001", file, total);
    struct err err = {0};
    struct io io = io_system;
    io.fsync = io.fdatasync = no_sync;
    enum status walked = journal_walk(fuzz_directory(), &io, NULL, walk_visit, NULL, &err);
    (void)walked; /* any answer is right, as long as there is one */
    store_use(&io, true);
    store_use(&io, false);
    static const char *const names[] = {"identity", "segment-0000000000000001", "lock", "reached"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        file_drop(names[i]);
    }
    return 0;
}

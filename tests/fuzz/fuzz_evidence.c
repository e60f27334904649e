/*
 * fuzz_evidence: lines of evidence, notes and keys that anybody may have written.
 *
 * Each line is read as an entry and decided again on top of those before it, as if its record had
 * been dropped; the whole input is read as a note and as a public key. Nothing may assert: what
 * decide() takes for granted has to be refused by the reader.
 */
#include <stdint.h>

#include "base/check.h"
#include "evidence/checkpoint.h"
#include "evidence/redecide.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run_lines(struct slice text, struct redecide *redecide)
{
    struct arena arena;
    struct buf scratch;
    struct redecide_stored stored = {.squeezed = true};
    arena_init(&arena, &mem_libc, 4 << 20);
    buf_init(&scratch, &mem_libc, 1 << 20);
    while (text.len > 0) {
        const char *end = memchr(text.data, '\n', text.len);
        size_t length = end == NULL ? text.len : (size_t)(end - text.data);
        struct entry_view view;
        struct err err = {0};
        arena_clear(&arena);
        struct entry entry = {.seq = 1, .bytes = slice_of(text.data, length)};
        enum status status = entry_view_read(&entry, &arena, &scratch, &view, &err);
        if (status == OK) {
            status = redecide_entry(redecide, &view, &stored, &err);
        }
        ASSERT(status == OK || (status == E_CORRUPT && err.text[0] != '\0'));
        size_t taken = end == NULL ? length : length + 1;
        text = slice_of(text.data + taken, text.len - taken);
    }
    buf_release(&scratch);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct redecide redecide;
    redecide_init(&redecide, &mem_libc);
    run_lines(text, &redecide);
    redecide_gap(&redecide, UINT64_MAX / 2);
    run_lines(text, &redecide);
    redecide_release(&redecide);

    struct checkpoint_key key;
    struct checkpoint checkpoint;
    if (checkpoint_key_read(text, &key, NULL) != OK) {
        key = (struct checkpoint_key){.chain_id = "01920000-0000-7000-8000-000000000001"};
    }
    ASSERT(checkpoint_verify(text, &key, &checkpoint, NULL) != OK); /* nobody has that key */
    return 0;
}

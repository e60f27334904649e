#include "evidence/cursor.h"

#include <string.h>

#include "base/base64.h"
#include "base/check.h"

enum {
    CURSOR_VERSION = 1,
    CURSOR_BYTES = 25,
    CHAIN_AT = 1,
    SEQ_AT = 17,
    TEXT_BYTES_MAX = 64, /* more than any cursor has: a longer text is refused */
};

static bool is_nil(const unsigned char chain_id[16])
{
    static const unsigned char nil[16] = {0};
    return memcmp(chain_id, nil, sizeof nil) == 0;
}

char *evidence_cursor_put(char ret_text[EVIDENCE_CURSOR_BYTES], const struct entry_cursor *cursor)
{
    unsigned char bytes[CURSOR_BYTES] = {CURSOR_VERSION};
    ASSERT(!is_nil(cursor->chain_id)); /* the start of all evidence is the empty text */
    memcpy(bytes + CHAIN_AT, cursor->chain_id, sizeof cursor->chain_id);
    for (int i = 0; i < 8; i++) {
        bytes[SEQ_AT + i] = (unsigned char)(cursor->seq >> (56 - 8 * i));
    }
    char *end = base64_put(ret_text, bytes, sizeof bytes, BASE64_URL);
    ASSERT(end - ret_text == EVIDENCE_CURSOR_BYTES - 1);
    *end = '\0';
    return ret_text;
}

enum status evidence_cursor_read(
    struct slice text, struct entry_cursor *ret_cursor, struct err *err)
{
    unsigned char bytes[BASE64_BYTES_MAX(TEXT_BYTES_MAX)];
    struct entry_cursor cursor = {.seq = 0};
    size_t size = 0;
    if (text.len == 0) {
        *ret_cursor = cursor;
        return OK;
    }
    if (text.len > TEXT_BYTES_MAX || !base64_read(text, BASE64_URL, bytes, &size) ||
        size != CURSOR_BYTES || bytes[0] != CURSOR_VERSION) {
        return err_set(err, E_INVALID, "it is not a cursor: use one that a reading returned");
    }
    memcpy(cursor.chain_id, bytes + CHAIN_AT, sizeof cursor.chain_id);
    if (is_nil(cursor.chain_id)) { /* no chain has this id; a store would start over */
        return err_set(err, E_INVALID, "the cursor belongs to a different chain of evidence");
    }
    for (int i = 0; i < 8; i++) {
        cursor.seq = cursor.seq << 8 | bytes[SEQ_AT + i];
    }
    ASSERT(!is_nil(cursor.chain_id));
    *ret_cursor = cursor;
    return OK;
}

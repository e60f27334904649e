#include "evidence/cursor.h"

#include <string.h>

#include "base/base64.h"
#include "base/check.h"

enum {
    CURSOR_VERSION = 1,
    CURSOR_BYTES = 25,
    CHAIN_AT = 1,
    SEQ_AT = 17,
    TEXT_BYTES_MAX = 64, /* more than any cursor has: what is longer is not read */
};

char *evidence_cursor_put(
    char ret_text[EVIDENCE_CURSOR_BYTES], const struct evidence_cursor *cursor)
{
    unsigned char bytes[CURSOR_BYTES] = {CURSOR_VERSION};
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
    struct slice text, const unsigned char chain_id[16], uint64_t *ret_seq, struct err *err)
{
    unsigned char bytes[BASE64_BYTES_MAX(TEXT_BYTES_MAX)];
    size_t size = 0;
    if (text.len == 0) {
        *ret_seq = 0;
        return OK;
    }
    if (text.len > TEXT_BYTES_MAX || !base64_read(text, BASE64_URL, bytes, &size) ||
        size != CURSOR_BYTES || bytes[0] != CURSOR_VERSION) {
        return err_set(err, E_INVALID, "it is not a cursor: use one that a reading returned");
    }
    if (memcmp(bytes + CHAIN_AT, chain_id, 16) != 0) {
        return err_set(err, E_INVALID, "the cursor belongs to a different chain of evidence");
    }
    uint64_t seq = 0;
    for (int i = 0; i < 8; i++) {
        seq = seq << 8 | bytes[SEQ_AT + i];
    }
    *ret_seq = seq;
    return OK;
}

/*
 * cursor: a place in the evidence of a store (struct entry_cursor) as an opaque text.
 *
 * Readers get it from us and return it; only this module knows its content: base64url of a version
 * (1 byte), the chain id (16) and seq (8, big-endian). The store checks whether it has the chain
 * (store_ops.entries).
 *
 * Promises:  one text for one place. A text that is not a cursor, or of a later version, is
 *            refused.
 */
#ifndef ONCE_EVIDENCE_CURSOR_H
#define ONCE_EVIDENCE_CURSOR_H

#include "store/store.h"

enum { EVIDENCE_CURSOR_BYTES = 35 }; /* 25 bytes in base64url, and a terminator */

/* Returns ret_text. */
char *evidence_cursor_put(char ret_text[EVIDENCE_CURSOR_BYTES], const struct entry_cursor *cursor);
/* An empty text means before all evidence. E_INVALID: it is not a cursor. */
enum status evidence_cursor_read(
    struct slice text, struct entry_cursor *ret_cursor, struct err *err) MUST_CHECK;

#endif

/*
 * cursor: where a reader of evidence stands, as an opaque text.
 *
 * Chains will be many (one for each process of a shared store), so a number of an entry alone says
 * nothing. A cursor names the chain and the entry after which to go on. Readers get it from us and
 * give it back; only this module knows what is in it: base64url of a version (1), the chain id (16)
 * and seq (8, big-endian).
 *
 * Promises:  one text for one place. A text that is not a cursor, or of a later version, is
 *            refused, and so is the cursor of a different chain: it never reads as an empty page.
 */
#ifndef ONCE_EVIDENCE_CURSOR_H
#define ONCE_EVIDENCE_CURSOR_H

#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { EVIDENCE_CURSOR_BYTES = 35 }; /* 25 bytes in base64url, and a terminator */

struct evidence_cursor {
    unsigned char chain_id[16]; /* a UUID */
    uint64_t seq;               /* of the last entry passed; 0: before the first */
};

/* Returns ret_text. */
char *evidence_cursor_put(
    char ret_text[EVIDENCE_CURSOR_BYTES], const struct evidence_cursor *cursor);
/* The place in this chain; an empty text is before the first entry. E_INVALID: it is not a cursor,
 * or of a different chain. */
enum status evidence_cursor_read(struct slice text, const unsigned char chain_id[16],
    uint64_t *ret_seq, struct err *err) MUST_CHECK;

#endif

/*
 * remote_read: what a server says of evidence, as the library would say it.
 *
 * So that everything that is shown of an entry is written once, wherever it came from. Members
 * that are not known are passed over: a newer server may say more.
 *
 * Ownership: what is read lives in the arena.
 */
#ifndef ONCE_CLI_REMOTE_READ_H
#define ONCE_CLI_REMOTE_READ_H

#include "canon/digest.h"
#include "canon/json.h"
#include "cli/cli.h"
#include "evidence/cursor.h"

/* An entry with what ties it to the one before. */
struct remote_entry {
    struct once_entry entry; /* json is the canonical form, without the two hashes */
    struct digest prev_hash; /* as the server says */
    struct digest hash;      /* as the server says; entry.hash is the same */
    struct slice type;
    struct slice chain_id;
    struct slice operation_id;
    struct slice request_id;            /* of the request that left it; empty: none was given */
    char cursor[EVIDENCE_CURSOR_BYTES]; /* entry.cursor */
};

/* E_INVALID: it is no entry; E_NOMEM. Whether the hash fits is not checked. */
enum status remote_read_entry(const struct json_value *object, struct arena *arena,
    struct remote_entry *ret_entry, struct err *err) MUST_CHECK;

enum { CURSOR_BYTES_MAX = 256 }; /* of a server's own making; ours are shorter */

/* Where the next page begins, after the page that began at the cursor. *ret_more is false, and the
 * cursor as it was, after the last page. False: it is not a place, or the same again. */
bool remote_read_next(const struct json_value *page, char cursor[CURSOR_BYTES_MAX], bool *ret_more);

/* A member that is a number, or a number as text, as numbers past 2^53 are. False: it is none. */
bool remote_read_u64(const struct json_value *object, struct slice name, uint64_t *ret_value);

#endif

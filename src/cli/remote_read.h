/*
 * remote_read: the evidence of a server, page by page, as the library would give it.
 *
 * What is shown of an entry is written once, wherever the entry came from. Members that are not
 * known are ignored: a newer server may send more.
 *
 * Ownership: what is read lives in the arena, until the caller clears it.
 */
#ifndef ONCE_CLI_REMOTE_READ_H
#define ONCE_CLI_REMOTE_READ_H

#include "canon/digest.h"
#include "cli/operation.h"
#include "cli/remote.h"
#include "evidence/cursor.h"

/* An entry with what ties it to the one before. */
struct remote_entry {
    struct once_entry entry;            /* json is the canonical form, without the two hashes */
    struct entry_words words;           /* of it */
    struct digest prev_hash;            /* as the server says */
    struct digest hash;                 /* as the server says; entry.hash is the same */
    char cursor[EVIDENCE_CURSOR_BYTES]; /* entry.cursor */
};
/* E_INVALID: it is not an entry; E_NOMEM. Whether the hash fits is not checked. */
enum status remote_read_entry(const struct json_value *object, struct arena *arena,
    struct remote_entry *ret_entry, struct err *err) MUST_CHECK;

enum { CURSOR_BYTES_MAX = 256, CHAIN_ID_BYTES_MAX = 64 }; /* as a server made them */

/* Where the page after this one begins. False: it is not a cursor, or the same again. */
bool remote_take_next(
    const struct json_value *page, char cursor[CURSOR_BYTES_MAX], bool *ret_is_last) MUST_CHECK;

/* A page of evidence. */
struct remote_page {
    const struct json_value *entries; /* an array */
    bool is_last;
};
/* The path of that page, in the arena; operation_id NULL: of all. NULL: it is too long, which was
 * said. */
const char *remote_evidence_path(
    struct arena *arena, const char *operation_id, const char *cursor) MUST_CHECK;
/* The page after the cursor, which then is where the next one begins. operation_id NULL: of all
 * operations. 0, or an exit code with the message written. */
int remote_evidence(struct remote *remote, const char *operation_id, char cursor[CURSOR_BYTES_MAX],
    struct arena *arena, struct remote_page *ret_page) MUST_CHECK;

/* The last entry of the chain. */
struct remote_head {
    uint64_t seq;
    struct digest hash;
    char chain_id[CHAIN_ID_BYTES_MAX];
};
int remote_head(
    struct remote *remote, struct arena *arena, struct remote_head *ret_head) MUST_CHECK;

/* Report an answer that cannot be read. Returns the exit code. */
int remote_unreadable(const struct remote *remote, struct err *err);

/* A member that is a number, or a number as text, as numbers past 2^53 are. False: it is not. */
bool remote_read_u64(const struct json_value *object, struct slice name, uint64_t *ret_value);

#endif

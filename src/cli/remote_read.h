/*
 * remote_read: reads the evidence of a server, page by page, in the form that the library returns.
 *
 * So an entry is shown by the same code, wherever it came from. Unknown members are ignored: a
 * newer server may send more.
 *
 * Ownership: results live in the arena, until the caller clears it.
 */
#ifndef ONCE_CLI_REMOTE_READ_H
#define ONCE_CLI_REMOTE_READ_H

#include "canon/digest.h"
#include "cli/operation.h"
#include "cli/remote.h"
#include "evidence/cursor.h"

/* An entry, with the hashes that link it to the one before. */
struct remote_entry {
    struct once_entry entry;            /* json is the canonical form, without the two hashes */
    struct entry_words words;           /* of that form */
    struct digest prev_hash;            /* as the server says */
    struct digest hash;                 /* as the server says; entry.hash is the same */
    char cursor[EVIDENCE_CURSOR_BYTES]; /* entry.cursor */
};
/* E_INVALID: not an entry; E_NOMEM. The hash is not checked. */
enum status remote_read_entry(const struct json_value *object, struct arena *arena,
    struct remote_entry *ret_entry, struct err *err) MUST_CHECK;

enum { CURSOR_BYTES_MAX = 256, CHAIN_ID_BYTES_MAX = 64 }; /* as a server made them */

/* Where the next page begins. False: not a cursor, or the same one again. */
bool remote_take_next(
    const struct json_value *page, char cursor[CURSOR_BYTES_MAX], bool *ret_is_last) MUST_CHECK;

/* A page of evidence. */
struct remote_page {
    const struct json_value *entries; /* an array */
    bool is_last;
};
/* The path of that page, in the arena; operation_id NULL: of all operations. NULL: too long; the
 * message is written. */
const char *remote_evidence_path(
    struct arena *arena, const char *operation_id, const char *cursor) MUST_CHECK;
/* Read the page after the cursor, and set the cursor to the start of the next one. operation_id
 * NULL: of all operations. 0, or an exit code after writing the message. */
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

/* A member that is a number, or a number as text, as numbers above 2^53 are. False: it is
 * neither. */
bool remote_read_u64(const struct json_value *object, struct slice name, uint64_t *ret_value);

#endif

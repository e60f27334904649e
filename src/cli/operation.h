/*
 * operation: an operation on the command line: reading its document, finding it, and showing it.
 *
 * A store, through the library, and a server give the same document (engine/operation_document.h):
 * with --json it is printed unchanged, and all other output is taken from it.
 */
#ifndef ONCE_CLI_OPERATION_H
#define ONCE_CLI_OPERATION_H

#include "base/buf.h"
#include "canon/json.h"
#include "cli/cli.h"
#include "cli/out.h"

struct backend;

enum { FOUND_ID_BYTES = 256 }; /* terminated; callers may give ids of 255 bytes */

/* What duplicates get. */
struct operation_outcome {
    enum { OUTCOME_ABSENT, OUTCOME_JSON, OUTCOME_PARTS } form;
    bool is_retained;  /* false: its bytes are no longer kept */
    int code;          /* in parts: of the program that sealed it, such as an exit code */
    struct slice meta; /* in parts */
    struct slice body; /* the JSON, or the bytes; empty if they are gone */
    uint64_t bytes;    /* length of the body, kept or not; 0: unknown */
};

/* A document that was read. Slices point into it or into the arena. Unknown members are ignored: a
 * newer server may send more. */
struct operation {
    struct slice json;             /* the whole document */
    const struct json_value *root; /* its members; outcome and request may be left out */
    struct slice members;          /* the text that root was read from */
    struct operation_outcome outcome;
    struct slice
        request; /* the first request: as JSON if it was JSON, else its bytes; may be empty */
    enum once_status status;
    struct slice id;
    struct slice scope;
    struct slice principal; /* may be empty */
    struct slice key;
    struct slice reason; /* may be empty */
    uint64_t fence;
    uint64_t attempt;
    uint64_t duplicates;
    int64_t updated_ms;
    int64_t lease_expires_ms; /* 0: no lease */
};

/* A document from a server; root was read from text. E_INVALID: it is not an operation. E_NOMEM. */
enum status operation_read(struct slice text, const struct json_value *root, struct arena *arena,
    struct operation *ret_operation, struct err *err) MUST_CHECK;
/* The library's operation as the document that a server would send, in the arena. Its bodies, which
 * may be larger than the JSON reader accepts, are not read from the document. */
enum status operation_of(struct once *once, const struct once_operation *from, bool has_bodies,
    struct arena *arena, struct operation *ret_operation, struct err *err) MUST_CHECK;
/* Bytes as written by jsonw_bytes: the member "name", or "name_base64". E_INVALID: both are absent,
 * or it is malformed; E_NOMEM. */
enum status operation_bytes(const struct json_value *object, const char *name, struct arena *arena,
    struct slice *ret_bytes, struct err *err) MUST_CHECK;
/* Its id, terminated, in the arena; NULL: out of memory. */
const char *operation_id(const struct operation *operation, struct arena *arena) MUST_CHECK;
/* A member's value, or NULL. */
const struct json_value *operation_member(const struct operation *operation, const char *name);

/* Called for each operation, which is valid during the call. Return 0 to continue. */
typedef int (*operation_visit)(void *context, const struct operation *operation);

/* Records of one kind that match the typed text: a single match is used, several are listed. */
struct found {
    const char *kind; /* "operations" */
    size_t count;
    char first[FOUND_ID_BYTES]; /* its id */
    struct buf shown;           /* a line for each of the first few */
};
/* Members shown beside the id and status; empty values are left out. */
struct found_member {
    const char *name;
    struct slice value;
};
/* Whether the text is a proper prefix of an id with this prefix. */
bool found_is_prefix(const char *id_prefix, const char *typed);
/* Add a match, whose id is shorter than FOUND_ID_BYTES. */
void found_add(struct found *found, struct slice id, struct slice status,
    const struct found_member *members, size_t member_count);
/* The id of the only match, in the arena; NULL if there is none. 0, or an exit code after writing
 * the message, also if there are several, which are listed. code is the result of the search; if it
 * failed, it is returned. Releases the collected matches. */
int found_pick(struct found *found, int code, struct arena *arena, const char **ret_id) MUST_CHECK;

/* The id of the one operation whose id equals or begins with this text. 0, or an exit code after
 * writing the message, also if there are several, which are listed. *ret is in cli's arena. */
int operation_name(
    struct cli *cli, struct backend *backend, const char *typed, const char **ret) MUST_CHECK;
/* The operation that the operand or --key names, of any scope and principal unless --scope and
 * --principal are given. 0, or an exit code after writing the message. */
int operation_find(
    struct cli *cli, struct backend *backend, const struct operation **ret) MUST_CHECK;

enum tint operation_tint(enum once_status status);

/* Print text from outside, safe for a terminal: control characters become \xNN. */
void out_safe(struct slice text);
/* The same, but newlines are kept. */
void out_safe_lines(struct slice text);

/* The shown parts of an evidence entry; absent members are empty. Not evidence/entry_view: that
 * refuses an entry with a misplaced member, and such an entry must be shown too. */
struct entry_words {
    const struct json_value *root;
    struct slice type; /* "execution.started" */
    struct slice chain_id;
    struct slice request;  /* "begin", "seal", … */
    struct slice decision; /* "first_seen", … */
    struct slice rule;     /* "B1" */
    struct slice tenant;   /* empty: the entry is about the whole store */
    struct slice operation_id;
    struct slice scope;
    struct slice key;
    struct slice state; /* the record's new status */
    struct slice reason;
    struct slice actor;
    struct slice request_id;
    struct slice fence;
    struct slice attempt;
    struct slice count; /* of a note: duplicates, entries read */
};
/* The slices point into the text that root was read from. */
struct entry_words entry_words_of(const struct json_value *root);
/* The same of an entry's text. False: it is not a JSON object. */
bool entry_words_read(
    struct slice json, struct arena *arena, struct entry_words *ret_words) MUST_CHECK;
/* The meaning of a rule of the decision table, or "". */
const char *rule_words(struct slice rule);

#endif

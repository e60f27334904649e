/*
 * operation: an operation on the command line: named, found, and shown.
 */
#ifndef ONCE_CLI_OPERATION_H
#define ONCE_CLI_OPERATION_H

#include "canon/json.h"
#include "cli/cli.h"
#include "cli/origin.h"
#include "cli/out.h"

/* The one that the operand or --scope, --principal and --key name. 0, or an exit code with the
 * message written. */
int operation_find(
    struct cli *cli, struct origin *origin, const struct once_operation **ret) MUST_CHECK;

/* Members of a JSON object that is open. bodies: outcome and request too. */
void operation_json(
    struct jsonw *json, struct cli *cli, const struct once_operation *operation, bool bodies);
/* The meta of an outcome that came through a server's door: its body is JSON, byte for byte. */
#define OPERATION_META_JSON SLICE_LIT("application/json")
/* False when there was an outcome whose bytes are gone. */
bool operation_outcome_is_retained(const struct once_operation *operation);
/* There is none, or JSON that says as much or is gone: a server tells these apart as little. */
bool operation_outcome_is_null(const struct once_operation *operation);
/* Whether the outcome is such JSON, and still there. */
bool operation_outcome_is_json(const struct once_operation *operation);
/* Whether a first request is kept in its canonical form, so that it can stand in a document as the
 * value that it is. Anything else is shown as text. */
bool operation_request_is_json(struct slice request);
enum tint operation_tint(enum once_status status);

/* Text that somebody else chose, safe for a terminal: control characters become \xNN. */
void out_safe(struct slice text);
/* The same with a newline left as it is. */
void out_safe_lines(struct slice text);

/* One evidence entry, taken apart. Slices point into its JSON. */
struct entry_words {
    const struct json_value *root;
    struct slice type;     /* "execution.started" */
    struct slice request;  /* "begin", "seal", … */
    struct slice decision; /* "first_seen", … */
    struct slice rule;     /* "B1" */
    struct slice operation_id;
    struct slice scope;
    struct slice key;
    struct slice state; /* the record's status from now on */
    struct slice reason;
    struct slice actor;
    struct slice request_id;
    struct slice fence;
    struct slice attempt;
    struct slice count; /* of a note: duplicates, entries read */
};
/* False when the entry is not readable; then all is empty. */
bool entry_words_read(
    struct slice json, struct arena *arena, struct entry_words *ret_words) MUST_CHECK;
/* What a rule of the decision table means, or "". */
const char *rule_words(struct slice rule);

#endif

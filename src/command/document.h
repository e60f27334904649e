/*
 * document: the one document of a command, as submissions, GET, lists and the command line show it
 * (docs/commands.md; IDS-6). Values are redacted by the registry's paths. A confirmation token
 * appears only in the answer to the submission that made the command wait.
 */
#ifndef ONCE_COMMAND_DOCUMENT_H
#define ONCE_COMMAND_DOCUMENT_H

#include "canon/jsonw.h"
#include "command/detail.h"
#include "core/kind.h"

struct command_document {
    const struct record *record;
    struct slice outcome_body; /* if it is retained */
    bool has_outcome;          /* outcome_body is set */
    const char *decision;      /* of a submission; NULL: not a submission */
    /* While the command waits for its confirmation; only in documents for the caller that
     * confirms. */
    const char *token;            /* NULL or empty: not shown */
    struct slice prompt;          /* empty: absent */
    const struct query *evidence; /* its first entries, which the caller may see; NULL: not read */
};

/* The name of its status: "awaiting_confirmation", "executed", … */
const char *document_status(const struct record *record, const struct detail *detail);
/* "cmd_…", or the id that the caller gave. Points into text, the caller's buffer, or into the
 * detail. */
struct slice document_id(
    const struct record *record, const struct detail *detail, char text[KIND_ID_TEXT_BYTES]);
/* Write the members of an object. */
void document_put(
    struct jsonw *json, const struct command_document *document, const struct detail *detail);

#endif

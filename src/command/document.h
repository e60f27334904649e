/*
 * document: the one document of a command, as submissions, GET, lists and the command line show it
 * (DESIGN section 10; IDS-6). Values are redacted by the registry's paths. A confirmation token is
 * only in the answer to the submission that made the command wait.
 */
#ifndef ONCE_COMMAND_DOCUMENT_H
#define ONCE_COMMAND_DOCUMENT_H

#include "canon/jsonw.h"
#include "command/detail.h"
#include "core/kind.h"

struct command_document {
    const struct record *record;
    struct slice outcome_body; /* when it is retained */
    bool has_outcome;          /* outcome_body is of it */
    const char *decision;      /* to a submission; NULL: it is none */
    /* Of a command that waits for its confirmation, to whom they are meant for alone. */
    const char *token;   /* NULL or empty: not given away */
    struct slice prompt; /* empty: absent */
};

/* The word for what it is: "awaiting_confirmation", "executed", … */
const char *document_status(const struct record *record, const struct detail *detail);
/* "cmd_…", or the id that was given. In text, which is the caller's, or in the detail. */
struct slice document_id(
    const struct record *record, const struct detail *detail, char text[KIND_ID_TEXT_BYTES]);
/* Members of an object. */
void document_put(
    struct jsonw *json, const struct command_document *document, const struct detail *detail);

#endif

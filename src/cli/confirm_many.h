/*
 * confirm_many: shared by the commands that change many records: nothing changes unless a person
 * agrees, and a command that stopped on the way reports how far it got.
 *
 *     list > --dry-run: print > agree: --yes, or a person at a terminal > change one after another
 */
#ifndef ONCE_CLI_CONFIRM_MANY_H
#define ONCE_CLI_CONFIRM_MANY_H

#include "cli/cli.h"

/* How to speak of it. */
struct many {
    const struct cli *cli;
    const char *command; /* "resolve" */
    const char *noun;    /* "operation" */
    const char *verb;    /* "settle" */
    const char *verbs;   /* "settles" */
    const char *done;    /* "settled" */
    const char *as;      /* the status that they get; NULL: the verb says it */
    const char *which;   /* those that can be changed: "unknown operation" */
    const char *still;   /* what they are until then: "unknown" */
};

/* Whether to continue: --yes, or a person types y. 0, or an exit code after writing the message. */
int many_agree(const struct many *many, size_t count, bool *ret_agreed) MUST_CHECK;
/* Report that nothing matches. */
void many_none(const struct many *many);
/* Report how far it got before a failure. */
void many_stopped(const struct many *many, size_t done, size_t count);
/* Whether the command line is about one, by its id, or about many: by the word for all of them, or
 * by filters. It must not say both. 0, or an exit code after writing the message. */
int many_check(
    const struct cli *cli, const char *command, const char *noun, bool *ret_is_many) MUST_CHECK;

#endif

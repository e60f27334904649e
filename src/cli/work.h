/*
 * work: the records that Once executes itself (commands, effects, deliveries), as its server shows
 * them: one, many, and an operator's decisions. There is a row for each kind; an id's prefix
 * selects it.
 */
#ifndef ONCE_CLI_WORK_H
#define ONCE_CLI_WORK_H

#include "cli/cli.h"

struct work_kind {
    const char *prefix; /* of its ids: "cmd_" */
    const char *name;   /* in the API's paths and documents: "commands" */
    const char *id;     /* the member with its id */
    const char *what;   /* members shown in a list: what it is … */
    const char *who;    /* … and whose */
    const char *one;    /* in a message: "command" */
};
struct remote;

/* The kind of an id or a name ("commands"); NULL: an operation's, or invalid. */
const struct work_kind *work_kind_of_id(const char *id);
const struct work_kind *work_kind_named(const char *name);

/* The id of the one record of this kind whose id equals or begins with this text, like
 * operation_name. Without a server the command fails with a message. */
int work_name(struct cli *cli, struct remote *remote, const struct work_kind *kind,
    const char *typed, const char **ret) MUST_CHECK;
/* Print one, followed by its evidence if the caller may read that. 0, or an exit code after writing
 * the message. */
int work_show(struct cli *cli, const struct work_kind *kind, const char *id) MUST_CHECK;
/* List those that match --status and --key, newest first. The same result. */
int work_list(struct cli *cli, const struct work_kind *kind) MUST_CHECK;
/* Settle an uncertain effect, a blocked command or an unknown delivery, by the options of once
 * resolve. The same result. */
int work_resolve(struct cli *cli, const struct work_kind *kind, const char *id) MUST_CHECK;

#endif

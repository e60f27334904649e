/*
 * work: what Once performs itself (commands, effects, deliveries), as its server shows it: one,
 * many, and what a person decides about it. A row for each kind; ids say which.
 */
#ifndef ONCE_CLI_WORK_H
#define ONCE_CLI_WORK_H

#include "cli/cli.h"

struct work_kind {
    const char *prefix; /* of its ids: "cmd_" */
    const char *name;   /* in the API's paths and documents: "commands" */
    const char *id;     /* the member with its id */
    const char *what;   /* the members that a list shows: what it is … */
    const char *who;    /* … and whose */
    const char *one;    /* in a message: "command" */
};
struct remote;

/* The kind that an id or a name ("commands") is of; NULL: an operation's, or none. */
const struct work_kind *work_kind_of_id(const char *id);
const struct work_kind *work_kind_named(const char *name);

/* The id of the one of this kind whose id begins with this text, or is it: as operation_name.
 * Without a server there is nothing to ask, which is said. */
int work_name(struct cli *cli, struct remote *remote, const struct work_kind *kind,
    const char *typed, const char **ret) MUST_CHECK;
/* Print one, its evidence below where the caller may read it. 0, or an exit code with the message
 * written. */
int work_show(struct cli *cli, const struct work_kind *kind, const char *id) MUST_CHECK;
/* List those that match --status and --key, newest first. The same. */
int work_list(struct cli *cli, const struct work_kind *kind) MUST_CHECK;
/* Settle an uncertain effect, by the options of once resolve. The same. */
int work_resolve(struct cli *cli, const struct work_kind *kind, const char *id) MUST_CHECK;
/* Redeliver, skip or resolve a delivery, with the options of that command. The same. */
int work_decide(struct cli *cli, const char *id, const char *verb) MUST_CHECK;

#endif

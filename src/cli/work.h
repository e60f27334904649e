/*
 * work: the records that Once executes itself (commands, effects, deliveries), as its server shows
 * them: one, many, and an operator's decisions. There is a row for each kind; an id's prefix
 * selects it.
 */
#ifndef ONCE_CLI_WORK_H
#define ONCE_CLI_WORK_H

#include "canon/json.h"
#include "cli/cli.h"

struct work_kind {
    const char *prefix; /* of its ids: "cmd_" */
    const char *name;   /* in the API's paths and documents: "commands" */
    const char *id;     /* the member with its id … */
    const char *own;  /* … and with Once's, which its submitter may have given a name; or NULL */
    const char *what; /* members shown in a list: what it is … */
    const char *who;  /* … and whose */
    const char *one;  /* in a message: "command" */
};
struct remote;
struct remote_answer;
struct arena;

/* The kind of an id or a name ("commands"); NULL: an operation's, or invalid. */
const struct work_kind *work_kind_of_id(const char *id);
const struct work_kind *work_kind_named(const char *name);

/* The kind of the record that the text names, by its prefix or, if a server runs, because a command
 * or an effect has such an id from its submitter; then *typed becomes that id. *ret is NULL for an
 * operation, or text that names nothing. 0, or an exit code after writing the message. */
int work_find(struct cli *cli, const char **typed, const struct work_kind **ret) MUST_CHECK;
/* The id of the one record of this kind whose id equals or begins with this text, like
 * operation_name. An id that equals it counts before those that only begin with it. Without a
 * server the command fails with a message. */
int work_name(struct cli *cli, struct remote *remote, const struct work_kind *kind,
    const char *typed, const char **ret) MUST_CHECK;
/* The server that was named, or that holds the store. 0, or an exit code after writing the
 * message. */
int work_open_server(struct cli *cli, struct remote **ret_remote) MUST_CHECK;
/* That server, and the full id of the record that the text names. After a failure there is nothing
 * to free. */
int work_open_named(struct cli *cli, const struct work_kind *kind, const char *typed,
    struct remote **ret_remote, const char **ret_id) MUST_CHECK;

/* Selects records; NULL and 0: any. */
struct work_filter {
    const char *status; /* as the kind spells it, or "uncertain" */
    const char *scope;  /* what it is: the type of an effect, the source of a delivery */
    const char *key;
    int64_t from_ms; /* when it was last changed */
    int64_t until_ms;
};
/* From --scope, --key, --since and --older-than, with this status. */
struct work_filter work_filter_of(const struct cli *cli, const char *status);
/* Called with each; text is its JSON. It lives until the function returns. Not 0: stop. */
typedef int (*work_visit)(void *context, const struct json_value *item, struct slice text);
/* 0, or an exit code after writing the message. filter NULL: all. */
int work_each(struct cli *cli, struct remote *remote, const struct work_kind *kind,
    const struct work_filter *filter, work_visit visit, void *context) MUST_CHECK;

/* An action on one record: POST /v1/{kind}/{id}/{verb}. */
struct work_ask {
    const struct work_kind *kind;
    const char *id;
    const char *verb;
    struct slice body;
};
/* Ask for it. 0, or an exit code after writing the message. */
int work_ask(struct remote *remote, const struct work_ask *ask, struct arena *arena,
    struct remote_answer *ret_answer) MUST_CHECK;
/* The word of the API for the --status of once resolve. */
const char *work_effect_status(const char *status);
/* Retry, cancel, compensate or resolve every effect that the filters match, after the operator has
 * agreed. The same result. */
int work_many(struct cli *cli, const char *verb) MUST_CHECK;

/* Print one, followed by its evidence if the caller may read that. 0, or an exit code after writing
 * the message. */
int work_show(struct cli *cli, const struct work_kind *kind, const char *id) MUST_CHECK;
/* List those that match --status, --scope, --key, --since and --older-than, newest first. The same
 * result. */
int work_list(struct cli *cli, const struct work_kind *kind) MUST_CHECK;
/* Settle an uncertain effect, a blocked command or an unknown delivery, by the options of once
 * resolve. The same result. */
int work_resolve(struct cli *cli, const struct work_kind *kind, const char *id) MUST_CHECK;

#endif

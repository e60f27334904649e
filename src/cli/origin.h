/*
 * origin: where the operations that a command is about come from.
 *
 * A store of this machine, through the library; or a server, over HTTP. One table of what can be
 * asked, so that every command is written once and prints the same of both.
 *
 *     --server given, or ONCE_SERVER         that server
 *     a server holds the store of --store    that server, through the socket in its directory
 *     otherwise                              the store itself
 *
 * Promises:  what a server shows is durable (P2), and reading evidence through it leaves
 *            access.read. Every function returns 0, or an exit code with the message written.
 * Ownership: an operation that was found lives until the origin is closed.
 */
#ifndef ONCE_CLI_ORIGIN_H
#define ONCE_CLI_ORIGIN_H

#include "cli/cli.h"
#include "evidence/cursor.h"

struct origin;
struct remote;

/* How somebody settles an operation. */
struct origin_settle {
    struct once_resolve resolve; /* its outcome is as if the command of once run had written it */
    struct slice outcome;        /* what was given as the outcome; for a server it has to be JSON */
    bool has_outcome;
    bool has_exit_code; /* only an operation of once run has one */
};

/* What became of a resolve. */
struct origin_resolved {
    enum once_decision decision;
    bool repeated;
    const struct once_operation *operation; /* as it is now; NULL: not told */
};

struct origin_ops {
    /* *ret is NULL when there is none. */
    int (*get)(struct origin *origin, const char *operation_id, const struct once_operation **ret);
    int (*lookup)(struct origin *origin, const char *scope, const char *principal, const char *key,
        const struct once_operation **ret);
    /* As once_iterate and once_evidence. Own reads are left out of what a server shows. */
    int (*iterate)(struct origin *origin, const struct once_filter *filter,
        once_operation_visit visit, void *context);
    int (*evidence)(struct origin *origin, const char *operation_id, const char *after,
        once_entry_visit visit, void *context);
    /* A cursor after which about the last `back` entries are; empty: they are all. */
    int (*near_end)(struct origin *origin, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES]);
    int (*resolve)(struct origin *origin, const struct origin_settle *settle,
        struct origin_resolved *ret_resolved);
    /* See what came since. False: not possible at the moment, try again later. */
    int (*refresh)(struct origin *origin, bool *ret_ready);
    void (*close)(struct origin *origin);
};

struct origin {
    const struct origin_ops *ops; /* NULL: closed */
    struct cli *cli;
    /* A store. */
    struct once *once;
    struct once_operation *held; /* found last */
    struct once_answer *answer;  /* to the resolve */
    /* A server. */
    struct remote *remote;
    struct arena arena;               /* for the page at hand */
    struct once_operation *operation; /* found last, in cli's arena */
};

/* The server that holds the store of --store, found by the socket in its directory. */
struct origin_server {
    const char *url; /* "unix:…", in cli's arena; NULL: there is none */
    int64_t pid;     /* 0: not told */
};
void origin_own_server(struct cli *cli, struct origin_server *ret_server);

/* The server of --server or ONCE_SERVER; *ret is NULL when none was named. */
int origin_named_server(struct cli *cli, struct remote **ret_remote) MUST_CHECK;
/* To look; never creates anything. */
int origin_open(struct cli *cli, struct origin *ret_origin) MUST_CHECK;
/* To change something. */
int origin_open_to_change(struct cli *cli, struct origin *ret_origin) MUST_CHECK;
/* A zeroed one is fine. */
void origin_close(struct origin *origin);

/* Takes the remote over. */
void origin_init_remote(struct origin *origin, struct cli *cli, struct remote *remote);

#endif

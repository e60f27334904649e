/*
 * backend: where the operations that a command is about come from.
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
 * Ownership: an operation that was found, and an answer, live until the backend is closed.
 */
#ifndef ONCE_CLI_BACKEND_H
#define ONCE_CLI_BACKEND_H

#include "cli/operation.h"
#include "evidence/cursor.h"

struct remote;

/* The meta of an outcome that is JSON. */
#define OUTCOME_JSON_META "application/json"

/* What was decided. */
struct backend_answer {
    enum once_decision decision;
    bool repeated;                     /* the same again: nothing changed */
    char operation_id[40];             /* may be empty */
    uint64_t fence;                    /* of the grant, to a first_seen; else 0 */
    uint64_t attempt;                  /* likewise */
    int64_t retry_after_ms;            /* to in_progress */
    struct slice diff;                 /* to a conflict: RFC 6902; may be empty */
    const struct operation *operation; /* as it is now; NULL: it is not shown, or gone */
};

struct backend_ops {
    /* get without a message, and without the bodies: the result is once.h's. */
    int (*peek)(struct backend *backend, const char *operation_id, const struct operation **ret);
    /* *ret is NULL when there is no such operation. */
    int (*get)(struct backend *backend, const char *operation_id, const struct operation **ret);
    /* As once_iterate and once_evidence. Own reads are left out of what a server shows. */
    int (*iterate)(struct backend *backend, const struct once_filter *filter, operation_visit visit,
        void *context);
    int (*evidence)(struct backend *backend, const char *operation_id, const char *after,
        once_entry_visit visit, void *context);
    /* A cursor after which about the last `back` entries are; empty: they are all. */
    int (*near_end)(struct backend *backend, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES]);
    /* Begin, seal, release, unknown, renew or resolve: the one member that is set. Unlike the
     * others it writes no message: the result is once.h's, and error says why. An outcome for a
     * server has to be JSON, marked OUTCOME_JSON_META; of a resolve it may be an answer of HTTP, as
     * given_outcome.h makes it. */
    int (*call)(struct backend *backend, const struct once_call *call,
        struct backend_answer *ret_answer, struct once_error *error);
    /* See what came since. False: not possible at the moment, try again later. */
    int (*refresh)(struct backend *backend, bool *ret_ready);
    void (*close)(struct backend *backend);
};

struct backend {
    const struct backend_ops *ops; /* NULL: closed */
    struct cli *cli;
    /* A store. */
    struct once *once;
    /* A server. */
    struct remote *remote;
    int refused_code;    /* the exit code that fits, when a server refused the last call; else 0 */
    bool is_flooded;     /* it was refused because the key is asked for too often */
    struct arena arena;  /* for the page at hand, of either */
    struct arena own;    /* for what is found and answered, until it is closed */
    struct arena *found; /* where that goes: own, or the caller's, to keep it longer */
};

/* The server that holds the store of --store, found by the socket in its directory. */
struct backend_server {
    const char *url; /* "unix:…", in cli's arena; NULL: no server */
    int64_t pid;     /* 0: not known */
};
void backend_own_server(struct cli *cli, struct backend_server *ret_server);

/* The server of --server or ONCE_SERVER; *ret is NULL when neither was given. */
int backend_named_server(struct cli *cli, struct remote **ret_remote) MUST_CHECK;
/* That one, else the server that holds the store of --store; *ret is NULL when there is neither. */
int backend_find_server(struct cli *cli, struct remote **ret_remote) MUST_CHECK;
/* To read; never creates anything. */
int backend_open(struct cli *cli, struct backend *ret_origin) MUST_CHECK;
/* The same without a message; the result is once.h's. */
int backend_try_look(struct cli *cli, struct backend *ret_origin) MUST_CHECK;
/* To change something. */
int backend_open_to_change(struct cli *cli, struct backend *ret_origin) MUST_CHECK;
/* The same, created when absent unless how says otherwise; without a message. The result
 * is once.h's, and error says why. */
int backend_try_open(struct cli *cli, struct cli_open how, struct backend *ret_origin,
    struct once_error *error) MUST_CHECK;
/* A zeroed one is fine. */
void backend_close(struct backend *backend);

/* Fill error, which may be NULL. */
void backend_error(struct once_error *error, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Takes the remote over. */
void backend_init_remote(struct backend *backend, struct remote *remote);

#endif

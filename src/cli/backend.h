/*
 * backend: the source of the operations that a command works on.
 *
 * A store on this machine, through the library; or a server, over HTTP. Both have one table of
 * functions, so that every command is written once and prints the same for both.
 *
 *     --server given, or ONCE_SERVER         that server
 *     a server holds the store of --store    that server, through the socket in its directory
 *     otherwise                              the store itself
 *
 * Promises:  data from a server is durable (P2), and reading evidence through it adds access.read.
 *            Every function returns 0, or an exit code after writing the message.
 * Ownership: found operations and answers live until the backend is closed.
 */
#ifndef ONCE_CLI_BACKEND_H
#define ONCE_CLI_BACKEND_H

#include "cli/operation.h"
#include "evidence/cursor.h"

struct remote;

/* The meta of an outcome that is JSON. */
#define OUTCOME_JSON_META "application/json"

/* The decision of a call. */
struct backend_answer {
    enum once_decision decision;
    bool repeated;                     /* a repeated call: nothing changed */
    char operation_id[40];             /* may be empty */
    uint64_t fence;                    /* of the grant, for first_seen; otherwise 0 */
    uint64_t attempt;                  /* likewise */
    int64_t retry_after_ms;            /* for in_progress */
    struct slice diff;                 /* for a conflict: RFC 6902; may be empty */
    const struct operation *operation; /* its current state; NULL: not shown, or gone */
};

struct backend_ops {
    /* Like get, without a message and without the bodies: the result is once.h's. */
    int (*peek)(struct backend *backend, const char *operation_id, const struct operation **ret);
    /* *ret is NULL if there is no such operation. */
    int (*get)(struct backend *backend, const char *operation_id, const struct operation **ret);
    /* Like once_iterate and once_evidence. Our own reads are left out of a server's evidence. */
    int (*iterate)(struct backend *backend, const struct once_filter *filter, operation_visit visit,
        void *context);
    int (*evidence)(struct backend *backend, const char *operation_id, const char *after,
        once_entry_visit visit, void *context);
    /* A cursor with about `back` entries after it; empty: all entries come after it. */
    int (*near_end)(struct backend *backend, uint64_t back, char ret_cursor[EVIDENCE_CURSOR_BYTES]);
    /* Begin, seal, release, unknown, renew or resolve: the one member that is set. Unlike the
     * others it writes no message: the result is once.h's, and error says why. An outcome for a
     * server must be JSON, marked OUTCOME_JSON_META; for a resolve it may be an HTTP answer made by
     * given_outcome.h. */
    int (*call)(struct backend *backend, const struct once_call *call,
        struct backend_answer *ret_answer, struct once_error *error);
    /* Read what is new. False: not possible at the moment, try again later. */
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
    int refused_code;    /* the exit code if a server refused the last call; else 0 */
    bool is_flooded;     /* refused because the key is requested too often */
    struct arena arena;  /* for the current page, of either */
    struct arena own;    /* for found operations and answers, until it is closed */
    struct arena *found; /* holds those: own, or the caller's, to keep them longer */
};

/* The server that holds the store of --store, found by the socket in its directory. */
struct backend_server {
    const char *url; /* "unix:…", in cli's arena; NULL: no server */
    int64_t pid;     /* 0: not known */
};
void backend_own_server(struct cli *cli, struct backend_server *ret_server);

/* " --store URL" or " --server URL" for a hint, if a command that is pasted needs it.
 * Returns its argument. */
const char *backend_place_option(struct cli *cli, char *ret_text, size_t size);
/* The server of --server or ONCE_SERVER; *ret is NULL if neither was given. */
int backend_named_server(struct cli *cli, struct remote **ret_remote) MUST_CHECK;
/* That one, else the server that holds the store of --store; *ret is NULL if there is neither. */
int backend_find_server(struct cli *cli, struct remote **ret_remote) MUST_CHECK;
/* What that server answers to a GET, in the command's arena. Without a server it says so, with the
 * hint. */
int backend_get(
    struct cli *cli, const char *path, const char *hint, struct slice *ret_text) MUST_CHECK;
/* For reading; never creates anything. */
int backend_open(struct cli *cli, struct backend *ret_origin) MUST_CHECK;
/* The same without a message; the result is once.h's. */
int backend_try_read(struct cli *cli, struct backend *ret_origin) MUST_CHECK;
/* For changes. */
int backend_open_to_change(struct cli *cli, struct backend *ret_origin) MUST_CHECK;
/* The same, but creates the store if it is absent, unless how says otherwise; without a message.
 * The result is once.h's, and error says why. */
int backend_try_open(struct cli *cli, struct cli_open how, struct backend *ret_origin,
    struct once_error *error) MUST_CHECK;
/* A zeroed backend is fine. */
void backend_close(struct backend *backend);

/* Fill error, which may be NULL. */
void backend_error(struct once_error *error, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Takes ownership of the remote. */
void backend_init_remote(struct backend *backend, struct remote *remote);

#endif

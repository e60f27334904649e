/*
 * gateway: the `gateway:` section (docs/gateway.md) as plain data.
 *
 * Promises:  every value is set: by the route, else by a flag, else by the policy file, else by the
 *            section, else by the profile or the program. Anything that a profile forbids (a window
 *            of three days under guardia, a fenced GET) was refused when it was read.
 * Ownership: in the config's memory, until config_free.
 */
#ifndef ONCE_CONFIG_GATEWAY_H
#define ONCE_CONFIG_GATEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum {
    CONFIG_ROUTES_MAX = 256,   /* compared one after another for each request */
    CONFIG_UPSTREAMS_MAX = 16, /* addresses of one route */
    CONFIG_POINTERS_MAX = 64,  /* of ignore, and of redact */
    CONFIG_FIELDS_MAX = 64,    /* of replay_headers */
    CONFIG_ORIGINS_MAX = 32,   /* of cors.origins */
    CONFIG_STATUSES_MAX = 16,  /* of reconcile's executed, and of not_executed */
    CONFIG_GATEWAY_LISTEN_MAX = 8,
    CONFIG_HEADERS_MAX = 16, /* of require_headers */
    CONFIG_RULES_MAX = 32,   /* of on_status: the given rules and the profile's */
};

/* A named set of HTTP rules. */
enum config_profile {
    CONFIG_PROFILE_IETF,
    CONFIG_PROFILE_GUARDIA,
    CONFIG_PROFILE_ADR007,
    CONFIG_PROFILE_OPS,
    CONFIG_PROFILE_STRIPE,
};
enum { CONFIG_PROFILES = 5 };

/* Bits of methods that can be fenced. Reads never are (GRD-11). */
enum config_method {
    CONFIG_METHOD_POST = 1,
    CONFIG_METHOD_PUT = 2,
    CONFIG_METHOD_PATCH = 4,
    CONFIG_METHOD_DELETE = 8,
};

/* The bit of a method by its name; 0: the method cannot be fenced. */
unsigned config_method(struct slice name);
/* The names of methods, separated by spaces: "POST PUT". Returns its argument. */
enum { CONFIG_METHODS_BYTES = 24 };
char *config_methods_put(char ret_text[CONFIG_METHODS_BYTES], unsigned bits);

/* Where the key is: in Idempotency-Key. A request without it … */
enum config_key {
    CONFIG_KEY_REQUIRED,  /* is refused with 400 */
    CONFIG_KEY_GENERATED, /* runs under a fresh UUIDv4, which is echoed */
    CONFIG_KEY_OPTIONAL,  /* passes through, not fenced */
    /* … or elsewhere; a request without it is refused with 400. */
    CONFIG_KEY_HEADER, /* a field */
    CONFIG_KEY_JSON,   /* a member of the body */
};

enum config_principal {
    CONFIG_PRINCIPAL_AUTO,          /* as AUTHORIZATION; if that is absent, SHA-256 of an API key */
    CONFIG_PRINCIPAL_AUTHORIZATION, /* SHA-256 of the Authorization field; all requests without it
                                       are one principal */
    CONFIG_PRINCIPAL_HEADER,        /* a field's value */
    CONFIG_PRINCIPAL_JWT,           /* a claim of a verified bearer token */
    CONFIG_PRINCIPAL_NONE,          /* one principal for all requests */
};

enum config_jwt_alg { CONFIG_JWT_HS256, CONFIG_JWT_RS256, CONFIG_JWT_ES256 };

/* What an answer of the upstream means for the operation. */
enum config_result {
    CONFIG_RESULT_SEAL,    /* it is the outcome */
    CONFIG_RESULT_RELEASE, /* nothing was done, or all of it was undone: the key is free */
    CONFIG_RESULT_UNKNOWN, /* it is not known whether anything was done */
};
struct config_rule {
    uint16_t status; /* 200 to 599; 2 to 5: the class 2xx to 5xx */
    uint16_t result; /* of enum config_result */
};
/* The numbers are those of enum on_unknown. */
enum config_on_unknown {
    CONFIG_UNKNOWN_HOLD,
    CONFIG_UNKNOWN_TAKEOVER,
    CONFIG_UNKNOWN_RECONCILE,
};

/* What the default window depends on (OPS-5). */
enum config_retention { CONFIG_RETENTION_API, CONFIG_RETENTION_WEBHOOK, CONFIG_RETENTION_BATCH };

struct config_jwt {
    enum config_jwt_alg alg;
    const char *key_file; /* a secret (HS256: the file's bytes without a final line end) or a PEM
                             public key */
    const char *issuer;   /* NULL: any */
    const char *audience; /* NULL: any */
};

struct config_reconcile {
    const char
        *get; /* path and query, with {key} or {operation_id} in it; NULL: there is no reconcile */
    uint16_t executed[CONFIG_STATUSES_MAX];
    size_t executed_count;
    uint16_t not_executed[CONFIG_STATUSES_MAX];
    size_t not_executed_count;
    const char *authorization_file; /* with the Authorization field's value; NULL: none is sent */
    int64_t every_ms;               /* first pause between two tries; 1 s */
    int64_t every_ms_max;           /* pauses double up to this; 5 m */
    int64_t quiet_ms; /* not_executed is accepted after it has been unknown this long; until then
                         the first attempt may still be running; total */
};

struct config_route {
    const char *match; /* as written, for logs and `once check`; "(default)" for the implicit one */
    unsigned line;     /* in the file; 0: not from a file */
    unsigned methods;  /* bits it matches; 0: every method, including reads */
    unsigned fenced;   /* bits that are fenced: match's, or the profile's if match names none */
    const char *path;  /* glob: '*' is any run within a segment, '**' any number of segments */
    const char *upstreams[CONFIG_UPSTREAMS_MAX];
    size_t upstream_count;
    const char *ca_file; /* of https upstreams; NULL: the system's */
    bool preserve_host;  /* the upstream gets the client's Host, not its own */

    enum config_profile profile;
    const char *tenant;   /* "default" */
    const char *key_text; /* as written, or as the profile says */
    enum config_key key;
    const char *key_name; /* of the field, or the JSON Pointer of the member */
    bool key_is_uuid;     /* anything else in Idempotency-Key is refused with 400 */
    enum config_retention retention;
    int64_t window_ms;
    int64_t lease_ms;           /* 60 s */
    int64_t wait_ms;            /* how long a duplicate waits for the first one's answer; 10 s */
    const char *principal_text; /* as written */
    enum config_principal principal;
    const char *principal_name; /* of the field, or of the claim */
    struct config_jwt jwt;      /* for a claim */

    const char *ignore[CONFIG_POINTERS_MAX]; /* JSON Pointers left out of the fingerprint */
    size_t ignore_count;
    const char *redact[CONFIG_POINTERS_MAX]; /* never stored, never shown */
    size_t redact_count;
    const char *replay_headers[CONFIG_FIELDS_MAX]; /* kept besides the usual ones; "*": all */
    size_t replay_header_count;

    const char *cors_origins[CONFIG_ORIGINS_MAX]; /* pages that may read the gateway's answers;
                                                     "*": all */
    size_t cors_origin_count;
    bool cors_credentials; /* … also if they send cookies */

    struct config_rule on_status[CONFIG_RULES_MAX]; /* every class has one; a status takes
                                                       precedence over its class */
    size_t on_status_count;
    enum config_on_unknown on_unknown;
    struct config_reconcile reconcile;
    unsigned conflict_status; /* 422, 409 or 400: the profile's, or the policy file's */
    bool conflict_diff;       /* a conflict's answer has the diff */
    bool streams;             /* every answer is streamed to its client, not only events */

    int64_t connect_ms;    /* 2 s */
    int64_t first_byte_ms; /* 30 s */
    int64_t total_ms;      /* 60 s */
    int64_t upgraded_ms;   /* 5 min: how long a WebSocket may be silent */

    uint64_t body_bytes_max;    /* of a fenced request; limits.body_bytes_max */
    uint64_t outcome_bytes_max; /* kept of an answer; limits.outcome_bytes_max */
    double duplicate_rate;      /* limits.duplicate_rate */
    double duplicate_burst;
};

/* What an answer with this status means for an operation of the route. */
enum config_result config_result(const struct config_route *route, unsigned status);

struct config_gateway {
    bool is_on; /* the section was given, or the command is once gateway */
    const char *listen[CONFIG_GATEWAY_LISTEN_MAX];
    size_t listen_count;
    const char *tls_cert; /* NULL: plain */
    const char *tls_key;
    const struct config_route *routes; /* in order; first match wins */
    size_t route_count;
    const struct config_route *otherwise; /* for requests that no route matches: passed through to
                                             its upstream, not fenced; NULL: 404, if there is no
                                             upstream */
    const char *require_headers[CONFIG_HEADERS_MAX]; /* a fenced request without one of them gets
                                                        400; the key is set by the routes' `key` */
    size_t require_header_count;
    const char *health;          /* a path that the gateway answers itself; NULL: none */
    const char *spool_dir;       /* for bodies too long for memory; NULL: the store's directory, or
                                    /tmp */
    uint64_t spool_memory_bytes; /* of one body held in memory; 256 KiB */
    uint64_t spool_bytes_max;    /* of all bodies and answers in flight; 1 GiB */
    uint64_t connections_max;    /* to one upstream, for each loop; 256 */
    int64_t idle_ms_max;         /* how long an upstream connection is kept; 4 s */
};

#endif

/*
 * effects: the sections `connectors:` and `effects:` (docs/effects.md) as plain data.
 *
 * Promises:  every value is set: by the file, else by the preset, else by the program. An effect
 *            that cannot be shielded was refused when it was read: a critical or irreversible
 *            effect has a connector with a key or a lookup, or approve: manual, and it has a
 *            compensation. Every template names only existing values. Secrets are not here, only
 *            the files and variables that hold them.
 * Ownership: in the config's memory, until config_free.
 */
#ifndef ONCE_CONFIG_EFFECTS_H
#define ONCE_CONFIG_EFFECTS_H

#include "canon/json.h"
#include "config/gateway.h"
#include "config/place.h"

enum {
    CONFIG_CONNECTORS_MAX = 256,
    CONFIG_EFFECTS_MAX = 1024,         /* types */
    CONFIG_EFFECT_HEADERS_MAX = 16,    /* fields that a type adds to its request */
    CONFIG_CONNECTOR_TENANTS_MAX = 64, /* that a connector may be limited to */
};

enum config_protocol {
    CONFIG_PROTOCOL_HTTP,     /* the provider's own API */
    CONFIG_PROTOCOL_ENVELOPE, /* a connector service that speaks CCOI */
    CONFIG_PROTOCOL_AMQP,     /* this and the rest: published to a broker */
    CONFIG_PROTOCOL_KAFKA,
    CONFIG_PROTOCOL_NATS,
    CONFIG_PROTOCOL_REDIS,
};

enum config_approve { CONFIG_APPROVE_NONE, CONFIG_APPROVE_MANUAL };

/* A secret is in a file or in a variable; both NULL: absent. */
struct config_secret {
    const char *file;
    const char *env;
};

/* How we authenticate; at most one of them. */
struct config_effect_auth {
    struct config_secret bearer;       /* "Authorization: Bearer …" */
    struct config_secret basic;        /* user:password, for "Authorization: Basic …" */
    const char *header;                /* the name of a field … */
    struct config_secret header_value; /* … and its value */
};

/* How the provider uses a key; header and body both NULL: it does not. */
struct config_idempotency {
    const char *header;     /* the field that carries it */
    const char *body;       /* or the JSON Pointer of the member; the object around it must exist */
    int64_t keeps_ms;       /* after this a resend is not safe and is not made */
    uint64_t key_bytes_max; /* a longer key is sent as its SHA-256 in base64url, 43 bytes */
};

/* How to ask the provider whether an effect happened; get NULL: it cannot be asked. */
struct config_lookup {
    const char *get;   /* template of a path and query */
    const char *found; /* JSON Pointer to what shows that it happened; NULL: the status does */
    uint16_t executed[CONFIG_STATUSES_MAX];
    size_t executed_count;
    uint16_t not_executed[CONFIG_STATUSES_MAX];
    size_t not_executed_count;
    int64_t quiet_ms;     /* "not executed" is accepted this long after the attempt */
    int64_t every_ms;     /* first pause between two questions … */
    int64_t every_ms_max; /* … which doubles up to this */
};

/* How effects reach one provider. */
struct config_connector {
    const char *name;
    struct config_place place;
    const char *preset; /* the preset's name; NULL: none */
    enum config_protocol protocol;
    const char *url;       /* as written; a broker's may have a password */
    const char *origin;    /* scheme, host and port of it, without user and password */
    const char *base_path; /* the rest, without a last slash: "" or "/api" */
    const char *ca_file;   /* NULL: the system's */
    bool allow_internal;   /* a host name may resolve to a private address */
    const char *tenants[CONFIG_CONNECTOR_TENANTS_MAX]; /* that may use it; empty: all */
    size_t tenant_count;
    struct config_effect_auth auth;
    struct config_idempotency idempotency;
    struct config_lookup lookup;
    double rate;          /* calls a second, of each tenant; 0: no limit */
    uint64_t concurrency; /* calls at a time */
    int64_t connect_ms;
    int64_t first_byte_ms;
    int64_t total_ms;
    uint64_t breaker_failures; /* in a row; 0: no breaker */
    int64_t breaker_pause_ms;
    enum config_approve
        approve; /* manual: the operator has agreed to settle uncertain effects by hand */
};

enum config_effect_body {
    CONFIG_EFFECT_BODY_PAYLOAD, /* JSON */
    CONFIG_EFFECT_BODY_FORM,    /* the payload's members, form-encoded */
    CONFIG_EFFECT_BODY_NONE,
};

struct config_effect_header {
    const char *name;
    const char *value; /* template */
};

/* One type of effect. */
struct config_effect {
    const char *name; /* "payment.capture" */
    struct config_place place;
    const char *connector_name;
    struct config_place connector_at;
    const struct config_connector *connector;
    const char *method; /* of the request */
    const char *path;   /* template; NULL: "/" (http), the base path (envelope) */
    enum config_effect_body body;
    struct config_effect_header headers[CONFIG_EFFECT_HEADERS_MAX];
    size_t header_count;
    const char *provider_ref; /* JSON Pointer into the answer, or "header:NAME"; NULL: none */
    uint64_t attempts;
    int64_t backoff_ms;     /* first; doubles with full jitter … */
    int64_t backoff_ms_max; /* … up to this */
    int64_t deadline_ms;    /* from when it was made; 0: none */
    bool required;          /* the command waits for it */
    bool irreversible;
    bool critical;
    enum config_approve approve;
    const char *compensate_name; /* the type of its compensation; NULL: none */
    struct config_place compensate_at;
    const struct config_effect *compensate;
    const struct json_value *compensate_payload; /* template; NULL: the original's payload */
    const struct json_value *compensate_target;  /* template; NULL: the original's target */
    const char *order; /* template: effects with the same value are sent one after another; NULL:
                          none */
    const char *redact[CONFIG_POINTERS_MAX]; /* JSON Pointers into the payload */
    size_t redact_count;
    int64_t window_ms; /* how long duplicates are recognised after it is settled */
};

struct config_effects {
    const struct config_connector *connectors;
    size_t connector_count;
    const struct config_effect *types;
    size_t type_count;
};

/* NULL: no type has that name. */
const struct config_effect *config_effect_find(
    const struct config_effects *effects, struct slice name);
/* Whether a tenant's effects may use it. */
bool config_connector_serves(const struct config_connector *connector, struct slice tenant);
/* Append the settings that differ between two of the same name, each after a space: " url rate".
 * Nothing if they are the same. */
struct buf;
void config_connector_changes(
    const struct config_connector *a, const struct config_connector *b, struct buf *out);
void config_effect_changes(
    const struct config_effect *a, const struct config_effect *b, struct buf *out);
/* Whether its effects are published to a broker. */
bool config_connector_publishes(const struct config_connector *connector);
/* Whether the provider can be asked, or keeps keys. */
bool config_connector_is_shielded(const struct config_connector *connector);

#endif

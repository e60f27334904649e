/*
 * inbox: the `inbox:` section (docs/inbox.md) as plain data.
 *
 * Promises:  every value is set: by the file, else by its default. Exactly one of handler and
 *            command is set, and the command is in the registry of the same file. A source whose
 *            preset signs has a secret; a source without signatures has one too if other machines
 *            can reach it.
 * Ownership: in the config's memory, until config_free.
 */
#ifndef ONCE_CONFIG_INBOX_H
#define ONCE_CONFIG_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "config/gateway.h"
#include "config/place.h"

struct json_value;

enum {
    CONFIG_SOURCES_MAX = 256,     /* keys of one map */
    CONFIG_QUEUES_MAX = 64,       /* each has a thread and its connections */
    CONFIG_SOURCE_SECRETS_MAX = 8 /* a rotation needs two */
};

/* In the order of the setting's choices, and of enum preset_kind. */
enum config_preset {
    CONFIG_PRESET_STRIPE,
    CONFIG_PRESET_GITHUB,
    CONFIG_PRESET_SHOPIFY,
    CONFIG_PRESET_SLACK,
    CONFIG_PRESET_META,
    CONFIG_PRESET_STANDARD_WEBHOOKS,
    CONFIG_PRESET_SVIX,
    CONFIG_PRESET_HMAC,
    CONFIG_PRESET_CLOUDEVENTS,
    CONFIG_PRESET_EFFECT,
    CONFIG_PRESET_NONE,
};

enum config_mode { CONFIG_MODE_AUTO, CONFIG_MODE_ASYNC, CONFIG_MODE_SYNC };
/* What happens to a delivery whose outcome is unknown. */
enum config_delivery_unknown {
    CONFIG_DELIVERY_HOLD,
    CONFIG_DELIVERY_REDELIVER,
    CONFIG_DELIVERY_RECONCILE,
};
/* How a message of a queue becomes an event. */
enum config_message_format { CONFIG_FORMAT_CLOUDEVENTS, CONFIG_FORMAT_RAW };
enum config_encoding { CONFIG_ENCODING_HEX, CONFIG_ENCODING_BASE64 };

/* Where a secret is: exactly one member is set. */
struct config_source_secret {
    const char *file;
    const char *env;
    const char *text; /* only for verify_token, which the sender puts in a URL anyway */
    unsigned line;
    unsigned column;
};

/* A source of webhooks, or a queue: the members of both have the same meaning. */
struct config_source {
    const char *name;  /* of letters, digits, "-", "_" and ".": it is part of the path */
    unsigned line;     /* in the file */
    unsigned preset;   /* enum config_preset; of a queue, from its format */
    const char *from;  /* of a queue: the broker's URL, a secret; NULL: it is a source */
    unsigned format;   /* of a queue: enum config_message_format */
    uint64_t prefetch; /* of a queue: messages that may be taken and not acknowledged */
    struct config_source_secret secrets[CONFIG_SOURCE_SECRETS_MAX];
    size_t secret_count;
    struct config_source_secret verify_token; /* zeroed: absent */
    const char *signature_header;             /* of hmac */
    const char *signature_prefix;             /* NULL: none */
    unsigned signature_encoding;              /* enum config_encoding */
    const char *key_header;                   /* NULL: as the preset says */
    const char *key_json;                     /* a JSON Pointer; NULL: as the preset says */
    const char *order_source_id;              /* JSON Pointers; both or neither */
    const char *order_version;
    const char *tenant;
    const char *handler; /* URL with a path; NULL: events become commands */
    const char *command; /* the command that each event submits; NULL: a handler is called */
    struct config_place command_at;
    const struct json_value *envelope; /* of that command: an object, a template; NULL: none */
    const char *ca_file;               /* of an https handler; NULL: the system's */
    unsigned mode;                     /* enum config_mode; after reading never AUTO */
    int64_t window_ms;                 /* 0: as the preset says */
    uint64_t attempts_max;
    int64_t backoff_ms;
    int64_t backoff_ms_max;
    int64_t deadline_ms; /* 0: none */
    unsigned on_unknown; /* enum config_delivery_unknown */
    const char *reconcile_get;
    uint16_t executed[CONFIG_STATUSES_MAX];
    size_t executed_count;
    uint16_t not_executed[CONFIG_STATUSES_MAX];
    size_t not_executed_count;
    int64_t quiet_ms;
    int64_t connect_ms;
    int64_t first_byte_ms;
    int64_t total_ms;
    uint64_t concurrency;
    double rate; /* 0: no limit */
    uint64_t breaker_failures;
    int64_t breaker_pause_ms;
};

struct config_inbox {
    const struct config_source *sources;
    size_t source_count;
    const struct config_source *queues; /* their names differ from those of the sources */
    size_t queue_count;
};

/* The source of that name, which is not a queue; NULL: absent. */
const struct config_source *config_source_find(const struct config_inbox *inbox, struct slice name);

#endif

/*
 * config: the settings of a server, from a YAML file, ONCE_* variables and flags (docs/config.md).
 *
 * One table (config_options) describes every setting: its name, form, default, limits, variable,
 * flag and words. Reading, checking and the example file all come from it.
 *
 * Promises:  a setting that is not in the table is an error with its place and the nearest name,
 *            never ignored. Every error in a file is reported, up to CONFIG_FAULTS_MAX. A config
 *            that was refused must not be used. Only the SHA-256 of a token is read: a file holds
 *            no secret.
 * Does not:  open files, sockets or stores; know what the settings mean.
 * Ownership: everything a config and its faults point at lives in the config until config_free.
 * Memory:    libyaml allocates with the C library; everything that stays is in our memory.
 */
#ifndef ONCE_CONFIG_CONFIG_H
#define ONCE_CONFIG_CONFIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "canon/digest.h"
#include "config/command.h"
#include "config/effects.h"
#include "config/gateway.h"
#include "config/inbox.h"
#include "config/mcp.h"
#include "config/place.h"

enum {
    CONFIG_BYTES_MAX = 1 << 20, /* of a file: thousands of tokens */
    CONFIG_DEPTH_MAX = 16,      /* of nesting; ours is 7 levels deep */
    CONFIG_FAULTS_MAX = 50,     /* reported for one file; any more are counted */
    CONFIG_LISTEN_MAX = 16,     /* addresses */
    CONFIG_TOKENS_MAX = 1000,   /* each request is compared with all of them */
    CONFIG_CHOICES_MAX = 12,    /* values of a choice, and the end of the list */
    CONFIG_KEY_FILES_MAX = 16,  /* for kept bodies; a rotation needs two */
};

/* What a value must look like. */
enum config_kind {
    CONFIG_TEXT,
    CONFIG_DURATION, /* "30s" */
    CONFIG_SIZE,     /* "10MiB" */
    CONFIG_COUNT,    /* a whole number */
    CONFIG_REAL,     /* a decimal number */
    CONFIG_BOOL,     /* true or false */
    CONFIG_CHOICE,   /* one of choices */
    CONFIG_LIST,     /* a text, or a list of them */
    CONFIG_STATUSES, /* an HTTP status, or a list of them */
    CONFIG_RULES,    /* a map from an HTTP status or class to one of choices */
    CONFIG_OWN,      /* read by its own function: tokens, routes */
};

/* What a text must be. */
enum config_form {
    CONFIG_FORM_ANY,
    CONFIG_FORM_ADDRESS,   /* to listen on */
    CONFIG_FORM_URL,       /* of an upstream: scheme, host and port */
    CONFIG_FORM_MATCH,     /* "POST,PUT /v1/payments/" and two stars */
    CONFIG_FORM_TENANT,    /* a name */
    CONFIG_FORM_PRINCIPAL, /* auto, authorization, header:NAME, jwt:CLAIM, none */
    CONFIG_FORM_KEY,       /* required, generated, optional, header:NAME, json:POINTER */
    CONFIG_FORM_POINTER,   /* RFC 6901 */
    CONFIG_FORM_FIELD,     /* the name of a field whose value may be kept, or "*" */
    CONFIG_FORM_ORIGIN,    /* of a page: scheme, host and port, or "*" */
    CONFIG_FORM_PATH,      /* of letters, digits, "-._~" and slashes */
    CONFIG_FORM_TEMPLATE,  /* a path with {key} or {operation_id} in it */
    CONFIG_FORM_LINE,      /* one line without control characters */
    CONFIG_FORM_METHOD,    /* of a request */
    CONFIG_FORM_TARGET,    /* path and query of a request */
    CONFIG_FORM_HANDLER,   /* URL with a path */
    CONFIG_FORM_SHIELD,    /* S1 to S4 */
    CONFIG_FORM_PROMPT,    /* one line with {target.order_id} and the like in it */
    CONFIG_FORM_NORMALISE, /* trim, lower, upper, e164 */
    CONFIG_FORM_DECIMAL,   /* "-12", "0.5" */
};

/* Where in the file a setting of the gateway may be; none: it is a setting of the server.
 * CONFIG_IN_ENTRY: a setting of something that has a name in a map: a command, a connector, a type
 * of effect. */
enum config_in {
    CONFIG_IN_SECTION = 1,
    CONFIG_IN_ROUTE = 2,
    CONFIG_IN_ENTRY = 4,
    CONFIG_IN_QUEUE = 8, /* of the inbox's queues; most are settings of its sources too */
};

/* What a token allows. */
enum config_right {
    CONFIG_RIGHT_EXECUTE = 1, /* fences, and reading operations */
    CONFIG_RIGHT_CONFIRM = 2, /* confirmations of commands */
    CONFIG_RIGHT_OPERATE = 4, /* reading operations, settling them */
    CONFIG_RIGHT_AUDIT = 8,   /* reading operations and evidence */
};

struct config_token {
    struct digest sha256; /* of the token's text; the token itself is never kept */
    struct slice tenant; /* its tenant; "*" may only read /metrics, and sees all tenants' figures */
    unsigned rights;     /* of enum config_right */
    struct slice name;   /* for evidence and logs; may be empty */
};

enum config_level { CONFIG_LEVEL_DEBUG, CONFIG_LEVEL_INFO, CONFIG_LEVEL_WARN, CONFIG_LEVEL_ERROR };
enum config_replays { CONFIG_REPLAYS_DURABLE, CONFIG_REPLAYS_SOON };
enum config_format { CONFIG_FORMAT_AUTO, CONFIG_FORMAT_JSON, CONFIG_FORMAT_HUMAN };

/* A line of a policy file, and what it means here. */
struct config_policy_line {
    unsigned line;
    const char *setting; /* "ttl.api_hours" */
    const char *value;   /* as written */
    const char *meaning; /* lower case, no full stop */
    bool is_note;        /* it does not mean exactly what the file says */
};

/* A policy file, line by line. */
struct config_policy {
    const struct config_policy_line *lines;
    size_t count;
};

/* One error or warning. */
struct config_fault {
    unsigned line;       /* from 1; 0: no line */
    unsigned column;     /* from 1, in characters */
    const char *text;    /* lower case, no full stop, the fault first */
    const char *hint;    /* what to do about it; NULL: nothing */
    struct slice source; /* the line, without its end */
    const char *file;    /* its name; NULL: the configuration itself */
    bool is_secret;      /* the line may contain a secret: it is never shown */
    bool is_warning;     /* a warning: the setting is used nevertheless */
};

struct config_faults {
    struct config_fault items[CONFIG_FAULTS_MAX];
    size_t count; /* of items */
    size_t more;  /* not kept */
};

/* The settings. Texts are terminated; NULL: not set. Times in milliseconds. */
struct config {
    struct arena arena;  /* where everything else lives */
    atomic_uint holders; /* each must release it */
    struct slice source; /* the file's text, owned by the caller */

    const char *listen[CONFIG_LISTEN_MAX];
    struct config_place listen_at[CONFIG_LISTEN_MAX];
    size_t listen_count;
    const char *store;
    struct config_place store_at;
    const char *tls_cert;
    const char *tls_key;
    const struct config_token *tokens;
    size_t token_count;
    bool has_auth; /* auth was configured, with any number of tokens */
    const char *key_files[CONFIG_KEY_FILES_MAX]; /* for kept bodies */
    size_t key_file_count;

    uint64_t body_bytes_max;
    uint64_t outcome_bytes_max;
    uint64_t in_flight_bytes_max;
    uint64_t connections_max;
    uint64_t keys_max;
    double duplicate_rate;
    double duplicate_burst;
    int64_t head_timeout_ms;
    int64_t body_timeout_ms;
    int64_t idle_timeout_ms;
    int64_t write_timeout_ms;

    int64_t retain_ms;
    int64_t checkpoint_every_ms;
    enum config_replays replays; /* when a replay is answered: after its entry's flush, or before */
    enum config_level log_level;
    enum config_format log_format;
    bool log_decisions;
    int64_t drain_ms;
    uint64_t loops; /* 0: one for each core, of which as few serve as carry the load */

    struct config_effects effects;         /* and connectors; whole after config_check */
    struct config_gateway gateway;         /* whole after config_check */
    const struct config_command *commands; /* the registry, in the order of the file */
    size_t command_count;
    struct config_inbox inbox;
    struct config_mcp mcp;
    struct config_policy policy;   /* what config_policy_read found; no lines: no policy file */
    struct gateway_raw *raw;       /* the gateway's settings as given, and where; internal */
    struct config_faults warnings; /* settings that were read but should be written differently */
};

struct config_reader; /* of a file; internal */
struct yaml_node;     /* an element of the file; internal */

/* One setting: a row of a table that ends with a zeroed row. A new setting is a row here and a
 * member of the table's structure; reading, defaults, inheritance by routes, printing and the
 * example file follow from the row. */
struct config_option {
    const char *path; /* as in the file, with dots between sections and name */
    enum config_kind kind;
    unsigned in;           /* bits of enum config_in */
    enum config_form form; /* of a text or a list */
    size_t offset;         /* of its member: in struct config; in struct config_route if a route may
                              have it; else in struct config_gateway */
    size_t count;          /* of a list: the offset of its item count */
    size_t places;         /* of a text or a list: the offset of its place, or of an array with its
                              items' places; 0: not kept */
    /* Of CONFIG_OWN: read the value of a key into the member. */
    enum status (*read)(struct config_reader *reader, const struct yaml_node *key, void *member);
    bool is_required;                        /* in every map of its table */
    const char *fallback;                    /* its default as text; NULL: not set */
    const char *absent;                      /* what holds if it is absent; NULL: "not set by
                                                default" */
    uint64_t min;                            /* of a duration (ms), size, count or number */
    uint64_t max;                            /* the same; of a list, items; 0: no limit */
    const char *choices[CONFIG_CHOICES_MAX]; /* of a choice, in the order of its enum, which is the
                                                member's type */
    const char *env;                         /* the variable; NULL: none */
    const char *flag;                        /* without dashes: of once serve, or of once gateway
                                                for a gateway's setting; NULL: none */
    const char *example;                     /* shown in the example if there is no default */
    const char *help;                        /* what it is and what it costs: whole sentences;
                                                NULL: it is a section, and has no line in the
                                                example */
    const char *unsure;                      /* what to do if unsure: a whole sentence */
    bool at_start;                           /* changing it needs a restart */
};

extern const struct config_option config_options[];
/* The gateway's settings; one that a route does not set has the section's value. The table ends
 * in the same way. */
extern const struct config_option config_gateway_options[];
/* The settings of a connector and of a type of effect. */
extern const struct config_option config_connector_options[];
extern const struct config_option config_effect_options[];
/* The settings of a command, and of one of its arguments. */
extern const struct config_option config_command_options[];
extern const struct config_option config_arg_options[];
extern const struct config_option config_declared_options[];
/* The settings of a source of the inbox. */
extern const struct config_option config_source_options[];
/* The settings of a tool of once mcp. */
extern const struct config_option config_mcp_tool_options[];
/* In both tables; NULL: no setting has that path. */
const struct config_option *config_option_find(const char *path);

/* Every setting at its default. E_NOMEM. */
enum status config_new(
    const struct mem *mem, struct config **ret_config, struct err *err) MUST_CHECK;
/* Hold it once more; release it with config_free. Returns its argument. Any thread. */
struct config *config_hold(struct config *config);
/* The last holder frees it. Any thread. NULL is fine. */
void config_free(struct config *config);

/* Apply a YAML file to the settings. E_INVALID: at least one fault was added. E_NOMEM. The faults
 * are in the config's memory and in the order of the file. */
enum status config_read(
    struct config *config, struct slice text, struct config_faults *faults) MUST_CHECK;
/* The text of a file, "-" for standard input, in the config's memory; one byte more than allowed,
 * so that config_read reports it. `what` names it in the fault: "configuration". E_INVALID: it
 * cannot be read, and a fault says why. E_NOMEM. */
enum status config_file_text(struct config *config, const char *what, const char *path,
    struct slice *ret_text, struct config_faults *faults) MUST_CHECK;
/* Apply one value from a variable or a flag; `from` names it in faults: "ONCE_DRAIN", "--drain". A
 * list (listen, gateway.upstream) is replaced unless is_more. Setting where the gateway listens, or
 * its upstream, turns it on. Statuses as for config_read. */
enum status config_set(struct config *config, const struct config_option *option, const char *value,
    const char *from, bool is_more, struct config_faults *faults) MUST_CHECK;
/* Check that the settings are consistent. Call it after everything was set, while the file's text
 * still exists. Makes the gateway's routes when the gateway is on. Statuses as for config_read. */
enum status config_check(struct config *config, struct config_faults *faults) MUST_CHECK;

/* Apply a policy file (docs/gateway-policy.md): it applies to every route that does not set the
 * same thing itself. Call it after flags and variables, before config_check. Its lines and their
 * meanings go to config->policy. Statuses and faults as for config_read; their places are in
 * text. */
enum status config_policy_read(
    struct config *config, struct slice text, struct config_faults *faults) MUST_CHECK;
/* Whether a text is a policy file and not a configuration, by its keys. False also if it is not
 * YAML, or memory is short. */
bool config_is_policy(const struct mem *mem, struct slice text);

/* What an address reaches. */
enum config_address {
    CONFIG_ADDRESS_WRONG,
    CONFIG_ADDRESS_LOOPBACK,
    CONFIG_ADDRESS_PUBLIC, /* other machines may reach it */
    CONFIG_ADDRESS_UNIX,
};
/* "127.0.0.1:7411", "[::1]:7411", "unix:/run/once/once.sock". Names are not resolved. */
enum config_address config_address(const char *text);

/* Whether other machines can reach one of the addresses. */
bool config_is_public(const struct config *config);

/* The rights of "execute,audit"; 0 if any of them is invalid. */
unsigned config_rights(struct slice text);
/* The bit of one right by its name; 0: no such right. */
unsigned config_right(struct slice name);

/* The first setting that differs and cannot change while the server runs; NULL: none. */
const char *config_needs_restart(const struct config *old, const struct config *new);

/* Add a fault. A place with line 0 is absent. For the files of this module. */
void config_fault_add(struct config *config, struct config_faults *faults,
    const struct config_fault *fault, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, about the value of a setting that was read from that place. */
void config_fault_at(struct config *config, struct config_faults *faults,
    const struct config_place *place, const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* "file:3:1: text", the line and a caret, and the hint. name is the configuration's; NULL:
 * absent. */
void config_fault_put(struct buf *out, const char *name, const struct config_fault *fault);
struct jsonw;
/* Write settings as members of a JSON object, from the rows of their tables: the server's by their
 * paths, the whole gateway's, and those of one route with its maps. */
void config_put_server(struct jsonw *json, const struct config *config);
void config_put_gateway(struct jsonw *json, const struct config_gateway *gateway);
/* Write the name and the settings of one; where its secrets are, never the secrets. */
void config_put_connector(struct jsonw *json, const struct config_connector *connector);
void config_put_effect(struct jsonw *json, const struct config_effect *effect);
/* Also a queue, without its password. */
void config_put_source(struct jsonw *json, const struct config_source *source);
void config_put_mcp_tool(struct jsonw *json, const struct config_mcp_tool *tool);
void config_put_route(struct jsonw *json, const struct config_route *route);
/* The name of a value of the choice at this path. */
const char *config_choice(const char *path, unsigned value);
/* The same for a row of config_command_options or a similar table. */
const char *config_choice_of(const struct config_option *options, const char *path, unsigned value);

/* A file with every setting at its default, commented out, and its help text: the manual. */
void config_example_put(struct buf *out);

#endif

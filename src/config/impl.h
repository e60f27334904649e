/*
 * impl: shared by the files of config: the tree of a YAML file, and checking a value against its
 * option.
 */
#ifndef ONCE_CONFIG_IMPL_H
#define ONCE_CONFIG_IMPL_H

#include "config/config.h"

enum { YAML_KEYS_MAX = 256 }; /* of one map: each is compared with those before it */

enum yaml_kind {
    YAML_SCALAR,
    YAML_LIST,
    YAML_MAP,
    YAML_BAD, /* an alias: already reported as a fault, to be skipped */
};

/* An element of the file. The children of a map are its keys, each with a value. */
struct yaml_node {
    enum yaml_kind kind;
    bool is_plain;           /* a scalar without quotes */
    unsigned line;           /* from 1 */
    unsigned column;         /* from 1, in characters */
    struct slice text;       /* of a scalar; terminated */
    struct yaml_node *first; /* child */
    struct yaml_node *last;  /* child */
    struct yaml_node *next;  /* sibling */
    struct yaml_node *value; /* of a key; NULL until it is read */
    unsigned count;          /* of children */
};

/* A file being read. */
struct config_reader {
    struct config *config; /* its arena holds everything */
    struct config_faults *faults;
    struct slice text;
    size_t first;  /* the first fault of this file */
    size_t before; /* faults before it, including those not kept */
};

/* *ret_root is NULL for an empty file. E_INVALID: not the YAML we accept; faults say why. E_NOMEM.
 * There may be faults with OK too. */
enum status yaml_load(struct config_reader *reader, struct yaml_node **ret_root) MUST_CHECK;

/* The nth line of a text, from 1, without its end. */
struct slice source_line(struct slice text, unsigned line);
/* Add a fault at a place of the file. */
void reader_fault(struct config_reader *reader, const struct yaml_node *place, const char *hint,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same for a value that is used nevertheless: a warning. */
void reader_warn(struct config_reader *reader, const struct yaml_node *place, const char *hint,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Where a setting of a map was given; the map itself if it was not. */
const struct yaml_node *yaml_place_of(const struct yaml_node *map, const char *name);
/* "null", "~" or empty. */
bool yaml_is_null(const struct yaml_node *node);

/* A row of a table of options: its path, its kind (DURATION for CONFIG_DURATION), then other
 * members. */
#define ROW(path_, kind_, ...)                                                                     \
    {                                                                                              \
        .path = path_, .kind = CONFIG_##kind_, __VA_ARGS__                                         \
    }

enum { VALUE_FAULT_BYTES_MAX = 320 };
/* What is wrong with a value, and what to do about it. */
struct value_fault {
    char text[VALUE_FAULT_BYTES_MAX];
    char hint[VALUE_FAULT_BYTES_MAX];
};

/* Where to store a value. */
struct value_target {
    struct config *config;     /* the value is stored in its memory */
    void *object;              /* the option's offset is relative to this */
    struct config_place place; /* of an item of a list */
};
/* The address of a row's member. */
void *value_member(void *object, const struct config_option *option);
/* Copy a setting from one object to another. */
void value_copy(void *to, const void *from, const struct config_option *option);
bool value_equal(const void *a, const void *b, const struct config_option *option);
/* The number of items of a list. */
size_t *value_count(void *object, const struct config_option *option);
/* Add a rule: a status or class ("500", "5xx") and a choice. E_INVALID: fault says why. */
enum status value_add_rule(const struct value_target *target, const struct config_option *option,
    struct slice name, struct slice value, struct value_fault *fault) MUST_CHECK;
/* Set a scalar option, or add to a list. E_INVALID: fault says why. E_NOMEM. */
enum status value_set(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault) MUST_CHECK;
/* Say what is wrong. Returns E_INVALID. */
enum status value_refuse(struct value_fault *fault, const char *hint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a map of the file may contain: rows of a table whose paths begin with the prefix. */
struct map_scope {
    const struct config_option *options; /* the table */
    const char *prefix;                  /* "", "limits.", "gateway.timeout." */
    unsigned in;                         /* bits of enum config_in: rows of these; 0: every row */
    void *object;                        /* the object of the offsets, except for … */
    void *route;                         /* … rows that a route may have; NULL: there are none */
    struct setting_source *sources;      /* one for each row: where it was given; NULL: not kept */
    /* Explain a key that is in no row. False: it has no explanation. NULL: it never has. */
    bool (*explain)(struct config_reader *reader, const struct yaml_node *key);
};
/* Read a map; every error is a fault at its place. E_NOMEM. */
enum status map_read(struct config_reader *reader, const struct map_scope *scope,
    const struct yaml_node *map) MUST_CHECK;
/* The same for a key's value; if that is not a map, it is a fault. */
enum status map_read_value(struct config_reader *reader, const struct map_scope *scope,
    const struct yaml_node *key) MUST_CHECK;

/* Set every row that has a default. E_NOMEM. */
enum status value_defaults(const struct map_scope *scope, struct config *config) MUST_CHECK;
/* Add a fault for each required row that is absent from a map; `what` names the map. */
void map_require(struct config_reader *reader, const struct config_option *options,
    const char *what, const struct yaml_node *map);

/* A list of maps: tokens, routes, cases. */
struct list_shape {
    const char *name;    /* of the list: "auth.tokens" */
    const char *one;     /* of an item, for faults: "token" */
    const char *hint;    /* for a missing or empty list; NULL: none */
    const char *example; /* of an item; NULL: none */
    size_t item_bytes;
    size_t count_max;
    /* Read the item with this index; all items before it have been read. E_NOMEM. */
    enum status (*read)(
        struct config_reader *reader, const struct yaml_node *map, void *items, size_t index);
};
/* *ret_items has the items; it is unchanged if the value is not such a list. E_NOMEM. */
enum status list_read(struct config_reader *reader, const struct list_shape *shape,
    const struct yaml_node *node, void **ret_items, size_t *ret_count) MUST_CHECK;

/* Load a text into a tree; anything that a file may not contain is a fault. Statuses as for
 * yaml_load. */
enum status reader_begin(struct config_reader *reader, struct yaml_node **ret_root) MUST_CHECK;
/* Sort the faults into the order of the file. E_INVALID: status was OK, and there are faults. */
enum status reader_end(struct config_reader *reader, enum status status) MUST_CHECK;
/* Add a fault for a key that is not one of the names. */
void reader_unknown(struct config_reader *reader, const struct yaml_node *key,
    const char *const *names, size_t count);
/* Sort the faults, from the one numbered first, into the order of the file. */
void faults_sort(struct config_faults *faults, size_t first);

/* A terminated copy; NULL: out of memory. */
const char *config_text(struct config *config, struct slice text) MUST_CHECK;

/* ---- the gateway ------------------------------------------------------------------------- */

/* Where a setting was given. */
struct setting_source {
    struct config_place place;
    bool is_set;  /* given, not just a default */
    bool is_flag; /* by a flag or a variable, which overrides every file */
};

enum { GATEWAY_OPTIONS_MAX = 64 }; /* rows of the gateway's table */
enum { CONFIG_RULES_DEFAULT = 8 }; /* rules that a profile adds to on_status */

/* A route as given. A setting without a source has the section's value. */
struct route_raw {
    struct config_route route;
    struct config_place place; /* of its beginning */
    struct setting_source sources[GATEWAY_OPTIONS_MAX];
};

/* What a policy file says. */
struct policy_raw {
    bool is_here;
    int64_t window_ms[3];     /* by enum config_retention; 0: absent */
    unsigned line[3];         /* of these, in the policy file */
    bool needs_key;           /* require_headers has Idempotency-Key */
    unsigned conflict_status; /* 0: absent */
    bool has_diff;            /* include_diff was given */
    bool diff;
    bool needs_log; /* logging.include_fields has at least one field */
};

struct gateway_raw {
    struct route_raw section; /* the settings of the section, flags and defaults, for every route;
                                 its sources are also those of the whole section's settings */
    struct route_raw *routes; /* in the order of the file */
    size_t route_count;
    struct policy_raw policy;
};

/* Every setting at its default. E_NOMEM. */
enum status config_gateway_new(struct config *config) MUST_CHECK;
/* Apply the section to the settings; the reader of its row. E_NOMEM. */
enum status gateway_read(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
/* Read `routes`. E_NOMEM. */
enum status gateway_read_routes(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
/* Read `on_5xx`, which `on_status` replaces, as one rule, with a warning. E_NOMEM. */
enum status gateway_read_on_5xx(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
/* Read `auth.tokens`. E_NOMEM. */
enum status tokens_read(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
/* Read `connectors` and `effects`, and the values of a type that have their own readers.
 * E_NOMEM. */
enum status connectors_read(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
enum status effects_read(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
enum status effect_read_headers(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
enum status effect_read_json(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
/* Read a value as JSON whose strings are templates with these names (canon/template.h);
 * *ret_tree is unchanged if it is not. E_NOMEM. */
enum status template_read(struct config_reader *reader, const struct yaml_node *key,
    const char *const *names, const struct json_value **ret_tree) MUST_CHECK;
/* Check that they are consistent; link each type to its connector and its compensation. */
void effects_check(struct config *config, struct config_faults *faults);
/* Check that the commands are consistent with the rest of the file. */
void commands_check(struct config *config, struct config_faults *faults);
/* Read `commands`, and `args`, `effects` and the templates of one of them. E_NOMEM. */
enum status commands_read(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
enum status command_read_args(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
enum status command_read_effects(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
enum status command_read_template(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
/* Read `inbox.sources`, and `secrets` and `verify_token` of one of them. E_NOMEM. */
enum status inbox_read_sources(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
/* Read `inbox.queues`. E_NOMEM. */
enum status inbox_read_queues(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
enum status source_read_secrets(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
enum status source_read_token(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
enum status source_read_envelope(
    struct config_reader *reader, const struct yaml_node *key, void *member) MUST_CHECK;
/* Read `mcp.tools`. E_NOMEM. */
enum status mcp_read_tools(
    struct config_reader *reader, const struct yaml_node *key, void *object) MUST_CHECK;
/* Add a fault for each source that anybody could send to, and for each command that does not exist
 * or that no event can submit. */
void inbox_check(struct config *config, struct config_faults *faults);
/* The gateway's table; its objects are the config's. */
struct map_scope gateway_scope(struct config *config);
/* A flag or a variable is about to set an option: it wins, and a list starts empty unless
 * is_more. */
void gateway_will_set(struct config *config, const struct config_option *option, bool is_more);
/* Make the routes from all settings. E_NOMEM; there may be faults with OK. */
enum status gateway_routes_make(struct config *config, struct config_faults *faults) MUST_CHECK;

/* Whether it is a top-level name of policy files. */
bool policy_has(struct slice name);

/* Whether a text has its required form. E_INVALID: fault says why. */
enum status value_form_check(
    const struct config_option *option, struct slice value, struct value_fault *fault) MUST_CHECK;
/* Expand ":7411" and "localhost:7411" in the buffer: they mean the loopback address, because other
 * machines can be reached only by an explicit address. Any other text is returned unchanged. */
enum { VALUE_ADDRESS_BYTES = sizeof "127.0.0.1:65535" };
struct slice value_form_address(struct slice text, char buffer[VALUE_ADDRESS_BYTES]);
/* The methods (0: no method is named) and the path of a match. E_INVALID. */
enum status value_form_match(const char *name, struct slice text, unsigned *ret_methods,
    struct slice *ret_path, struct value_fault *fault) MUST_CHECK;
/* "header:X-Tenant" and the like; the name is empty where the form has none. False: invalid. */
bool value_form_principal(
    struct slice text, enum config_principal *ret_principal, struct slice *ret_name);
/* "header:X-GitHub-Delivery" and the like; the name is empty where the form has none. False:
 * invalid. */
bool value_form_key(struct slice text, enum config_key *ret_key, struct slice *ret_name);
/* RFC 9110 section 5.6.2. */
bool value_form_is_token(struct slice text);
/* Whether it has no control characters, so that a message on a terminal may contain it. */
bool value_form_is_line(struct slice text);

#endif

/*
 * impl: what the parts of config share: the tree of a YAML file, and one value against its option.
 */
#ifndef ONCE_CONFIG_IMPL_H
#define ONCE_CONFIG_IMPL_H

#include "config/config.h"

enum { YAML_KEYS_MAX = 256 }; /* of one map: each is compared with those before it */

enum yaml_kind {
    YAML_SCALAR,
    YAML_LIST,
    YAML_MAP,
    YAML_BAD, /* an alias: told as a fault already, to be passed over */
};

/* A thing in the file. The children of a map are its keys, each with a value. */
struct yaml_node {
    enum yaml_kind kind;
    bool is_plain;           /* a scalar without quotes */
    unsigned line;           /* from 1 */
    unsigned column;         /* from 1, in characters */
    struct slice text;       /* of a scalar; terminated */
    struct yaml_node *first; /* child */
    struct yaml_node *last;  /* child */
    struct yaml_node *next;  /* sibling */
    struct yaml_node *value; /* of a key; NULL while it is not read */
    unsigned count;          /* of children */
};

/* A file being read. */
struct reader {
    struct config *config; /* whose arena holds it all */
    struct config_faults *faults;
    struct slice text;
};

/* *ret_root is NULL for an empty file. E_INVALID: not YAML as we take it; faults say why. E_NOMEM.
 * With OK there may be faults too. */
enum status yaml_load(struct reader *reader, struct yaml_node **ret_root) MUST_CHECK;

/* The nth line of a text, from 1, without its end. */
struct slice source_line(struct slice text, unsigned line);
/* Add a fault at a place of the file. */
void reader_fault(struct reader *reader, const struct yaml_node *place, const char *hint,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* "null", "~" or nothing at all. */
bool yaml_is_null(const struct yaml_node *node);

enum { VALUE_FAULT_BYTES_MAX = 320 };
/* What is wrong with a value, and what to do about it. */
struct value_fault {
    char text[VALUE_FAULT_BYTES_MAX];
    char hint[VALUE_FAULT_BYTES_MAX];
};

/* Where a value goes. */
struct value_target {
    struct config *config;     /* whose memory it is in */
    void *object;              /* what the option's offset is in */
    struct config_place place; /* of an item of a list */
};
/* Set a scalar option, or add to a list. E_INVALID: fault says why. E_NOMEM. */
enum status value_set(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault) MUST_CHECK;
/* Say what is wrong. Returns E_INVALID. */
enum status value_refuse(struct value_fault *fault, const char *hint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A value of the reader's object, told as a fault when it is none. E_NOMEM. */
enum status reader_value(struct reader *reader, void *object, const struct config_option *option,
    const struct yaml_node *node) MUST_CHECK;
/* A key that is none of the names. */
void reader_unknown(
    struct reader *reader, const struct yaml_node *key, const char *const *names, size_t count);
/* Faults from the one numbered first into the order of the file. */
void faults_sort(struct config_faults *faults, size_t first);

/* A terminated copy; NULL: no memory. */
const char *config_text(struct config *config, struct slice text) MUST_CHECK;

/* ---- the gateway ------------------------------------------------------------------------- */

/* Texts, each with its place. */
struct config_item {
    const char *text;
    struct config_place place;
};
struct config_list {
    const struct config_item *items;
    size_t count;
};
/* Add a text to a list that others may still see as it was. E_NOMEM. */
enum status list_add(struct config *config, struct config_list *list, const char *text,
    const struct config_place *place) MUST_CHECK;

/* The settings of the gateway, in the order of their table. */
enum setting {
    SETTING_LISTEN,
    SETTING_UPSTREAM,
    SETTING_PROFILE,
    SETTING_TLS_CERT,
    SETTING_TLS_KEY,
    SETTING_MATCH,
    SETTING_TENANT,
    SETTING_KEY,
    SETTING_KIND,
    SETTING_WINDOW,
    SETTING_LEASE,
    SETTING_WAIT,
    SETTING_PRINCIPAL,
    SETTING_JWT_ALG,
    SETTING_JWT_KEY_FILE,
    SETTING_JWT_ISSUER,
    SETTING_JWT_AUDIENCE,
    SETTING_IGNORE,
    SETTING_REDACT,
    SETTING_REPLAY_HEADERS,
    SETTING_ON_5XX,
    SETTING_ON_UNKNOWN,
    SETTING_RECONCILE_GET,
    SETTING_RECONCILE_EXECUTED,
    SETTING_RECONCILE_NOT_EXECUTED,
    SETTING_RECONCILE_AUTHORIZATION_FILE,
    SETTING_RECONCILE_EVERY,
    SETTING_RECONCILE_EVERY_MAX,
    SETTING_RECONCILE_QUIET,
    SETTING_TIMEOUT_CONNECT,
    SETTING_TIMEOUT_FIRST_BYTE,
    SETTING_TIMEOUT_TOTAL,
    SETTING_LIMITS_BODY_BYTES_MAX,
    SETTING_LIMITS_OUTCOME_BYTES_MAX,
    SETTING_LIMITS_DUPLICATE_RATE,
    SETTING_LIMITS_DUPLICATE_BURST,
    SETTING_CA_FILE,
    SETTING_SPOOL_DIR,
    SETTING_SPOOL_MEMORY,
    SETTING_SPOOL_MAX,
    SETTING_CONNECTIONS_MAX,
    SETTING_IDLE,
    SETTINGS,
};

/* Whether something was said of a setting, and where. */
struct said {
    struct config_place place;
    bool is_set;  /* more than a default */
    bool is_flag; /* by a flag or a variable, which wins over every file */
};

/* What one route says, or the section for all of them. */
struct route_said {
    struct said at[SETTINGS];
    struct config_place place; /* of a route: its beginning */
    struct config_list upstream;
    uint64_t profile; /* enum config_profile */
    const char *match;
    const char *tenant;
    uint64_t key;  /* enum config_key */
    uint64_t kind; /* enum config_retention */
    int64_t window_ms;
    int64_t lease_ms;
    int64_t wait_ms;
    const char *principal;
    uint64_t jwt_alg; /* enum config_jwt_alg */
    const char *jwt_key_file;
    const char *jwt_issuer;
    const char *jwt_audience;
    struct config_list ignore;
    struct config_list redact;
    struct config_list replay_headers;
    uint64_t on_5xx;     /* enum config_on_5xx */
    uint64_t on_unknown; /* enum config_on_unknown */
    const char *reconcile_get;
    struct config_list executed;
    struct config_list not_executed;
    const char *authorization_file;
    int64_t every_ms;
    int64_t every_ms_max;
    int64_t quiet_ms;
    int64_t connect_ms;
    int64_t first_byte_ms;
    int64_t total_ms;
    uint64_t body_bytes_max;
    uint64_t outcome_bytes_max;
    double duplicate_rate;
    double duplicate_burst;
    const char *ca_file;
};

/* What a policy file says. */
struct policy_said {
    bool is_here;
    int64_t window_ms[3];     /* by enum config_retention; 0: not said */
    unsigned line[3];         /* of these, in the policy file */
    bool needs_key;           /* require_headers has Idempotency-Key */
    unsigned conflict_status; /* 0: not said */
    bool has_diff;            /* include_diff was said */
    bool diff;
    bool needs_log; /* logging.include_fields has at least one */
};

struct gateway_said {
    struct route_said all; /* first: options of both are at the same offset in a route's own */
    struct config_list listen;
    const char *tls_cert;
    const char *tls_key;
    const char *spool_dir;
    uint64_t spool_memory_bytes;
    uint64_t spool_bytes_max;
    uint64_t connections_max;
    int64_t idle_ms;
    struct route_said *routes; /* in the order of the file */
    size_t route_count;
    struct config_place place; /* of the section */
    struct policy_said policy;
};

/* Every setting at its default. E_NOMEM. */
enum status config_gateway_new(struct config *config) MUST_CHECK;
/* Take what the section says over what is set. E_NOMEM. */
enum status gateway_read(
    struct reader *reader, const struct yaml_node *key, const struct yaml_node *value) MUST_CHECK;
/* A flag or a variable will set an option: it wins, and a list begins anew unless is_more. */
void gateway_will_set(struct config *config, const struct config_option *option, bool is_more);
/* config->gateway out of all that was said. E_NOMEM; with OK there may be faults. */
enum status gateway_make(struct config *config, struct config_faults *faults) MUST_CHECK;
/* The first setting that differs and cannot change while a gateway runs; NULL: none. */
const char *gateway_needs_restart(
    const struct config_gateway *old, const struct config_gateway *new);

/* A name at the top of policy files. */
bool policy_has(struct slice name);

/* Whether a text has its form. E_INVALID: fault says why. */
enum status form_check(
    const struct config_option *option, struct slice value, struct value_fault *fault) MUST_CHECK;
/* The methods (none named: 0) and the path of a match. E_INVALID. */
enum status form_match(const char *name, struct slice text, unsigned *ret_methods,
    struct slice *ret_path, struct value_fault *fault) MUST_CHECK;
/* "header:X-Tenant" and its like; the name is empty where there is none. False: it is none. */
bool form_principal(
    struct slice text, enum config_principal *ret_principal, struct slice *ret_name);
/* A method by its name; 0: none that can be fenced. */
unsigned form_method(struct slice name);
/* RFC 9110 section 5.6.2. */
bool form_is_token(struct slice text);

#endif

/*
 * command: the `commands:` section (docs/commands.md) as plain data: the registry.
 *
 * Promises:  every value is set: by the file, else by its default. Anything that IDS-2, IDS-7 and
 *            IDS-13 forbid was refused when it was read.
 * Ownership: in the config's memory, until config_free.
 */
#ifndef ONCE_CONFIG_COMMAND_H
#define ONCE_CONFIG_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "config/place.h"

struct json_value;

enum {
    CONFIG_COMMANDS_MAX = 256,       /* keys of one map */
    CONFIG_ARGS_MAX = 64,            /* of one command */
    CONFIG_ARG_VALUES_MAX = 64,      /* of `enum` */
    CONFIG_ARG_NORMALISE_MAX = 4,    /* each at most once */
    CONFIG_SHIELDS_MAX = 4,          /* S1 to S4 */
    CONFIG_COMMAND_EFFECTS_MAX = 32, /* items of `effects` */
    CONFIG_COMMAND_POINTERS_MAX = 64 /* of redact */
};

/* IDS-2. */
enum config_class { CONFIG_CLASS_I0, CONFIG_CLASS_I1, CONFIG_CLASS_I2, CONFIG_CLASS_I3 };
/* IDS-4: which actor is part of the key. */
enum config_binding { CONFIG_BINDING_ACTOR, CONFIG_BINDING_EFFECTIVE_ACTOR };
enum config_confirm { CONFIG_CONFIRM_NONE, CONFIG_CONFIRM_CONFIRM, CONFIG_CONFIRM_STEP_UP };
enum config_effect_failure {
    CONFIG_EFFECT_FAILURE_FAIL,
    CONFIG_EFFECT_FAILURE_BLOCK,
    CONFIG_EFFECT_FAILURE_COMPENSATE,
};
enum config_arg_type {
    CONFIG_ARG_ANY,
    CONFIG_ARG_STRING,
    CONFIG_ARG_INTEGER,
    CONFIG_ARG_NUMBER,
    CONFIG_ARG_BOOLEAN,
    CONFIG_ARG_OBJECT,
    CONFIG_ARG_ARRAY,
};

/* One argument of a command. */
struct config_arg {
    const char *name;
    unsigned type; /* enum config_arg_type */
    bool is_required;
    const char *normalise[CONFIG_ARG_NORMALISE_MAX]; /* trim, lower, upper, e164; in this order */
    size_t normalise_count;
    const char *values[CONFIG_ARG_VALUES_MAX]; /* of `enum`; after normalising */
    size_t value_count;
    const char *min; /* decimal: of a number, or of the characters of a string; NULL: none */
    const char *max;
};

/* An effect that Once itself makes when the handler has done its work. */
struct config_declared_effect {
    const char *type;                 /* NULL: not given, which is a fault */
    struct config_place place;        /* of its item */
    const struct json_value *target;  /* template; NULL: the command's target */
    const struct json_value *payload; /* template */
};

/* One command: a row of the registry. */
struct config_command {
    const char *name; /* entity.action, with exactly one dot */
    unsigned line;    /* in the file */
    unsigned column;
    unsigned class; /* enum config_class */
    const char *justification;
    bool mutates; /* as declared for I0; every other class mutates */
    bool is_critical;
    const char *shields[CONFIG_SHIELDS_MAX]; /* "S1" … */
    size_t shield_count;
    int64_t ttl_ms; /* how long duplicates are recognised, from the seal on */
    unsigned binding;
    unsigned confirm;
    int64_t confirm_ttl_ms;
    const char *prompt;  /* with placeholders such as {target.order_id}; NULL: the default one */
    const char *handler; /* URL with a path */
    const char *ca_file; /* of an https handler; NULL: the system's */
    int64_t timeout_ms;
    unsigned on_unknown;       /* enum config_on_unknown of the gateway: the same words */
    const char *reconcile_get; /* path and query at the handler's server; NULL: none */
    uint16_t executed[16];
    size_t executed_count;
    uint16_t not_executed[16];
    size_t not_executed_count;
    int64_t quiet_ms;
    uint64_t attempts_max; /* if the handler answers that nothing was done */
    int64_t backoff_ms;
    int64_t backoff_ms_max;
    uint64_t concurrency; /* calls to the handler at a time */
    double rate;          /* submissions a second, of each tenant; 0: no limit */
    const char *redact[CONFIG_COMMAND_POINTERS_MAX]; /* of the envelope: /args/card */
    size_t redact_count;
    const char *effects[CONFIG_COMMAND_EFFECTS_MAX]; /* types that the handler may return */
    size_t effect_count;
    const struct config_declared_effect *declared; /* made by Once, in this order */
    size_t declared_count;
    unsigned on_effect_failure;
    const struct config_arg *args;
    size_t arg_count;
    bool has_args; /* `args` was given: any other argument is refused */
};

/* The command of that name; NULL: absent. */
const struct config_command *config_command_find(
    const struct config_command *commands, size_t count, struct slice entity, struct slice action);
/* Whether it has effects: returned by its handler, or declared. */
bool config_command_has_effects(const struct config_command *command);
/* Whether a shield is declared: "S1" … */
bool config_command_shield(const struct config_command *command, const char *shield);

struct jsonw;
/* Write its settings as members of a JSON object, from the rows of their table. The handler is left
 * out unless has_handler: callers of the API do not need to know where it is. */
void config_put_command(struct jsonw *json, const struct config_command *command, bool has_handler);
/* All of them: {"commands": […]}. */
void config_put_registry(
    struct jsonw *json, const struct config_command *commands, size_t count, bool has_handlers);

#endif

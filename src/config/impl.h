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

/* Set a scalar option. E_INVALID: fault says why. E_NOMEM. */
enum status value_set(struct config *config, const struct config_option *option, struct slice value,
    struct value_fault *fault) MUST_CHECK;

/* A terminated copy; NULL: no memory. */
const char *config_text(struct config *config, struct slice text) MUST_CHECK;

#endif

/*
 * envelope: reads a submitted command, checks it against the registry and normalises it. Pure.
 *
 *     envelope_read: members > registry > binding > arguments > key
 *
 * Promises:  an invalid member is refused by its name before anything is stored. The key is derived
 *            from the normalised arguments, so that two spellings of the same command have one key
 *            (IDS-3); ephemeral members, extensions and x_* never enter it. The tenant is the
 *            caller's (P9): an envelope that names a different one is refused where callers
 *            authenticate.
 * Ownership: everything is in the arena or in the tree that was read.
 */
#ifndef ONCE_COMMAND_ENVELOPE_H
#define ONCE_COMMAND_ENVELOPE_H

#include "base/arena.h"
#include "base/err.h"
#include "canon/digest.h"
#include "canon/json.h"
#include "config/command.h"

enum { ENVELOPE_DERIVED_BYTES_MAX = 16 << 20 }; /* of canonical text; bodies are bounded earlier */

/* The rules that an envelope is checked against. */
struct envelope_rules {
    const struct config_command *commands;
    size_t command_count;
    struct slice tenant;     /* the caller's */
    bool is_tenant_verified; /* callers authenticate: the envelope's tenant must be theirs */
};

/* Why it is refused. */
struct envelope_fault {
    unsigned status;  /* 400, 403, 404 or 422 */
    const char *code; /* "unknown_command", "invalid_args", … */
    struct err err;   /* E_INVALID; its text names the member */
};

struct envelope {
    const struct config_command *command;
    const struct json_value *root;  /* normalised */
    const struct json_value *trace; /* NULL: absent */
    struct slice command_id;        /* as given; empty: absent */
    struct slice actor_id;          /* the actor */
    struct slice effective_actor_id;
    struct slice key; /* the caller's, or the derived key in hex */
    bool is_key_given;
    struct digest digest;   /* of the members that the key is derived from; also the fingerprint */
    struct slice canonical; /* the whole normalised envelope, sent to the handler */
    struct slice target;    /* JSON, redacted */
    struct slice args;      /* JSON, redacted */
};

/* E_INVALID: fault is set. E_NOMEM. */
enum status envelope_read(const struct envelope_rules *rules, const struct json_value *root,
    struct arena *arena, struct envelope *ret_envelope, struct envelope_fault *fault) MUST_CHECK;

/* The question for the user, without redacted values. E_NOMEM. */
enum status envelope_prompt(
    const struct envelope *envelope, struct arena *arena, struct slice *ret_prompt) MUST_CHECK;

/* Check one value against its declaration and normalise it (args.c). E_INVALID: the text says what
 * the value must be. E_NOMEM. */
enum status args_take(const struct config_arg *arg, const struct json_value *value,
    struct arena *arena, struct json_value *ret_value, struct err *err) MUST_CHECK;

/* Refuse. Returns E_INVALID. */
enum status envelope_refuse(struct envelope_fault *fault, unsigned status, const char *code,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif

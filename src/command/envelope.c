#include "command/envelope.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "canon/jcs.h"
#include "canon/key.h"

enum { MEMBERS_EXTRA = 2 }; /* tenant_id and idempotency_key, if they are absent */

enum status envelope_refuse(
    struct envelope_fault *fault, unsigned status, const char *code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fault->status = status;
    fault->code = code;
    return err_set(&fault->err, E_INVALID, "%s", text);
}

static enum status no_memory(struct envelope_fault *fault)
{
    return err_set(&fault->err, E_NOMEM, "out of memory");
}

/* ---- members ----------------------------------------------------------------------------- */

/* An optional member that is a name: 1 to max bytes, no control characters. */
static enum status take_name(const struct json_value *object, const char *name, size_t bytes_max,
    struct slice *ret_text, struct envelope_fault *fault)
{
    const struct json_value *value = json_find(object, slice_str(name));
    struct err err = {0};
    if (value == NULL) {
        return OK;
    }
    if (!json_is(value, JSON_STRING) || value->count == 0 || value->count > bytes_max) {
        return envelope_refuse(fault, 400, "invalid_member",
            "member '%s' must be a string of 1 to %zu bytes", name, bytes_max);
    }
    if (name_check(name, json_text(value), &err) != OK) {
        return envelope_refuse(fault, 400, "invalid_member", "%s", err.text);
    }
    *ret_text = json_text(value);
    return OK;
}

static enum status take_intent(const struct json_value *root, const struct envelope_rules *rules,
    struct envelope *envelope, struct envelope_fault *fault)
{
    const struct json_value *intent = json_find(root, SLICE_LIT("intent"));
    struct slice entity = SLICE_EMPTY;
    struct slice action = SLICE_EMPTY;
    if (!json_is(intent, JSON_OBJECT)) {
        return envelope_refuse(fault, 400, intent == NULL ? "missing_member" : "invalid_member",
            "member 'intent' must be an object of entity, action and target");
    }
    enum status status = take_name(intent, "entity", LIMIT_SCOPE_BYTES_MAX, &entity, fault);
    status =
        status == OK ? take_name(intent, "action", LIMIT_SCOPE_BYTES_MAX, &action, fault) : status;
    if (status != OK) {
        return status;
    }
    if (entity.len == 0 || action.len == 0) {
        return envelope_refuse(fault, 400, "missing_member", "member 'intent.%s' is missing",
            entity.len == 0 ? "entity" : "action");
    }
    envelope->command = config_command_find(rules->commands, rules->command_count, entity, action);
    return envelope->command != NULL ? OK
                                     : envelope_refuse(fault, 404, "unknown_command",
                                           "there is no command '%.*s.%.*s' in the registry",
                                           SLICE_ARGS(entity), SLICE_ARGS(action));
}

static enum status take_actors(
    const struct json_value *root, struct envelope *envelope, struct envelope_fault *fault)
{
    const struct config_command *command = envelope->command;
    enum status status =
        take_name(root, "actor_id", LIMIT_PRINCIPAL_BYTES_MAX, &envelope->actor_id, fault);
    status = status == OK ? take_name(root, "effective_actor_id", LIMIT_PRINCIPAL_BYTES_MAX,
                                &envelope->effective_actor_id, fault)
                          : status;
    if (status != OK) {
        return status;
    }
    if (envelope->actor_id.len == 0) {
        return envelope_refuse(fault, 400, "missing_member", "member 'actor_id' is missing");
    }
    if (command->binding == CONFIG_BINDING_EFFECTIVE_ACTOR &&
        envelope->effective_actor_id.len == 0) {
        return envelope_refuse(fault, 422, "missing_effective_actor",
            "'%s' is bound to the effective actor: member 'effective_actor_id' is missing",
            command->name);
    }
    return OK;
}

/* P9: an authenticated caller acts for one tenant, whatever the envelope says. */
static enum status take_tenant(
    const struct json_value *root, const struct envelope_rules *rules, struct envelope_fault *fault)
{
    struct slice tenant = SLICE_EMPTY;
    enum status status = take_name(root, "tenant_id", LIMIT_TENANT_BYTES_MAX, &tenant, fault);
    if (status == OK && tenant.len > 0 && rules->is_tenant_verified &&
        !slice_equal(tenant, rules->tenant)) {
        return envelope_refuse(fault, 403, "tenant_mismatch",
            "member 'tenant_id' is not the tenant that the token is for");
    }
    return status;
}

/* ---- arguments --------------------------------------------------------------------------- */

static const struct config_arg *arg_find(const struct config_command *command, struct slice name)
{
    for (size_t i = 0; i < command->arg_count; i++) {
        if (slice_is(name, command->args[i].name)) {
            return &command->args[i];
        }
    }
    return NULL;
}

static enum status check_missing(const struct config_command *command,
    const struct json_value *args, struct envelope_fault *fault)
{
    for (size_t i = 0; i < command->arg_count; i++) {
        const struct config_arg *arg = &command->args[i];
        if (arg->is_required && (args == NULL || json_find(args, slice_str(arg->name)) == NULL)) {
            return envelope_refuse(
                fault, 422, "invalid_args", "argument '%s' is missing", arg->name);
        }
    }
    return OK;
}

/* The same object, with each value normalised by its declaration. */
static enum status take_args(const struct config_command *command, const struct json_value *args,
    struct arena *arena, struct json_value *ret_args, struct envelope_fault *fault)
{
    if (args != NULL && !json_is(args, JSON_OBJECT)) {
        return envelope_refuse(fault, 422, "invalid_args", "member 'args' must be an object");
    }
    enum status status = check_missing(command, args, fault);
    uint32_t count = args == NULL ? 0 : args->count;
    struct json_member *members = arena_alloc(arena, (count + 1) * sizeof *members);
    if (members == NULL) {
        return no_memory(fault);
    }
    for (uint32_t i = 0; status == OK && i < count; i++) {
        struct slice name = json_text(&args->members[i].name);
        const struct config_arg *arg = arg_find(command, name);
        members[i] = args->members[i];
        if (arg != NULL) {
            status = args_take(arg, &args->members[i].value, arena, &members[i].value, &fault->err);
            fault->status = 422;
            fault->code = "invalid_args";
        } else if (command->has_args) {
            status = envelope_refuse(fault, 422, "invalid_args", "'%s' has no argument '%.*s'",
                command->name, name.len > 64 ? 64 : (int)name.len, name.data);
        }
    }
    *ret_args = (struct json_value){.type = JSON_OBJECT, .count = count, .members = members};
    return status;
}

/* ---- the normalised envelope ------------------------------------------------------------- */

static struct json_value string_of(struct slice text)
{
    return (struct json_value){
        .type = JSON_STRING, .count = (uint32_t)text.len, .text = text.len == 0 ? "" : text.data};
}

/* Replace or add a member of an object under construction, in canonical order. */
static void set_member(
    struct json_member *members, uint32_t *count, struct slice name, struct json_value value)
{
    uint32_t at = 0;
    while (at < *count && json_order(json_text(&members[at].name), name) < 0) {
        at++;
    }
    if (at == *count || !slice_equal(json_text(&members[at].name), name)) {
        memmove(members + at + 1, members + at, (*count - at) * sizeof *members);
        members[at].name = string_of(name);
        (*count)++;
    }
    members[at].value = value;
}

/* The envelope with its tenant and its normalised arguments. */
static enum status make_root(const struct envelope_rules *rules, const struct json_value *root,
    const struct json_value *args, struct arena *arena, struct json_value **ret_root,
    struct envelope_fault *fault)
{
    struct json_value *made = arena_alloc(arena, sizeof *made);
    struct json_member *members =
        arena_alloc(arena, (root->count + MEMBERS_EXTRA + 1) * sizeof *members);
    if (made == NULL || members == NULL) {
        return no_memory(fault);
    }
    uint32_t count = root->count;
    memcpy(members, root->members, count * sizeof *members);
    if (json_find(root, SLICE_LIT("tenant_id")) == NULL) {
        set_member(members, &count, SLICE_LIT("tenant_id"), string_of(rules->tenant));
    }
    if (json_find(root, SLICE_LIT("args")) != NULL) {
        set_member(members, &count, SLICE_LIT("args"), *args);
    }
    *made = (struct json_value){.type = JSON_OBJECT, .count = count, .members = members};
    *ret_root = made;
    return OK;
}

static enum status derive(struct json_value *root, struct arena *arena, struct envelope *envelope,
    struct envelope_fault *fault)
{
    struct mem mem = arena_mem(arena);
    struct buf form;
    struct err err = {0};
    buf_init(&form, &mem, ENVELOPE_DERIVED_BYTES_MAX);
    enum status status = key_derive(KEY_COMMAND, root, &form, &envelope->digest, &err);
    if (status == E_INVALID) {
        return envelope_refuse(fault, 422, "invalid_envelope", "%s", err.text);
    }
    if (status != OK) {
        return no_memory(fault);
    }
    status = take_name(root, "idempotency_key", LIMIT_KEY_BYTES_MAX, &envelope->key, fault);
    envelope->is_key_given = envelope->key.len > 0;
    if (status == OK && !envelope->is_key_given) {
        char *hex = arena_alloc(arena, DIGEST_HEX_BYTES);
        if (hex == NULL) {
            return no_memory(fault);
        }
        envelope->key = slice_of(digest_put_hex(hex, &envelope->digest), DIGEST_HEX_BYTES - 1);
        uint32_t count = root->count;
        /* make_root left room for it. */
        set_member((struct json_member *)(uintptr_t)root->members, &count,
            SLICE_LIT("idempotency_key"), string_of(envelope->key));
        root->count = count;
    }
    return status;
}

/* ---- texts ------------------------------------------------------------------------------- */

static enum status put_marked(const struct json_value *value, const struct json_mask *marks,
    struct arena *arena, struct slice *ret_text)
{
    static const struct json_value none = {.type = JSON_OBJECT};
    struct mem mem = arena_mem(arena);
    struct buf out;
    struct jcs_how how = {.marks = marks, .keep_lossy = true};
    buf_init(&out, &mem, ENVELOPE_DERIVED_BYTES_MAX);
    if (jcs_write_marked(value == NULL ? &none : value, &how, &out, NULL, NULL) != OK) {
        return E_NOMEM;
    }
    *ret_text = buf_view(&out);
    return OK;
}

/* The trace is shown and stored, so it is masked like the arguments. */
static enum status mask_trace(
    const struct json_mask *marks, struct arena *arena, struct envelope *envelope)
{
    const struct json_value *trace = json_find(envelope->root, SLICE_LIT("trace"));
    struct slice text = SLICE_EMPTY;
    if (marks->count == 0 || !json_is(trace, JSON_OBJECT)) {
        envelope->trace = trace;
        return OK;
    }
    enum status status = put_marked(trace, marks, arena, &text);
    if (status == OK && json_read(text, arena, &trace, NULL) != OK) {
        status = E_NOMEM;
    }
    envelope->trace = json_is(trace, JSON_OBJECT) ? trace : NULL; /* else all of it is redacted */
    return status;
}

/* The texts for the handler, and those for people. */
static enum status put_texts(
    struct arena *arena, struct envelope *envelope, struct envelope_fault *fault)
{
    const struct config_command *command = envelope->command;
    const struct json_value *root = envelope->root;
    struct json_mask_list list = {
        .pointers = command->redact, .count = command->redact_count, .way = JSON_MASK_REDACTED};
    struct json_mask marks = {0};
    const struct json_value *intent = json_find(root, SLICE_LIT("intent"));
    enum status status = put_marked(root, NULL, arena, &envelope->canonical);
    status = status == OK ? json_mask_make(root, &list, 1, arena, &marks) : status;
    status = status == OK
                 ? put_marked(json_find(root, SLICE_LIT("args")), &marks, arena, &envelope->args)
                 : status;
    status = status == OK ? put_marked(json_find(intent, SLICE_LIT("target")), &marks, arena,
                                &envelope->target)
                          : status;
    status = status == OK ? mask_trace(&marks, arena, envelope) : status;
    return status == OK ? OK : no_memory(fault);
}

enum status envelope_read(const struct envelope_rules *rules, const struct json_value *root,
    struct arena *arena, struct envelope *ret_envelope, struct envelope_fault *fault)
{
    struct envelope envelope = {.command = NULL};
    struct json_value args;
    struct json_value *made = NULL;
    if (!json_is(root, JSON_OBJECT)) {
        return envelope_refuse(fault, 400, "invalid_body", "the body is not a JSON object");
    }
    enum status status = take_intent(root, rules, &envelope, fault);
    status = status == OK ? take_tenant(root, rules, fault) : status;
    status = status == OK ? take_actors(root, &envelope, fault) : status;
    status = status == OK ? take_name(root, "command_id", LIMIT_EFFECT_ID_BYTES_MAX,
                                &envelope.command_id, fault)
                          : status;
    status = status == OK ? take_args(envelope.command, json_find(root, SLICE_LIT("args")), arena,
                                &args, fault)
                          : status;
    status = status == OK ? make_root(rules, root, &args, arena, &made, fault) : status;
    status = status == OK ? derive(made, arena, &envelope, fault) : status;
    envelope.root = made;
    status = status == OK ? put_texts(arena, &envelope, fault) : status;
    if (status == OK) {
        *ret_envelope = envelope;
    }
    return status;
}

/* ---- the prompt -------------------------------------------------------------------------- */

/* Follow "order_id" or "customer.name" into a value. */
static const struct json_value *follow(const struct json_value *value, struct slice path)
{
    while (value != NULL && path.len > 0) {
        const char *dot = memchr(path.data, '.', path.len);
        size_t len = dot == NULL ? path.len : (size_t)(dot - path.data);
        value = json_find(value, slice_of(path.data, len));
        path = dot == NULL ? SLICE_EMPTY : slice_of(dot + 1, path.len - len - 1);
    }
    return value;
}

static void put_value(struct buf *out, struct slice text, const struct json_value *value)
{
    if (json_is(value, JSON_STRING)) {
        buf_slice(out, json_text(value));
    } else if (value != NULL) {
        buf_slice(out, json_raw(text, value));
    } else {
        buf_char(out, '?'); /* absent from the envelope */
    }
}

struct prompt {
    const struct envelope *envelope;
    const struct json_value *target; /* redacted */
    const struct json_value *args;
};

static void put_mark(struct buf *out, const struct prompt *prompt, struct slice name)
{
    const char *dot = memchr(name.data, '.', name.len);
    size_t len = dot == NULL ? name.len : (size_t)(dot - name.data);
    struct slice root = slice_of(name.data, len);
    struct slice rest = dot == NULL ? SLICE_EMPTY : slice_of(dot + 1, name.len - len - 1);
    if (slice_is(root, "actor_id")) {
        buf_slice(out, prompt->envelope->actor_id);
    } else if (slice_is(root, "command")) {
        buf_str(out, prompt->envelope->command->name);
    } else if (slice_is(root, "target")) {
        put_value(out, prompt->envelope->target, follow(prompt->target, rest));
    } else {
        put_value(out, prompt->envelope->args, follow(prompt->args, rest));
    }
}

enum status envelope_prompt(
    const struct envelope *envelope, struct arena *arena, struct slice *ret_prompt)
{
    const char *text = envelope->command->prompt;
    struct prompt prompt = {.envelope = envelope};
    struct mem mem = arena_mem(arena);
    struct buf out;
    buf_init(&out, &mem, 64 << 10);
    if (json_read(envelope->target, arena, &prompt.target, NULL) == E_NOMEM ||
        json_read(envelope->args, arena, &prompt.args, NULL) == E_NOMEM) {
        return E_NOMEM;
    }
    text = text == NULL ? "Confirm {command}?" : text;
    while (*text != '\0') {
        const char *end = *text == '{' ? strchr(text, '}') : NULL;
        if (end == NULL) {
            buf_char(&out, *text++);
            continue;
        }
        put_mark(&out, &prompt, slice_of(text + 1, (size_t)(end - text) - 1));
        text = end + 1;
    }
    *ret_prompt = buf_view(&out);
    return buf_status(&out) == E_NOMEM ? E_NOMEM : OK;
}

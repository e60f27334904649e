/* Commands that events submit (docs/inbox.md). */
#include "command/impl.h"

/* Whether an event may submit it. The file was checked, but the registry may be a newer one. */
static enum status check(const struct config_command *command, struct err *err)
{
    return command->confirm == CONFIG_CONFIRM_NONE
               ? OK
               : err_set(err, E_INVALID, "'%s' asks for a confirmation, and nobody gets its token",
                     command->name);
}

static enum status read_event(
    struct command_admission *admission, struct slice text, struct err *err)
{
    const struct json_value *body = NULL;
    struct envelope_fault fault = {.err = {.status = OK}};
    enum status status = json_read(text, admission->arena, &body, err);
    if (status != OK) {
        return status;
    }
    status = admission_read(admission, body, &fault);
    if (status != OK) {
        *err = fault.err;
        /* 404: it may be in the registry that is about to be used, or be there again. */
        return status == E_INVALID && fault.status == 404 ? E_UNAVAILABLE : status;
    }
    return check(admission->envelope->command, err);
}

static enum status ask(struct command_admission *admission, struct slice text,
    struct engine_call *call, int64_t *ret_after_ms, struct err *err)
{
    enum status status = read_event(admission, text, err);
    if (status == OK && !admission_is_within_rate(admission, ret_after_ms)) {
        return err_set(err, E_LIMIT, "the command is submitted faster than its rate");
    }
    return status == OK ? admission_make(admission, call, err) : status;
}

enum status commands_inbound(struct commands *commands, const struct commands_event *event,
    struct engine_call *call, int64_t *ret_after_ms, struct err *err)
{
    struct mem mem = arena_mem(call->arena);
    struct envelope envelope;
    struct registry *registry = NULL;
    if (commands->vault == NULL) {
        return err_set(err, E_UNAVAILABLE, "the first command of the registry needs a restart");
    }
    registry = registry_take(commands);
    struct command_admission admission = {.commands = commands,
        .registry = registry,
        .envelope = &envelope,
        .tenant = event->tenant,
        .is_tenant_verified = true,
        .is_later = true,
        .request_id = event->request_id,
        .arena = call->arena,
        .mem = &mem};
    enum status status = ask(&admission, event->envelope, call, ret_after_ms, err);
    registry_drop(registry);
    return status;
}

enum status commands_inbound_check(struct config *config, const struct commands_event *event,
    struct arena *arena, struct slice *ret_key, struct err *err)
{
    struct mem mem = arena_mem(arena);
    struct registry registry = {.config = config};
    struct envelope envelope;
    struct command_admission admission = {.registry = &registry,
        .envelope = &envelope,
        .tenant = event->tenant,
        .is_tenant_verified = true,
        .is_later = true,
        .request_id = event->request_id,
        .arena = arena,
        .mem = &mem};
    enum status status = read_event(&admission, event->envelope, err);
    status = status == OK ? admission_check(&admission, err) : status;
    if (status == OK) {
        *ret_key = envelope.key;
    }
    return status == E_UNAVAILABLE ? E_INVALID : status;
}

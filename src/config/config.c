#include "config/config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "config/impl.h"

enum { ARENA_BYTES_MAX = 64 << 20 }; /* many times a file that consists of small nodes */

static enum status set_defaults(struct config *config)
{
    struct map_scope scope = {.options = config_options, .object = config};
    enum status status = value_defaults(&scope, config);
    return status == OK ? config_gateway_new(config) : status;
}

enum status config_new(const struct mem *mem, struct config **ret_config, struct err *err)
{
    struct config *config = mem_zalloc(mem, 1, sizeof *config);
    if (config == NULL) {
        return err_set(err, E_NOMEM, "out of memory for the configuration");
    }
    atomic_init(&config->holders, 1);
    arena_init(&config->arena, mem, ARENA_BYTES_MAX);
    enum status status = set_defaults(config);
    if (status != OK) {
        config_free(config);
        return err_set(err, status, "out of memory for the configuration");
    }
    *ret_config = config;
    return OK;
}

struct config *config_hold(struct config *config)
{
    atomic_fetch_add(&config->holders, 1);
    return config;
}

void config_free(struct config *config)
{
    if (config != NULL && atomic_fetch_sub(&config->holders, 1) == 1) {
        const struct mem *mem = config->arena.mem;
        arena_release(&config->arena);
        mem_free(mem, config);
    }
}

enum status config_set(struct config *config, const struct config_option *option, const char *value,
    const char *from, bool is_more, struct config_faults *faults)
{
    struct value_fault fault = {.hint = ""};
    struct value_target target = {.config = config,
        .object = (option->in & CONFIG_IN_ROUTE) != 0 ? (void *)&config->raw->section.route
                  : option->in != 0                   ? (void *)&config->gateway
                                                      : config};
    if (option->in != 0) {
        gateway_will_set(config, option, is_more);
    } else if (option->kind == CONFIG_LIST && !is_more) {
        *value_count(config, option) = 0;
    }
    enum status status = value_set(&target, option, slice_str(value), &fault);
    if (status == E_INVALID) {
        struct config_fault reported = {.hint = fault.hint[0] == '\0' ? NULL : fault.hint};
        config_fault_add(config, faults, &reported, "%s: %s", from, fault.text);
    }
    return status;
}

bool config_is_public(const struct config *config)
{
    bool is_public = false;
    for (size_t i = 0; i < config->listen_count; i++) {
        is_public = is_public || config_address(config->listen[i]) == CONFIG_ADDRESS_PUBLIC;
    }
    return is_public;
}

/* Other machines could connect without authentication. */
static void check_open(struct config *config, struct config_faults *faults)
{
    for (size_t i = 0; i < config->listen_count && !config->has_auth; i++) {
        if (config_address(config->listen[i]) == CONFIG_ADDRESS_PUBLIC) {
            struct config_fault fault = {.line = config->listen_at[i].line,
                .column = config->listen_at[i].column,
                .source = source_line(config->source, config->listen_at[i].line),
                .hint = "make a token with 'once token new --tenant acme --rights execute' and put "
                        "its line under auth: tokens: in the configuration, or listen on "
                        "127.0.0.1 only"};
            config_fault_add(config, faults, &fault,
                "will not listen on '%s' without auth: other machines can reach it and anybody "
                "could do anything",
                config->listen[i]);
        }
    }
}

enum status config_check(struct config *config, struct config_faults *faults)
{
    size_t before = faults->count + faults->more;
    check_open(config, faults);
    if ((config->tls_cert == NULL) != (config->tls_key == NULL)) {
        struct config_fault fault = {.hint = "set both or neither"};
        config_fault_add(config, faults, &fault, "tls.%s is set and tls.%s is not",
            config->tls_cert == NULL ? "key" : "cert", config->tls_cert == NULL ? "cert" : "key");
    }
    if (config->body_bytes_max > config->in_flight_bytes_max) {
        struct config_fault fault = {.hint = "raise limits.in_flight_bytes_max"};
        config_fault_add(config, faults, &fault,
            "limits.body_bytes_max is more than limits.in_flight_bytes_max: such a body could "
            "never be read");
    }
    inbox_check(config, faults);
    effects_check(config, faults);
    commands_check(config, faults);
    enum status status = config->gateway.is_on ? gateway_routes_make(config, faults) : OK;
    if (status != OK) {
        return status;
    }
    return faults->count + faults->more > before ? E_INVALID : OK;
}

static const char *differing(const struct config_option *options, const void *old, const void *new)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        if (o->at_start && !value_equal(old, new, o)) {
            return o->path;
        }
    }
    return NULL;
}

const char *config_needs_restart(const struct config *old, const struct config *new)
{
    const char *found = differing(config_options, old, new);
    if (found == NULL && old->gateway.is_on != new->gateway.is_on) {
        found = "gateway.listen";
    }
    if (found == NULL) { /* a setting that a route may have can change at any time */
        found = differing(config_gateway_options, &old->gateway, &new->gateway);
    }
    /* The server's loops were made for bodies of the old size. */
    bool is_larger = new->body_bytes_max > old->body_bytes_max;
    return found == NULL && is_larger ? "limits.body_bytes_max" : found;
}

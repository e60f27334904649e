/*
 * Whatever bytes a configuration has: it is taken whole or refused with a fault at a place inside
 * it, and faults can be shown. The routes of a gateway that was taken are whole. The same bytes are
 * also read as a policy file, and as the cases of once policy test.
 */
#include <stdlib.h>

#include "base/text.h"
#include "config/cases.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static size_t lines_of(struct slice text)
{
    size_t lines = 1;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.data[i] == '\n';
    }
    return lines;
}

static void check_faults(const struct config_faults *faults, struct slice text)
{
    struct buf shown;
    buf_init(&shown, &mem_libc, 1 << 20);
    for (size_t i = 0; i < faults->count; i++) {
        const struct config_fault *fault = &faults->items[i];
        must(fault->text != NULL && fault->text[0] != '\0');
        must(fault->line <= lines_of(text) && fault->column <= text.len + 1);
        must((fault->line == 0) == (fault->column == 0));
        config_fault_put(&shown, "f", fault);
    }
    must(buf_status(&shown) == OK);
    for (size_t i = 0; i < shown.len; i++) {
        unsigned char c = (unsigned char)shown.data[i];
        must(c == '\n' || (c >= ' ' && c != 127));
    }
    buf_release(&shown);
}

/* What config/gateway.h promises of a route. */
static void check_route(const struct config_route *route)
{
    must(route->match != NULL && route->path != NULL && route->path[0] == '/');
    must(route->upstream_count > 0 && route->upstream_count <= CONFIG_UPSTREAMS_MAX);
    must(route->tenant != NULL && (unsigned)route->profile < CONFIG_PROFILES);
    must((route->fenced & ~15U) == 0 && (route->methods & ~15U) == 0);
    must(route->lease_ms >= 1000 && route->window_ms > 0);
    must(route->profile != CONFIG_PROFILE_GUARDIA ||
         (route->window_ms >= 7200000 && route->window_ms <= 86400000) || route->fenced == 0);
    must(route->principal != CONFIG_PRINCIPAL_JWT || route->jwt.key_file != NULL ||
         route->fenced == 0);
    must(route->on_unknown != CONFIG_UNKNOWN_RECONCILE || route->reconcile.get != NULL ||
         route->fenced == 0);
}

static void check_gateway(const struct config_gateway *gateway)
{
    must(gateway->listen_count > 0 && gateway->route_count > 0);
    for (size_t i = 0; i < gateway->route_count; i++) {
        check_route(&gateway->routes[i]);
        must(gateway->routes[i].fenced != 0);
    }
    must(gateway->otherwise != NULL && gateway->otherwise->fenced == 0);
    check_route(gateway->otherwise);
}

static void read_cases(struct slice text)
{
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    struct config_cases cases = {.count = 0};
    must(config_new(&mem_libc, &config, NULL) == OK);
    enum status status = config_cases_read(config, text, &cases, &faults);
    must(status == OK || status == E_INVALID);
    must((status == OK) == (faults.count == 0) && (status == OK) == (cases.count > 0));
    for (size_t i = 0; i < cases.count; i++) {
        must(cases.items[i].name != NULL && cases.items[i].step_count > 0);
        for (size_t k = 0; k < cases.items[i].step_count; k++) {
            const struct case_step *step = &cases.items[i].steps[k];
            must(step->request != NULL && step->request->path[0] == '/' && step->repeat > 0);
            must(step->upstream.status >= 200 && step->upstream.status <= 599);
        }
    }
    check_faults(&faults, text);
    config_free(config);
}

static void read_policy(struct slice text)
{
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    must(config_new(&mem_libc, &config, NULL) == OK);
    (void)config_is_policy(&mem_libc, text);
    enum status status = config_policy_read(config, text, &faults);
    must(status == OK || status == E_INVALID);
    must((status == OK) == (faults.count == 0));
    for (size_t i = 0; status == OK && i < config->policy.count; i++) {
        must(config->policy.lines[i].line > 0 && config->policy.lines[i].line <= lines_of(text));
        must(config->policy.lines[i].meaning[0] != '\0');
    }
    check_faults(&faults, text);
    config_free(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    must(config_new(&mem_libc, &config, NULL) == OK);
    enum status status = config_read(config, text, &faults);
    must(status == OK || status == E_INVALID);
    must((status == OK) == (faults.count == 0));
    if (status == OK) {
        must(text_utf8(text));
        must(config->listen_count > 0 && config->store != NULL);
        status = config_check(config, &faults);
        must(status == OK || status == E_INVALID);
        if (status == OK && config->gateway.is_on) {
            check_gateway(&config->gateway);
        }
    }
    check_faults(&faults, text);
    config_free(config);
    read_policy(text);
    read_cases(text);
    return 0;
}

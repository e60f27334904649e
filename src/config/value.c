/* One value against its option: the form, the limits, and what to write instead. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/check.h"
#include "base/text.h"
#include "config/impl.h"

enum status value_refuse(struct value_fault *fault, const char *hint, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    (void)snprintf(fault->hint, sizeof fault->hint, "%s", hint);
    return E_INVALID;
}

static void *member(const struct value_target *target, const struct config_option *option)
{
    return (char *)target->object + option->offset;
}

/* ---- addresses --------------------------------------------------------------------------- */

static bool is_port(const char *text)
{
    uint64_t port = 0;
    return text_u64(slice_str(text), &port) && port <= 65535 && strlen(text) <= 5;
}

static enum config_address address_v6(const char *text)
{
    char host[INET6_ADDRSTRLEN];
    struct in6_addr address;
    const char *end = strchr(text, ']');
    size_t len = end == NULL ? sizeof host : (size_t)(end - text) - 1;
    if (len >= sizeof host || end[1] != ':' || !is_port(end + 2)) {
        return CONFIG_ADDRESS_WRONG;
    }
    memcpy(host, text + 1, len);
    host[len] = '\0';
    if (inet_pton(AF_INET6, host, &address) != 1) {
        return CONFIG_ADDRESS_WRONG;
    }
    bool is_mapped = IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&address) || is_mapped ? CONFIG_ADDRESS_LOOPBACK
                                                       : CONFIG_ADDRESS_PUBLIC;
}

enum config_address config_address(const char *text)
{
    char host[INET_ADDRSTRLEN];
    struct in_addr address;
    if (strncmp(text, "unix:", 5) == 0) {
        size_t len = strlen(text + 5);
        bool fits = len > 0 && len < sizeof((struct sockaddr_un *)0)->sun_path;
        return fits ? CONFIG_ADDRESS_UNIX : CONFIG_ADDRESS_WRONG;
    }
    if (text[0] == '[') {
        return address_v6(text);
    }
    const char *colon = strrchr(text, ':');
    size_t len = colon == NULL ? sizeof host : (size_t)(colon - text);
    if (len >= sizeof host || !is_port(colon + 1)) {
        return CONFIG_ADDRESS_WRONG;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    if (inet_pton(AF_INET, host, &address) != 1) {
        return CONFIG_ADDRESS_WRONG;
    }
    return ntohl(address.s_addr) >> 24 == 127 ? CONFIG_ADDRESS_LOOPBACK : CONFIG_ADDRESS_PUBLIC;
}

static enum status add_listen(struct config *config, struct slice value, struct value_fault *fault)
{
    const char *text = config_text(config, value);
    if (text == NULL) {
        return E_NOMEM;
    }
    if (config_address(text) == CONFIG_ADDRESS_WRONG) {
        const char *hint = strncmp(text, "localhost:", 10) == 0
                               ? "names are not looked up: write 127.0.0.1:7411"
                               : "such as 127.0.0.1:7411, [::1]:7411 or unix:/run/once/once.sock";
        return value_refuse(
            fault, hint, "'%.*s' is not an address to listen on", SLICE_ARGS(value));
    }
    if (config->listen_count == CONFIG_LISTEN_MAX) {
        return value_refuse(fault, "", "more than %d addresses", CONFIG_LISTEN_MAX);
    }
    config->listen[config->listen_count++] = text;
    return OK;
}

/* ---- the other forms --------------------------------------------------------------------- */

/* "20", "0.5": digits with at most one dot between them. */
static bool read_real(struct slice text, double *ret_value)
{
    char copy[32];
    size_t dots = 0;
    for (size_t i = 0; i < text.len; i++) {
        bool is_dot = text.data[i] == '.' && i > 0 && i + 1 < text.len;
        dots += is_dot;
        if (!is_dot && (text.data[i] < '0' || text.data[i] > '9')) {
            return false;
        }
    }
    if (text.len == 0 || text.len >= sizeof copy || dots > 1) {
        return false;
    }
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    *ret_value = strtod(copy, NULL);
    return true;
}

/* A bound in the unit of its option. */
static const char *put_bound(char ret_text[32], enum config_kind kind, uint64_t bound)
{
    if (kind == CONFIG_DURATION) {
        return text_put_duration(ret_text, (int64_t)bound);
    }
    if (kind != CONFIG_SIZE || bound % 1024 != 0 || bound == 0) {
        (void)snprintf(ret_text, 32, "%" PRIu64, bound);
        return ret_text;
    }
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    size_t unit = 0;
    for (bound /= 1024; unit < 2 && bound % 1024 == 0; bound /= 1024) {
        unit++;
    }
    (void)snprintf(ret_text, 32, "%" PRIu64 "%s", bound, units[unit]);
    return ret_text;
}

static enum status check_bounds(const struct config_option *option, struct slice value,
    double number, struct value_fault *fault)
{
    char bound[32];
    if (number < (double)option->min) {
        return value_refuse(fault, "", "%s: '%.*s' is less than %s", option->path,
            SLICE_ARGS(value), put_bound(bound, option->kind, option->min));
    }
    if (option->max > 0 && number > (double)option->max) {
        return value_refuse(fault, "", "%s: '%.*s' is more than %s", option->path,
            SLICE_ARGS(value), put_bound(bound, option->kind, option->max));
    }
    return OK;
}

static enum status wrong_form(const struct config_option *option, struct slice value,
    const char *form, struct value_fault *fault)
{
    char hint[VALUE_FAULT_BYTES_MAX] = "";
    if (option->fallback != NULL) {
        (void)snprintf(hint, sizeof hint, "the default is %s", option->fallback);
    }
    return value_refuse(fault, hint, "%s: '%.*s' is not %s", option->path,
        value.len < 100 ? (int)value.len : 100, value.data == NULL ? "" : value.data, form);
}

static enum status set_duration(const struct value_target *target,
    const struct config_option *option, struct slice value, struct value_fault *fault)
{
    int64_t ms = 0;
    if (!text_duration(value, &ms)) {
        return wrong_form(option, value, "a duration such as 300ms, 30s, 5m, 24h or 14d", fault);
    }
    enum status status = check_bounds(option, value, (double)ms, fault);
    if (status == OK) {
        *(int64_t *)member(target, option) = ms;
    }
    return status;
}

static enum status set_whole(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    uint64_t number = 0;
    if (option->kind == CONFIG_SIZE && !text_size(value, &number)) {
        return wrong_form(option, value, "a size such as 64KiB or 10MiB", fault);
    }
    if (option->kind == CONFIG_COUNT && !text_u64(value, &number)) {
        return wrong_form(option, value, "a whole number such as 1000", fault);
    }
    enum status status = check_bounds(option, value, (double)number, fault);
    if (status == OK) {
        *(uint64_t *)member(target, option) = number;
    }
    return status;
}

static enum status set_real(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    double number = 0;
    if (!read_real(value, &number)) {
        return wrong_form(option, value, "a number such as 20 or 0.5", fault);
    }
    /* 0 turns a rate off; the least burst is a whole one. */
    enum status status = check_bounds(option, value, number, fault);
    if (status == OK) {
        *(double *)member(target, option) = number;
    }
    return status;
}

static enum status set_choice(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    char form[128] = "one of";
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        if (slice_is(value, option->choices[i])) {
            *(uint64_t *)member(target, option) = i;
            return OK;
        }
        size_t used = strlen(form);
        (void)snprintf(
            form + used, sizeof form - used, "%s %s", i == 0 ? "" : ",", option->choices[i]);
    }
    return wrong_form(option, value, form, fault);
}

static enum status set_bool(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    bool is_true = slice_is(value, "true");
    if (!is_true && !slice_is(value, "false")) {
        return wrong_form(option, value, "true or false", fault);
    }
    *(bool *)member(target, option) = is_true;
    return OK;
}

static enum status set_text(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    if (value.len == 0) {
        return value_refuse(fault, "", "%s: is empty", option->path);
    }
    enum status status = form_check(option, value, fault);
    if (status != OK) {
        return status;
    }
    const char *copy = config_text(target->config, value);
    if (copy == NULL) {
        return E_NOMEM;
    }
    *(const char **)member(target, option) = copy;
    return OK;
}

/* ---- lists ------------------------------------------------------------------------------- */

enum status list_add(struct config *config, struct config_list *list, const char *text,
    const struct config_place *place)
{
    struct config_item *items =
        arena_alloc(&config->arena, (list->count + 1) * sizeof(struct config_item));
    if (items == NULL) {
        return E_NOMEM;
    }
    if (list->count > 0) {
        memcpy(items, list->items, list->count * sizeof *items);
    }
    items[list->count] = (struct config_item){text, *place};
    list->items = items;
    list->count++;
    return OK;
}

static enum status add_text(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    struct config_list *list = member(target, option);
    enum status status = form_check(option, value, fault);
    if (status != OK) {
        return status;
    }
    if (list->count == option->max) {
        return value_refuse(
            fault, "", "%s: more than %u of them", option->path, (unsigned)option->max);
    }
    for (size_t i = 0; i < list->count; i++) {
        if (slice_is(value, list->items[i].text)) {
            return value_refuse(
                fault, "", "%s: '%.*s' is here twice", option->path, SLICE_ARGS(value));
        }
    }
    const char *copy = config_text(target->config, value);
    return copy == NULL ? E_NOMEM : list_add(target->config, list, copy, &target->place);
}

enum status value_set(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    switch (option->kind) {
    case CONFIG_TEXT: return set_text(target, option, value, fault);
    case CONFIG_LISTEN: return add_listen(target->config, value, fault);
    case CONFIG_DURATION: return set_duration(target, option, value, fault);
    case CONFIG_SIZE:
    case CONFIG_COUNT: return set_whole(target, option, value, fault);
    case CONFIG_REAL: return set_real(target, option, value, fault);
    case CONFIG_BOOL: return set_bool(target, option, value, fault);
    case CONFIG_CHOICE: return set_choice(target, option, value, fault);
    case CONFIG_LIST: return add_text(target, option, value, fault);
    case CONFIG_TOKENS: break;
    }
    ASSERT(option->kind != CONFIG_TOKENS); /* has no variable and no flag */
    return E_MISUSE;
}

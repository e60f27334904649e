/* Checks a value against its option: the form, the limits, and what to write instead. */
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

void *value_member(void *object, const struct config_option *option)
{
    return (char *)object + option->offset;
}

size_t *value_count(void *object, const struct config_option *option)
{
    return (size_t *)(void *)((char *)object + option->count);
}

static void *member(const struct value_target *target, const struct config_option *option)
{
    return value_member(target->object, option);
}

/* ---- whole settings ---------------------------------------------------------------------- */

/* The size of a member; for a list, of one item. */
static size_t size_of(const struct config_option *option)
{
    switch (option->kind) {
    case CONFIG_LIST:
    case CONFIG_TEXT: return sizeof(const char *);
    case CONFIG_DURATION: return sizeof(int64_t);
    case CONFIG_SIZE:
    case CONFIG_COUNT: return sizeof(uint64_t);
    case CONFIG_REAL: return sizeof(double);
    case CONFIG_BOOL: return sizeof(bool);
    case CONFIG_CHOICE: return sizeof(unsigned);
    case CONFIG_STATUSES: return sizeof(uint16_t);
    case CONFIG_RULES: return sizeof(struct config_rule);
    case CONFIG_OWN: break;
    }
    return 0;
}

static bool is_list(const struct config_option *option)
{
    return option->kind == CONFIG_LIST || option->kind == CONFIG_STATUSES ||
           option->kind == CONFIG_RULES;
}

static size_t count_of(const void *object, const struct config_option *option)
{
    return is_list(option) ? *(const size_t *)(const void *)((const char *)object + option->count)
                           : 1;
}

void value_copy(void *to, const void *from, const struct config_option *option)
{
    size_t count = count_of(from, option);
    memcpy(value_member(to, option), (const char *)from + option->offset, count * size_of(option));
    if (is_list(option)) {
        *value_count(to, option) = count;
    }
}

static bool same_text(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

bool value_equal(const void *a, const void *b, const struct config_option *option)
{
    size_t count = count_of(a, option);
    const void *left = (const char *)a + option->offset;
    const void *right = (const char *)b + option->offset;
    if (count != count_of(b, option)) {
        return false;
    }
    if (option->kind != CONFIG_TEXT && option->kind != CONFIG_LIST) {
        return memcmp(left, right, count * size_of(option)) == 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (!same_text(((const char *const *)left)[i], ((const char *const *)right)[i])) {
            return false;
        }
    }
    return true;
}

enum status value_defaults(const struct map_scope *scope, struct config *config)
{
    struct value_fault fault;
    for (const struct config_option *o = scope->options; o->path != NULL; o++) {
        bool is_of_route = scope->route != NULL && (o->in & CONFIG_IN_ROUTE) != 0;
        struct value_target target = {
            .config = config, .object = is_of_route ? scope->route : scope->object};
        enum status status =
            o->fallback == NULL ? OK : value_set(&target, o, slice_str(o->fallback), &fault);
        ASSERT(status != E_INVALID); /* the table is our own */
        if (status != OK) {
            return status;
        }
    }
    return OK;
}

/* ---- addresses --------------------------------------------------------------------------- */

static bool is_port(const char *text)
{
    uint64_t port = 0;
    return text_u64(slice_str(text), &port) && port <= 65535 && strlen(text) <= 5;
}

static enum config_address address_v6(const char *text)
{
    struct in6_addr address;
    const char *end = strchr(text, ']');
    if (end == NULL || end[1] != ':' || !is_port(end + 2) ||
        !text_ipv6(slice_of(text + 1, (size_t)(end - text) - 1), address.s6_addr)) {
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
    /* 0 turns a rate off; the smallest burst is 1. */
    enum status status = check_bounds(option, value, number, fault);
    if (status == OK) {
        *(double *)member(target, option) = number;
    }
    return status;
}

/* The number of a choice by its name. */
static enum status find_choice(const struct config_option *option, struct slice value,
    unsigned *ret_choice, struct value_fault *fault)
{
    char form[192] = "one of";
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        if (slice_is(value, option->choices[i])) {
            *ret_choice = (unsigned)i;
            return OK;
        }
        size_t used = strlen(form);
        (void)snprintf(
            form + used, sizeof form - used, "%s %s", i == 0 ? "" : ",", option->choices[i]);
    }
    return wrong_form(option, value, form, fault);
}

static enum status set_choice(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    return find_choice(option, value, member(target, option), fault);
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

/* Some settings can be checked only at the end; a fault then needs their place. */
static void keep_place(
    const struct value_target *target, const struct config_option *option, size_t item)
{
    if (option->places != 0) {
        struct config_place *places = (void *)((char *)target->object + option->places);
        places[item] = target->place;
    }
}

static enum status set_text(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    enum status status = value_form_check(option, value, fault);
    if (status != OK) {
        return status;
    }
    const char *copy = config_text(target->config, value);
    if (copy == NULL) {
        return E_NOMEM;
    }
    *(const char **)member(target, option) = copy;
    keep_place(target, option, 0);
    return OK;
}

/* ---- lists ------------------------------------------------------------------------------- */

static enum status no_room(const struct config_option *option, struct value_fault *fault)
{
    return value_refuse(fault, "", "%s: more than %u of them", option->path, (unsigned)option->max);
}

static enum status is_twice(
    const struct config_option *option, struct slice value, struct value_fault *fault)
{
    return value_refuse(fault, "", "%s: '%.*s' is given twice", option->path, SLICE_ARGS(value));
}

static enum status add_text(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    char address[VALUE_ADDRESS_BYTES];
    const char **texts = member(target, option);
    size_t *count = value_count(target->object, option);
    if (option->form == CONFIG_FORM_ADDRESS) {
        value = value_form_address(value, address);
    }
    enum status status = value_form_check(option, value, fault);
    if (status != OK) {
        return status;
    }
    if (*count == option->max) {
        return no_room(option, fault);
    }
    for (size_t i = 0; i < *count; i++) {
        if (slice_is(value, texts[i])) {
            return is_twice(option, value, fault);
        }
    }
    const char *copy = config_text(target->config, value);
    if (copy == NULL) {
        return E_NOMEM;
    }
    keep_place(target, option, *count);
    texts[(*count)++] = copy;
    return OK;
}

static enum status add_status(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    uint16_t *statuses = member(target, option);
    size_t *count = value_count(target->object, option);
    uint64_t status = 0;
    if (value.len != 3 || !text_u64(value, &status)) {
        return value_refuse(fault, "such as 200", "%s: '%.*s' is not a status", option->path,
            value.len < 100 ? (int)value.len : 100, value.data);
    }
    if (status < 200 || status >= 500) {
        return value_refuse(fault, "such as 200 or 404",
            "%s: an answer of %.*s says nothing about the operation", option->path,
            SLICE_ARGS(value));
    }
    if (*count == option->max) {
        return no_room(option, fault);
    }
    for (size_t i = 0; i < *count; i++) {
        if (statuses[i] == status) {
            return is_twice(option, value, fault);
        }
    }
    statuses[(*count)++] = (uint16_t)status;
    return OK;
}

/* "500", or "5xx", which is 5. 0: neither. */
static uint16_t rule_status(struct slice name)
{
    uint64_t status = 0;
    if (name.len != 3) {
        return 0;
    }
    bool is_class = name.data[1] == 'x' && name.data[2] == 'x';
    if (!text_u64(slice_of(name.data, is_class ? 1 : 3), &status)) {
        return 0;
    }
    uint64_t class = is_class ? status : status / 100;
    return class >= 2 && class <= 5 ? (uint16_t)status : 0;
}

enum status value_add_rule(const struct value_target *target, const struct config_option *option,
    struct slice name, struct slice value, struct value_fault *fault)
{
    struct config_rule *rules = member(target, option);
    size_t *count = value_count(target->object, option);
    struct config_rule rule = {.status = rule_status(name)};
    unsigned result = 0;
    if (rule.status == 0) {
        return value_refuse(fault, "such as 500, or 5xx for all from 500 to 599",
            "%s: '%.*s' is not a status or a class", option->path,
            name.len < 100 ? (int)name.len : 100, name.data == NULL ? "" : name.data);
    }
    enum status status = find_choice(option, value, &result, fault);
    if (status != OK) {
        return status;
    }
    if (result == CONFIG_RESULT_RELEASE && (rule.status == 2 || rule.status / 100 == 2)) {
        return value_refuse(fault, "seal or unknown",
            "%s: %.*s cannot be released: it says that it was done", option->path,
            SLICE_ARGS(name));
    }
    if (*count == option->max) {
        return no_room(option, fault);
    }
    for (size_t i = 0; i < *count; i++) {
        if (rules[i].status == rule.status) {
            return is_twice(option, name, fault);
        }
    }
    rule.result = (uint16_t)result;
    rules[(*count)++] = rule;
    return OK;
}

/* "5xx=release,500=unknown", from a flag or a variable. */
static enum status add_rules_text(const struct value_target *target,
    const struct config_option *option, struct slice value, struct value_fault *fault)
{
    enum status status = OK;
    size_t at = 0;
    do {
        struct slice rest = slice_of(value.data + at, value.len - at);
        const char *comma = rest.len == 0 ? NULL : memchr(rest.data, ',', rest.len);
        struct slice one =
            slice_of(rest.data, comma == NULL ? rest.len : (size_t)(comma - rest.data));
        const char *sign = one.len == 0 ? NULL : memchr(one.data, '=', one.len);
        if (sign == NULL) {
            return wrong_form(option, value, "a rule such as 5xx=release", fault);
        }
        size_t len = (size_t)(sign - one.data);
        status = value_add_rule(
            target, option, slice_of(one.data, len), slice_of(sign + 1, one.len - len - 1), fault);
        at += one.len + 1;
    } while (status == OK && at <= value.len);
    return status;
}

enum status value_set(const struct value_target *target, const struct config_option *option,
    struct slice value, struct value_fault *fault)
{
    switch (option->kind) {
    case CONFIG_TEXT: return set_text(target, option, value, fault);
    case CONFIG_DURATION: return set_duration(target, option, value, fault);
    case CONFIG_SIZE:
    case CONFIG_COUNT: return set_whole(target, option, value, fault);
    case CONFIG_REAL: return set_real(target, option, value, fault);
    case CONFIG_BOOL: return set_bool(target, option, value, fault);
    case CONFIG_CHOICE: return set_choice(target, option, value, fault);
    case CONFIG_LIST: return add_text(target, option, value, fault);
    case CONFIG_STATUSES: return add_status(target, option, value, fault);
    case CONFIG_RULES: return add_rules_text(target, option, value, fault);
    case CONFIG_OWN: break;
    }
    ASSERT(option->kind != CONFIG_OWN); /* it has no variable and no flag */
    return E_MISUSE;
}

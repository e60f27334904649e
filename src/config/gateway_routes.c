/*
 * Makes the routes of a gateway from the settings as given.
 *
 * For each setting, the first of these that gives it wins: the route, a flag or variable, the
 * policy file, the section, the profile, the program's default. The result is then checked as a
 * whole.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "config/impl.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)

enum {
    ALL_METHODS =
        CONFIG_METHOD_POST | CONFIG_METHOD_PUT | CONFIG_METHOD_PATCH | CONFIG_METHOD_DELETE
};

/* The table of docs/gateway.md (Profiles). */
static const struct profile_defaults {
    unsigned methods;
    enum config_key key;
    bool key_is_uuid;
    unsigned conflict_status;
    enum config_result on_5xx; /* except 503 */
    int64_t window_ms;
} profiles[CONFIG_PROFILES] = {
    [CONFIG_PROFILE_IETF] = {ALL_METHODS, CONFIG_KEY_REQUIRED, false, 422, CONFIG_RESULT_UNKNOWN,
        24 * HOUR_MS},
    [CONFIG_PROFILE_GUARDIA] = {CONFIG_METHOD_POST | CONFIG_METHOD_PUT | CONFIG_METHOD_PATCH,
        CONFIG_KEY_REQUIRED, true, 409, CONFIG_RESULT_UNKNOWN, 24 * HOUR_MS},
    [CONFIG_PROFILE_ADR007] = {ALL_METHODS, CONFIG_KEY_GENERATED, false, 409, CONFIG_RESULT_UNKNOWN,
        24 * HOUR_MS},
    [CONFIG_PROFILE_OPS] = {ALL_METHODS, CONFIG_KEY_REQUIRED, false, 409, CONFIG_RESULT_UNKNOWN,
        48 * HOUR_MS},
    [CONFIG_PROFILE_STRIPE] = {CONFIG_METHOD_POST, CONFIG_KEY_OPTIONAL, false, 400,
        CONFIG_RESULT_SEAL, 24 * HOUR_MS},
};

/* A route that is being made. */
struct maker {
    struct config *config;
    struct config_faults *faults;
    const struct gateway_raw *raw;
    const struct route_raw *own; /* NULL: the implicit route */
    struct config_place place;   /* of the route, or of the section */
    struct config_route *route;
};

/* ---- where a setting comes from ---------------------------------------------------------- */

static size_t option_at(size_t offset)
{
    size_t i = 0;
    while ((config_gateway_options[i].in & CONFIG_IN_ROUTE) == 0 ||
           config_gateway_options[i].offset != offset) {
        i++;
        ASSERT(config_gateway_options[i].path != NULL); /* every requested member has a row */
    }
    return i;
}

/* Where the member of a route was given: in the route itself, or for all routes. */
static struct setting_source source_at(const struct maker *maker, size_t offset)
{
    size_t i = option_at(offset);
    bool is_own = maker->own != NULL && maker->own->sources[i].is_set;
    return is_own ? maker->own->sources[i] : maker->raw->section.sources[i];
}

/* Whether the route or a flag gives it: both win over a policy file. */
static bool is_own_at(const struct maker *maker, size_t offset)
{
    size_t i = option_at(offset);
    return (maker->own != NULL && maker->own->sources[i].is_set) ||
           maker->raw->section.sources[i].is_flag;
}

static struct config_place place_at(const struct maker *maker, size_t offset)
{
    struct config_place place = source_at(maker, offset).place;
    return place.line > 0 ? place : maker->place;
}

#define IS_SET(maker, member)   source_at(maker, offsetof(struct config_route, member)).is_set
#define IS_OWN(maker, member)   is_own_at(maker, offsetof(struct config_route, member))
#define PLACE_OF(maker, member) place_at(maker, offsetof(struct config_route, member))

/* Copy the section's settings that the route does not give, then those that it gives. */
static void inherit(const struct maker *maker)
{
    const struct config_option *options = config_gateway_options;
    *maker->route = maker->raw->section.route;
    for (size_t i = 0; maker->own != NULL && options[i].path != NULL; i++) {
        if (maker->own->sources[i].is_set && (options[i].in & CONFIG_IN_ROUTE) != 0) {
            value_copy(maker->route, &maker->own->route, &options[i]);
        }
    }
}

/* ---- the parts of a route ---------------------------------------------------------------- */

static enum status make_match(const struct maker *maker)
{
    struct config_route *route = maker->route;
    struct value_fault fault;
    struct slice path = SLICE_EMPTY;
    route->match = maker->own == NULL ? "(default)" : route->match;
    route->line = maker->own == NULL ? 0 : maker->own->place.line;
    route->path = "/**";
    if (maker->own == NULL) {
        return OK;
    }
    enum status status =
        value_form_match("match", slice_str(route->match), &route->methods, &path, &fault);
    ASSERT(status == OK); /* checked when it was read */
    route->path = config_text(maker->config, path);
    return route->path == NULL ? E_NOMEM : OK;
}

/* A URL has only a scheme and an authority. */
static const char *without_slash(struct config *config, const char *url)
{
    size_t len = strlen(url);
    return url[len - 1] == '/' ? config_text(config, slice_of(url, len - 1)) : url;
}

static enum status make_upstreams(const struct maker *maker)
{
    struct config_route *route = maker->route;
    struct config_place place = PLACE_OF(maker, upstreams);
    if (route->upstream_count == 0) {
        config_fault_at(maker->config, maker->faults, &place,
            "--upstream http://127.0.0.1:3000, or upstream: of the gateway or route in the file",
            "%s has no upstream", maker->own == NULL ? "the gateway" : "the route");
    }
    size_t tls = 0;
    for (size_t i = 0; i < route->upstream_count; i++) {
        tls += slice_starts(slice_str(route->upstreams[i]), SLICE_LIT("https:"));
        route->upstreams[i] = without_slash(maker->config, route->upstreams[i]);
        if (route->upstreams[i] == NULL) {
            return E_NOMEM;
        }
    }
    if (tls > 0 && tls < route->upstream_count) {
        config_fault_at(maker->config, maker->faults, &place, "all of http, or all of https",
            "the upstreams of one route are of two schemes");
    }
    return OK;
}

/* ---- results ----------------------------------------------------------------------------- */

/* NULL: the route has no rule for that status or class. */
static const struct config_rule *rule_find(const struct config_route *route, unsigned status)
{
    for (size_t i = 0; i < route->on_status_count; i++) {
        if (route->on_status[i].status == status) {
            return &route->on_status[i];
        }
    }
    return NULL;
}

enum config_result config_result(const struct config_route *route, unsigned status)
{
    const struct config_rule *rule = rule_find(route, status);
    rule = rule == NULL ? rule_find(route, status / 100) : rule;
    return rule == NULL ? CONFIG_RESULT_UNKNOWN : (enum config_result)rule->result;
}

/*
 * Add the defaults after the given rules, except those that a given rule covers: {5xx: unknown} is
 * meant for 503 too. 408, 425, 429 and 503 say that the request was not processed (RFC 9110
 * sections 15.5.9 and 15.6.4, RFC 8470, RFC 6585); replaying them for a day would block a key for a
 * passing reason. Any other 5xx does not say whether anything was done.
 */
static void make_results(struct config_route *route, enum config_result on_5xx)
{
    const struct config_rule usual[CONFIG_RULES_DEFAULT] = {{408, CONFIG_RESULT_RELEASE},
        {425, CONFIG_RESULT_RELEASE}, {429, CONFIG_RESULT_RELEASE}, {503, CONFIG_RESULT_RELEASE},
        {2, CONFIG_RESULT_SEAL}, {3, CONFIG_RESULT_SEAL}, {4, CONFIG_RESULT_SEAL},
        {5, (uint16_t)on_5xx}};
    for (size_t i = 0; i < CONFIG_RULES_DEFAULT; i++) { /* statuses first: then a class was given */
        if (rule_find(route, usual[i].status) == NULL &&
            rule_find(route, usual[i].status / 100u) == NULL) {
            ASSERT(route->on_status_count < CONFIG_RULES_MAX);
            route->on_status[route->on_status_count++] = usual[i];
        }
    }
}

/* ---- keys -------------------------------------------------------------------------------- */

/* A key is stored and shown; a redacted value must be neither. */
static void check_redacted(const struct maker *maker)
{
    const struct config_route *route = maker->route;
    struct config_place place = PLACE_OF(maker, key_text);
    for (size_t i = 0; route->key == CONFIG_KEY_JSON && i < route->redact_count; i++) {
        size_t len = strlen(route->redact[i]);
        if (strncmp(route->key_name, route->redact[i], len) == 0 &&
            (route->key_name[len] == '\0' || route->key_name[len] == '/')) {
            config_fault_at(maker->config, maker->faults, &place,
                "take a different member for the key",
                "the key '%s' is redacted, and a key is kept", route->key_name);
        }
    }
}

/* Use the given key unless a policy file wins, else the profile's. */
static enum status make_key(const struct maker *maker)
{
    static const char *const texts[] = {[CONFIG_KEY_REQUIRED] = "required",
        [CONFIG_KEY_GENERATED] = "generated",
        [CONFIG_KEY_OPTIONAL] = "optional"};
    struct config_route *route = maker->route;
    struct slice name = SLICE_EMPTY;
    if (maker->raw->policy.needs_key && !IS_OWN(maker, key_text)) {
        route->key_text = texts[CONFIG_KEY_REQUIRED];
    } else if (!IS_SET(maker, key_text)) {
        route->key_text = texts[profiles[route->profile].key];
    }
    bool is_good = value_form_key(slice_str(route->key_text), &route->key, &name);
    ASSERT(is_good); /* checked when it was read */
    route->key_name = name.len == 0 ? NULL : config_text(maker->config, name);
    if (name.len > 0 && route->key_name == NULL) {
        return E_NOMEM;
    }
    route->key_is_uuid = profiles[route->profile].key_is_uuid && route->key_name == NULL;
    check_redacted(maker);
    return OK;
}

/* ---- profiles ---------------------------------------------------------------------------- */

/* Use the profile's values where nothing was given; the policy file wins over the section. */
static void make_profile(const struct maker *maker)
{
    const struct policy_raw *policy = &maker->raw->policy;
    struct config_route *route = maker->route;
    if (policy->is_here && !IS_OWN(maker, profile)) {
        route->profile = CONFIG_PROFILE_OPS;
    }
    const struct profile_defaults *profile = &profiles[route->profile];
    route->fenced = route->methods == 0 ? profile->methods : route->methods;
    make_results(route, profile->on_5xx);
    route->conflict_status =
        policy->conflict_status > 0 ? policy->conflict_status : profile->conflict_status;
    route->conflict_diff = policy->has_diff ? policy->diff : true;
}

/* ---- windows ----------------------------------------------------------------------------- */

/* The given window, or the default of its kind; *ret_policy: the policy file's line that gives it,
 * or 0. */
static int64_t window_of(const struct maker *maker, unsigned *ret_policy)
{
    const struct policy_raw *policy = &maker->raw->policy;
    enum config_retention kind = maker->route->retention;
    bool is_policy = policy->window_ms[kind] > 0 && !IS_OWN(maker, window_ms);
    *ret_policy = is_policy ? policy->line[kind] : 0;
    if (is_policy) {
        return policy->window_ms[kind];
    }
    if (IS_SET(maker, window_ms)) {
        return maker->route->window_ms;
    }
    return kind == CONFIG_RETENTION_WEBHOOK ? 14 * DAY_MS
           : kind == CONFIG_RETENTION_BATCH ? 3 * DAY_MS
                                            : profiles[maker->route->profile].window_ms;
}

static void check_window(
    const struct maker *maker, unsigned policy, int64_t least, int64_t most, const char *why)
{
    char window[32];
    char bound[32];
    char from[64] = "";
    int64_t ms = maker->route->window_ms;
    struct config_place place = policy > 0 ? maker->place : PLACE_OF(maker, window_ms);
    if (policy > 0) {
        (void)snprintf(from, sizeof from, " (line %u of the policy file)", policy);
    }
    if (ms < least || ms > most) {
        config_fault_at(maker->config, maker->faults, &place,
            "give the route a window that fits, or a different profile or kind",
            "a window of %s%s is %s than %s: %s", text_put_duration(window, ms), from,
            ms < least ? "less" : "more", text_put_duration(bound, ms < least ? least : most), why);
    }
}

static void make_window(const struct maker *maker)
{
    unsigned policy = 0;
    struct config_route *route = maker->route;
    route->window_ms = window_of(maker, &policy);
    if (route->profile == CONFIG_PROFILE_GUARDIA) {
        check_window(maker, policy, 2 * HOUR_MS, 24 * HOUR_MS, "guardia keeps keys for 2h to 24h");
    } else if (route->retention == CONFIG_RETENTION_WEBHOOK) {
        check_window(
            maker, policy, 7 * DAY_MS, INT64_MAX, "senders of webhooks repeat them for days");
    } else if (route->profile == CONFIG_PROFILE_OPS && route->retention == CONFIG_RETENTION_API) {
        check_window(
            maker, policy, 24 * HOUR_MS, 72 * HOUR_MS, "ops keeps API writes for 24h to 72h");
    }
}

/* ---- the rest of a route ----------------------------------------------------------------- */

static enum status make_principal(const struct maker *maker)
{
    struct config_route *route = maker->route;
    struct slice name = SLICE_EMPTY;
    bool is_good = value_form_principal(slice_str(route->principal_text), &route->principal, &name);
    ASSERT(is_good); /* checked when it was read */
    route->principal_name = name.len == 0 ? NULL : config_text(maker->config, name);
    bool has_jwt = IS_SET(maker, jwt.alg) && IS_SET(maker, jwt.key_file);
    if (route->principal == CONFIG_PRINCIPAL_JWT && !has_jwt) {
        struct config_place place = PLACE_OF(maker, principal_text);
        config_fault_at(maker->config, maker->faults, &place,
            "jwt: {alg: RS256, key_file: /etc/once/jwt.pem}",
            "principal '%s' needs %s: a claim counts only of a token that was verified",
            route->principal_text,
            IS_SET(maker, jwt.alg) ? "jwt.key_file" : "jwt.alg and jwt.key_file");
    }
    return name.len > 0 && route->principal_name == NULL ? E_NOMEM : OK;
}

static void check_cors(const struct maker *maker)
{
    const struct config_route *route = maker->route;
    for (size_t i = 0; route->cors_credentials && i < route->cors_origin_count; i++) {
        if (strcmp(route->cors_origins[i], "*") == 0) {
            struct config_place place = PLACE_OF(maker, cors_origins);
            config_fault_at(maker->config, maker->faults, &place, "name the origins",
                "cors.origins \"*\" with cors.credentials would show every page what its visitor "
                "may read");
        }
    }
}

static void check_reconcile(const struct maker *maker)
{
    const struct config_reconcile *reconcile = &maker->route->reconcile;
    if (reconcile->get == NULL && maker->route->on_unknown == CONFIG_UNKNOWN_RECONCILE) {
        struct config_place place = PLACE_OF(maker, on_unknown);
        config_fault_at(maker->config, maker->faults, &place,
            "reconcile: {get: \"/v1/payments/by-key/{key}\", executed: [200], not_executed: [404]}",
            "on_unknown: reconcile needs reconcile.get: there is nothing to ask");
    }
    for (size_t i = 0; i < reconcile->executed_count; i++) {
        for (size_t k = 0; k < reconcile->not_executed_count; k++) {
            if (reconcile->executed[i] == reconcile->not_executed[k]) {
                struct config_place place = PLACE_OF(maker, reconcile.not_executed);
                config_fault_at(maker->config, maker->faults, &place, NULL,
                    "%u means both that it was executed and that it was not",
                    reconcile->executed[i]);
            }
        }
    }
    if (reconcile->get != NULL && reconcile->executed_count + reconcile->not_executed_count == 0) {
        struct config_place place = PLACE_OF(maker, reconcile.executed);
        config_fault_at(maker->config, maker->faults, &place, "executed: [200]",
            "no answer of reconcile.get settles anything");
    }
    if (reconcile->every_ms > reconcile->every_ms_max) {
        struct config_place place = PLACE_OF(maker, reconcile.every_ms);
        config_fault_at(maker->config, maker->faults, &place, NULL,
            "reconcile.every is more than reconcile.every_max");
    }
}

/* Set the limits that were not given from other settings. */
static void make_limits(const struct maker *maker)
{
    const struct config *config = maker->config;
    struct config_route *route = maker->route;
    if (!IS_SET(maker, reconcile.quiet_ms)) {
        route->reconcile.quiet_ms = route->total_ms;
    }
    if (!IS_SET(maker, replay_headers)) {
        route->replay_headers[0] = "*";
        route->replay_header_count = 1;
    }
    if (!IS_SET(maker, body_bytes_max)) {
        route->body_bytes_max = config->body_bytes_max;
    }
    if (!IS_SET(maker, outcome_bytes_max)) {
        route->outcome_bytes_max = config->outcome_bytes_max;
    }
    if (!IS_SET(maker, duplicate_rate)) {
        route->duplicate_rate = config->duplicate_rate;
    }
    if (!IS_SET(maker, duplicate_burst)) {
        route->duplicate_burst = config->duplicate_burst;
    }
}

static enum status make_route(const struct maker *maker)
{
    inherit(maker);
    enum status status = make_match(maker);
    if (status != OK) {
        return status;
    }
    status = make_upstreams(maker);
    if (status != OK) {
        return status;
    }
    status = make_principal(maker);
    if (status != OK) {
        return status;
    }
    make_profile(maker);
    status = make_key(maker);
    if (status != OK) {
        return status;
    }
    make_window(maker);
    make_limits(maker);
    check_cors(maker);
    check_reconcile(maker);
    return OK;
}

/* ---- all of them ------------------------------------------------------------------------- */

/* Whether one glob matches every path of a different one: the same, or below "/v1/" and two
 * stars. */
static bool covers(const char *wide, const char *path)
{
    size_t len = strlen(wide);
    if (strcmp(wide, path) == 0) {
        return true;
    }
    if (len < 3 || strcmp(wide + len - 3, "/**") != 0) {
        return false;
    }
    len -= 3;
    return memchr(wide, '*', len) == NULL && strncmp(wide, path, len) == 0 &&
           (path[len] == '/' || path[len] == '\0');
}

static void check_covered(const struct maker *maker, const struct config_route *routes)
{
    const struct config_route *route = maker->route;
    struct config_place place = PLACE_OF(maker, match);
    for (const struct config_route *other = routes; other < route; other++) {
        bool is_same = other->methods == route->methods && strcmp(other->path, route->path) == 0;
        unsigned left = route->methods & ~other->methods;
        if (is_same) {
            config_fault_at(maker->config, maker->faults, &place,
                "put the settings of both into one", "the same match as the route in line %u",
                other->line);
            return;
        }
        if (covers(other->path, route->path) &&
            (other->methods == 0 || (route->methods != 0 && left == 0))) {
            config_fault_at(maker->config, maker->faults, &place,
                "put it in front of that one: the first match wins",
                "never reached: the route in line %u, '%s', matches all of it", other->line,
                other->match);
            return;
        }
    }
}

static enum status make_routes(struct maker *maker)
{
    struct config_gateway *gateway = &maker->config->gateway;
    size_t count = maker->raw->route_count == 0 ? 1 : maker->raw->route_count;
    /* One more, for requests that no route matches. */
    struct config_route *routes =
        arena_zalloc(&maker->config->arena, (count + 1) * sizeof(struct config_route));
    enum status status = routes == NULL ? E_NOMEM : OK;
    for (size_t i = 0; status == OK && i < count; i++) {
        maker->own = maker->raw->route_count == 0 ? NULL : &maker->raw->routes[i];
        maker->place = maker->own == NULL ? maker->raw->section.place : maker->own->place;
        maker->route = &routes[i];
        status = make_route(maker);
        if (status == OK) {
            check_covered(maker, routes);
        }
    }
    gateway->routes = routes;
    gateway->route_count = count;
    return status;
}

/* Requests pass through to the section's upstream, else to the first route's. */
static enum status make_otherwise(struct maker *maker)
{
    struct config_gateway *gateway = &maker->config->gateway;
    struct config_route *otherwise = arena_alloc(&maker->config->arena, sizeof *otherwise);
    struct config_faults unheard = {.count = 0}; /* already reported for the routes in use */
    if (otherwise == NULL) {
        return E_NOMEM;
    }
    *otherwise = gateway->routes[0];
    if (maker->raw->section.route.upstream_count > 0) {
        struct maker own = {
            .config = maker->config, .faults = &unheard, .raw = maker->raw, .route = otherwise};
        enum status status = make_route(&own);
        if (status != OK) {
            return status;
        }
    }
    otherwise->match = "(no route)";
    otherwise->path = "/**";
    otherwise->methods = 0;
    otherwise->fenced = 0;
    otherwise->line = 0;
    gateway->otherwise = otherwise->upstream_count == 0 ? NULL : otherwise;
    return OK;
}

/* Where a setting of the whole gateway was given. */
static struct config_place section_place(const struct maker *maker, const char *path)
{
    return maker->raw->section.sources[config_option_find(path) - config_gateway_options].place;
}

static void check_tls(const struct maker *maker)
{
    const struct config_gateway *gateway = &maker->config->gateway;
    if ((gateway->tls_cert == NULL) != (gateway->tls_key == NULL)) {
        bool is_key = gateway->tls_cert == NULL;
        struct config_place place =
            section_place(maker, is_key ? "gateway.tls.key" : "gateway.tls.cert");
        config_fault_at(maker->config, maker->faults, &place, "set both or neither",
            "gateway.tls.%s is set and gateway.tls.%s is not", is_key ? "key" : "cert",
            is_key ? "cert" : "key");
    }
}

enum status gateway_routes_make(struct config *config, struct config_faults *faults)
{
    size_t first = faults->count;
    struct maker maker = {.config = config, .faults = faults, .raw = config->raw};
    check_tls(&maker);
    if (config->raw->policy.needs_log && !config->log_decisions) {
        struct config_fault fault = {.hint = "leave log.decisions at true"};
        config_fault_add(config, faults, &fault,
            "the policy file wants decisions in the log, and log.decisions is false");
    }
    enum status status = make_routes(&maker);
    if (status == OK) {
        status = make_otherwise(&maker);
    }
    faults_sort(faults, first);
    return status;
}

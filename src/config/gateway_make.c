/*
 * The routes of a gateway, out of all that was said of them.
 *
 * Of each setting the first that says something wins: the route, a flag or variable, the policy
 * file, the section, the profile, the program. What came out is then checked as a whole.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "config/impl.h"

enum { TEXT_BYTES_MAX = 400 };
#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)

enum {
    ALL_METHODS =
        CONFIG_METHOD_POST | CONFIG_METHOD_PUT | CONFIG_METHOD_PATCH | CONFIG_METHOD_DELETE
};

/* DESIGN section 9's table. */
static const struct manners {
    unsigned methods;
    enum config_key key;
    bool key_is_uuid;
    unsigned conflict_status;
    enum config_on_5xx on_5xx;
    int64_t window_ms;
} profiles[CONFIG_PROFILES] = {
    [CONFIG_PROFILE_IETF] = {ALL_METHODS, CONFIG_KEY_REQUIRED, false, 422, CONFIG_5XX_RELEASE,
        24 * HOUR_MS},
    [CONFIG_PROFILE_GUARDIA] = {CONFIG_METHOD_POST | CONFIG_METHOD_PUT | CONFIG_METHOD_PATCH,
        CONFIG_KEY_REQUIRED, true, 409, CONFIG_5XX_RELEASE, 24 * HOUR_MS},
    [CONFIG_PROFILE_ADR007] = {ALL_METHODS, CONFIG_KEY_GENERATED, false, 409, CONFIG_5XX_RELEASE,
        24 * HOUR_MS},
    [CONFIG_PROFILE_OPS] = {ALL_METHODS, CONFIG_KEY_REQUIRED, false, 409, CONFIG_5XX_RELEASE,
        48 * HOUR_MS},
    [CONFIG_PROFILE_STRIPE] = {CONFIG_METHOD_POST, CONFIG_KEY_OPTIONAL, false, 400, CONFIG_5XX_SEAL,
        24 * HOUR_MS},
};

/* A route being made. */
struct maker {
    struct config *config;
    struct config_faults *faults;
    const struct gateway_said *said;
    const struct route_said *own; /* NULL: the implicit one */
    struct config_place place;    /* of the route, or of the section */
    struct config_route *route;
};

static void refuse(const struct maker *maker, const struct config_place *place, const char *hint,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

static void refuse(const struct maker *maker, const struct config_place *place, const char *hint,
    const char *format, ...)
{
    char text[TEXT_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    config_fault_at(maker->config, maker->faults, place, hint, text);
}

/* ---- who says it ------------------------------------------------------------------------- */

/* Who says something of a setting: the route itself, or all; what is not said is a default. */
static const struct route_said *teller(const struct maker *maker, enum setting which)
{
    return maker->own != NULL && maker->own->at[which].is_set ? maker->own : &maker->said->all;
}

static bool is_said(const struct maker *maker, enum setting which)
{
    return teller(maker, which)->at[which].is_set;
}

/* The route or a flag says it, which a policy file does not win over. */
static bool is_said_here(const struct maker *maker, enum setting which)
{
    const struct route_said *who = teller(maker, which);
    return who->at[which].is_set && (who == maker->own || who->at[which].is_flag);
}

static struct config_place place_of(const struct maker *maker, enum setting which)
{
    struct config_place place = teller(maker, which)->at[which].place;
    return place.line > 0 ? place : maker->place;
}

/* Texts of a list; those of one kind are bounded when they are read. */
static size_t take_list(const struct config_list *list, const char **ret_texts, size_t max)
{
    ASSERT(list->count <= max);
    for (size_t i = 0; i < list->count; i++) {
        ret_texts[i] = list->items[i].text;
    }
    return list->count;
}

#define TAKE_LIST(maker, which, list, texts)                                                       \
    take_list(&teller(maker, which)->list, texts, sizeof(texts) / sizeof(texts)[0])

/* ---- the parts of a route ---------------------------------------------------------------- */

static enum status make_match(const struct maker *maker)
{
    struct config_route *route = maker->route;
    struct value_fault fault;
    struct slice path = SLICE_EMPTY;
    route->match = maker->own == NULL ? "(default)" : maker->own->match;
    route->line = maker->own == NULL ? 0 : maker->own->place.line;
    route->path = "/**";
    if (maker->own == NULL) {
        return OK;
    }
    enum status status =
        form_match("match", slice_str(route->match), &route->methods, &path, &fault);
    ASSERT(status == OK); /* it was when it was read */
    route->path = config_text(maker->config, path);
    return route->path == NULL ? E_NOMEM : OK;
}

/* A URL has no more than a scheme and an authority. */
static const char *without_slash(struct config *config, const char *url)
{
    size_t len = strlen(url);
    return url[len - 1] == '/' ? config_text(config, slice_of(url, len - 1)) : url;
}

static enum status make_upstreams(const struct maker *maker)
{
    struct config_route *route = maker->route;
    struct config_place place = place_of(maker, SETTING_UPSTREAM);
    route->ca_file = teller(maker, SETTING_CA_FILE)->ca_file;
    route->upstream_count = TAKE_LIST(maker, SETTING_UPSTREAM, upstream, route->upstreams);
    if (route->upstream_count == 0) {
        refuse(maker, &place, "upstream: http://127.0.0.1:3000, of the route or of the gateway",
            "%s has no upstream", maker->own == NULL ? "the gateway" : "the route");
    }
    size_t tls = 0;
    for (size_t i = 0; i < route->upstream_count; i++) {
        tls += strncmp(route->upstreams[i], "https:", 6) == 0;
        route->upstreams[i] = without_slash(maker->config, route->upstreams[i]);
        if (route->upstreams[i] == NULL) {
            return E_NOMEM;
        }
    }
    if (tls > 0 && tls < route->upstream_count) {
        refuse(maker, &place, "all of http, or all of https",
            "the upstreams of one route are of two schemes");
    }
    return OK;
}

static void make_manners(const struct maker *maker)
{
    const struct policy_said *policy = &maker->said->policy;
    struct config_route *route = maker->route;
    route->profile = (enum config_profile)teller(maker, SETTING_PROFILE)->profile;
    if (policy->is_here && !is_said_here(maker, SETTING_PROFILE)) {
        route->profile = CONFIG_PROFILE_OPS;
    }
    const struct manners *manners = &profiles[route->profile];
    route->fenced = route->methods == 0 ? manners->methods : route->methods;
    route->key_is_uuid = manners->key_is_uuid;
    route->key = is_said(maker, SETTING_KEY) ? (enum config_key)teller(maker, SETTING_KEY)->key
                                             : manners->key;
    if (policy->needs_key && !is_said_here(maker, SETTING_KEY)) {
        route->key = CONFIG_KEY_REQUIRED;
    }
    route->on_5xx = is_said(maker, SETTING_ON_5XX)
                        ? (enum config_on_5xx)teller(maker, SETTING_ON_5XX)->on_5xx
                        : manners->on_5xx;
    route->conflict_status =
        policy->conflict_status > 0 ? policy->conflict_status : manners->conflict_status;
    route->conflict_diff = policy->has_diff ? policy->diff : true;
}

/* ---- windows ----------------------------------------------------------------------------- */

/* What was said or holds by kind; *ret_policy: the line of the policy file that says it, or 0. */
static int64_t window_of(const struct maker *maker, unsigned *ret_policy)
{
    const struct policy_said *policy = &maker->said->policy;
    enum config_retention kind = maker->route->retention;
    bool is_policy = policy->window_ms[kind] > 0 && !is_said_here(maker, SETTING_WINDOW);
    *ret_policy = is_policy ? policy->line[kind] : 0;
    if (is_policy) {
        return policy->window_ms[kind];
    }
    if (is_said(maker, SETTING_WINDOW)) {
        return teller(maker, SETTING_WINDOW)->window_ms;
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
    struct config_place place = policy > 0 ? maker->place : place_of(maker, SETTING_WINDOW);
    if (policy > 0) {
        (void)snprintf(from, sizeof from, " (line %u of the policy file)", policy);
    }
    if (ms < least || ms > most) {
        refuse(maker, &place, "give the route a window that fits, or another profile or kind",
            "a window of %s%s is %s than %s: %s", text_put_duration(window, ms), from,
            ms < least ? "less" : "more", text_put_duration(bound, ms < least ? least : most), why);
    }
}

static void make_window(const struct maker *maker)
{
    unsigned policy = 0;
    struct config_route *route = maker->route;
    route->retention = (enum config_retention)teller(maker, SETTING_KIND)->kind;
    route->window_ms = window_of(maker, &policy);
    if (route->profile == CONFIG_PROFILE_GUARDIA) {
        check_window(
            maker, policy, 2 * HOUR_MS, 24 * HOUR_MS, "guardia keeps keys for 2h to 24h (GRD-3)");
    } else if (route->retention == CONFIG_RETENTION_WEBHOOK) {
        check_window(maker, policy, 7 * DAY_MS, INT64_MAX,
            "senders of webhooks repeat them for days (OPS-5)");
    } else if (route->profile == CONFIG_PROFILE_OPS && route->retention == CONFIG_RETENTION_API) {
        check_window(maker, policy, 24 * HOUR_MS, 72 * HOUR_MS,
            "ops keeps API writes for 24h to 72h (OPS-5)");
    }
}

/* ---- the rest of a route ----------------------------------------------------------------- */

static enum status make_principal(const struct maker *maker)
{
    struct config_route *route = maker->route;
    struct slice name = SLICE_EMPTY;
    bool is_good = form_principal(
        slice_str(teller(maker, SETTING_PRINCIPAL)->principal), &route->principal, &name);
    ASSERT(is_good); /* it was when it was read */
    route->principal_name = name.len == 0 ? NULL : config_text(maker->config, name);
    route->jwt =
        (struct config_jwt){.alg = (enum config_jwt_alg)teller(maker, SETTING_JWT_ALG)->jwt_alg,
            .key_file = teller(maker, SETTING_JWT_KEY_FILE)->jwt_key_file,
            .issuer = teller(maker, SETTING_JWT_ISSUER)->jwt_issuer,
            .audience = teller(maker, SETTING_JWT_AUDIENCE)->jwt_audience};
    bool has_jwt = is_said(maker, SETTING_JWT_ALG) && is_said(maker, SETTING_JWT_KEY_FILE);
    if (route->principal == CONFIG_PRINCIPAL_JWT && !has_jwt) {
        struct config_place place = place_of(maker, SETTING_PRINCIPAL);
        refuse(maker, &place, "jwt: {alg: RS256, key_file: /etc/once/jwt.pem}",
            "principal '%s' needs %s: a claim counts only of a token that was verified",
            teller(maker, SETTING_PRINCIPAL)->principal,
            is_said(maker, SETTING_JWT_ALG) ? "jwt.key_file" : "jwt.alg and jwt.key_file");
    }
    return name.len > 0 && route->principal_name == NULL ? E_NOMEM : OK;
}

static size_t take_statuses(const struct config_list *list, uint16_t ret_statuses[])
{
    for (size_t i = 0; i < list->count; i++) {
        uint64_t status = 0;
        bool is_good = text_u64(slice_str(list->items[i].text), &status);
        ASSERT(is_good && list->count <= CONFIG_STATUSES_MAX);
        ret_statuses[i] = (uint16_t)status;
    }
    return list->count;
}

static void check_reconcile(const struct maker *maker)
{
    const struct config_reconcile *reconcile = &maker->route->reconcile;
    if (reconcile->get == NULL && maker->route->on_unknown == CONFIG_UNKNOWN_RECONCILE) {
        struct config_place place = place_of(maker, SETTING_ON_UNKNOWN);
        refuse(maker, &place,
            "reconcile: {get: \"/v1/payments/by-key/{key}\", executed: [200], not_executed: [404]}",
            "on_unknown: reconcile needs reconcile.get: there is nothing to ask");
    }
    for (size_t i = 0; i < reconcile->executed_count; i++) {
        for (size_t k = 0; k < reconcile->not_executed_count; k++) {
            if (reconcile->executed[i] == reconcile->not_executed[k]) {
                struct config_place place = place_of(maker, SETTING_RECONCILE_NOT_EXECUTED);
                refuse(maker, &place, NULL,
                    "%u means both that it was executed and that it was not",
                    reconcile->executed[i]);
            }
        }
    }
    if (reconcile->get != NULL && reconcile->executed_count + reconcile->not_executed_count == 0) {
        struct config_place place = place_of(maker, SETTING_RECONCILE_EXECUTED);
        refuse(maker, &place, "executed: [200]", "no answer of reconcile.get settles anything");
    }
    if (reconcile->every_ms > reconcile->every_ms_max) {
        struct config_place place = place_of(maker, SETTING_RECONCILE_EVERY);
        refuse(maker, &place, NULL, "reconcile.every is more than reconcile.every_max");
    }
}

static void make_reconcile(const struct maker *maker)
{
    struct config_reconcile *reconcile = &maker->route->reconcile;
    const struct route_said *quiet = teller(maker, SETTING_RECONCILE_QUIET);
    maker->route->on_unknown =
        (enum config_on_unknown)teller(maker, SETTING_ON_UNKNOWN)->on_unknown;
    *reconcile =
        (struct config_reconcile){.get = teller(maker, SETTING_RECONCILE_GET)->reconcile_get,
            .authorization_file =
                teller(maker, SETTING_RECONCILE_AUTHORIZATION_FILE)->authorization_file,
            .every_ms = teller(maker, SETTING_RECONCILE_EVERY)->every_ms,
            .every_ms_max = teller(maker, SETTING_RECONCILE_EVERY_MAX)->every_ms_max,
            .quiet_ms = quiet->at[SETTING_RECONCILE_QUIET].is_set
                            ? quiet->quiet_ms
                            : teller(maker, SETTING_TIMEOUT_TOTAL)->total_ms};
    reconcile->executed_count =
        take_statuses(&teller(maker, SETTING_RECONCILE_EXECUTED)->executed, reconcile->executed);
    reconcile->not_executed_count = take_statuses(
        &teller(maker, SETTING_RECONCILE_NOT_EXECUTED)->not_executed, reconcile->not_executed);
    check_reconcile(maker);
}

static void make_limits(const struct maker *maker)
{
    const struct config *config = maker->config;
    struct config_route *route = maker->route;
    route->lease_ms = teller(maker, SETTING_LEASE)->lease_ms;
    route->wait_ms_max = teller(maker, SETTING_WAIT)->wait_ms;
    route->connect_ms = teller(maker, SETTING_TIMEOUT_CONNECT)->connect_ms;
    route->first_byte_ms = teller(maker, SETTING_TIMEOUT_FIRST_BYTE)->first_byte_ms;
    route->total_ms = teller(maker, SETTING_TIMEOUT_TOTAL)->total_ms;
    route->body_bytes_max = is_said(maker, SETTING_LIMITS_BODY_BYTES_MAX)
                                ? teller(maker, SETTING_LIMITS_BODY_BYTES_MAX)->body_bytes_max
                                : config->body_bytes_max;
    route->outcome_bytes_max =
        is_said(maker, SETTING_LIMITS_OUTCOME_BYTES_MAX)
            ? teller(maker, SETTING_LIMITS_OUTCOME_BYTES_MAX)->outcome_bytes_max
            : config->outcome_bytes_max;
    route->duplicate_rate = is_said(maker, SETTING_LIMITS_DUPLICATE_RATE)
                                ? teller(maker, SETTING_LIMITS_DUPLICATE_RATE)->duplicate_rate
                                : config->duplicate_rate;
    route->duplicate_burst = is_said(maker, SETTING_LIMITS_DUPLICATE_BURST)
                                 ? teller(maker, SETTING_LIMITS_DUPLICATE_BURST)->duplicate_burst
                                 : config->duplicate_burst;
}

static enum status make_route(const struct maker *maker)
{
    struct config_route *route = maker->route;
    enum status status = make_match(maker);
    status = status == OK ? make_upstreams(maker) : status;
    status = status == OK ? make_principal(maker) : status;
    if (status != OK) {
        return status;
    }
    route->tenant = teller(maker, SETTING_TENANT)->tenant;
    make_manners(maker);
    make_window(maker);
    make_reconcile(maker);
    make_limits(maker);
    route->ignore_count = TAKE_LIST(maker, SETTING_IGNORE, ignore, route->ignore);
    route->redact_count = TAKE_LIST(maker, SETTING_REDACT, redact, route->redact);
    route->replay_header_count =
        TAKE_LIST(maker, SETTING_REPLAY_HEADERS, replay_headers, route->replay_headers);
    return OK;
}

/* ---- all of them ------------------------------------------------------------------------- */

/* Whether every path of one glob is one of another: the same, or below "/v1/" and two stars. */
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
    struct config_place place = place_of(maker, SETTING_MATCH);
    for (const struct config_route *other = routes; other < route; other++) {
        bool is_same = other->methods == route->methods && strcmp(other->path, route->path) == 0;
        unsigned left = route->methods & ~other->methods;
        if (is_same) {
            refuse(maker, &place, "put the settings of both into one",
                "the same match as the route in line %u", other->line);
            return;
        }
        if (covers(other->path, route->path) &&
            (other->methods == 0 || (route->methods != 0 && left == 0))) {
            refuse(maker, &place, "put it in front of that one: the first match wins",
                "never reached: the route in line %u, '%s', matches all of it", other->line,
                other->match);
            return;
        }
    }
}

static enum status make_routes(struct maker *maker)
{
    struct config_gateway *gateway = &maker->config->gateway;
    size_t count = maker->said->route_count == 0 ? 1 : maker->said->route_count;
    /* One more: what no route matches. */
    struct config_route *routes =
        arena_zalloc(&maker->config->arena, (count + 1) * sizeof(struct config_route));
    enum status status = routes == NULL ? E_NOMEM : OK;
    for (size_t i = 0; status == OK && i < count; i++) {
        maker->own = maker->said->route_count == 0 ? NULL : &maker->said->routes[i];
        maker->place = maker->own == NULL ? maker->said->place : maker->own->place;
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

/* Passed through to the section's upstream, else to that of the first route. */
static enum status make_otherwise(struct maker *maker)
{
    struct config_gateway *gateway = &maker->config->gateway;
    struct config_route *otherwise = arena_alloc(&maker->config->arena, sizeof *otherwise);
    struct config_faults unheard = {.count = 0}; /* told of the routes that are used */
    if (otherwise == NULL) {
        return E_NOMEM;
    }
    *otherwise = gateway->routes[0];
    if (maker->said->all.upstream.count > 0) {
        struct maker own = {.config = maker->config,
            .faults = &unheard,
            .said = maker->said,
            .route = memset(otherwise, 0, sizeof *otherwise)};
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

static void make_doors(const struct maker *maker)
{
    const struct gateway_said *said = maker->said;
    struct config_gateway *gateway = &maker->config->gateway;
    gateway->listen_count = take_list(&said->listen, gateway->listen, CONFIG_GATEWAY_LISTEN_MAX);
    gateway->tls_cert = said->tls_cert;
    gateway->tls_key = said->tls_key;
    gateway->spool_dir = said->spool_dir;
    gateway->spool_memory_bytes = said->spool_memory_bytes;
    gateway->spool_bytes_max = said->spool_bytes_max;
    gateway->connections_max = said->connections_max;
    gateway->idle_ms_max = said->idle_ms;
    if ((said->tls_cert == NULL) != (said->tls_key == NULL)) {
        bool is_key = said->tls_cert == NULL;
        struct config_place place = said->all.at[is_key ? SETTING_TLS_KEY : SETTING_TLS_CERT].place;
        refuse(maker, &place, "set both, or none of them",
            "gateway.tls.%s is set and gateway.tls.%s is not", is_key ? "key" : "cert",
            is_key ? "cert" : "key");
    }
}

enum status gateway_make(struct config *config, struct config_faults *faults)
{
    size_t first = faults->count;
    struct maker maker = {.config = config, .faults = faults, .said = config->said};
    make_doors(&maker);
    if (config->said->policy.needs_log && !config->log_decisions) {
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

/* ---- changes ----------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

const char *gateway_needs_restart(
    const struct config_gateway *old, const struct config_gateway *new)
{
    bool same_listen = old->is_on == new->is_on && old->listen_count == new->listen_count;
    for (size_t i = 0; same_listen && i < old->listen_count; i++) {
        same_listen = same_text(old->listen[i], new->listen[i]);
    }
    return !same_listen                                 ? "gateway.listen"
           : !same_text(old->tls_cert, new->tls_cert)   ? "gateway.tls.cert"
           : !same_text(old->tls_key, new->tls_key)     ? "gateway.tls.key"
           : !same_text(old->spool_dir, new->spool_dir) ? "gateway.spool_dir"
                                                        : NULL;
}

/* What a configuration comes to for the gateway, and what a policy file means: on paper. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"
#include "cli/out.h"
#include "cli/serve_config.h"

static const char *const keys[] = {"required", "generated", "optional"};
static const char *const kinds[] = {"api", "webhook", "batch"};
static const char *const on_5xx[] = {"release", "seal", "unknown"};
static const char *const on_unknown[] = {"hold", "takeover", "reconcile"};
static const char *const algs[] = {"HS256", "RS256", "ES256"};
static const char *const principals[] = {"authorization", "header", "jwt", "none"};

static const struct {
    unsigned bit;
    const char *name;
} methods[] = {{CONFIG_METHOD_POST, "POST"}, {CONFIG_METHOD_PUT, "PUT"},
    {CONFIG_METHOD_PATCH, "PATCH"}, {CONFIG_METHOD_DELETE, "DELETE"}};
enum { METHODS = COUNT(methods) };

static const char *profile_name(enum config_profile profile)
{
    return config_option_find("gateway.profile")->choices[profile];
}

/* ---- for people -------------------------------------------------------------------------- */

static void text_upstreams(const struct config_route *route)
{
    for (size_t i = 0; i < route->upstream_count; i++) {
        out_text("%s%s", i == 0 ? " -> " : ", ", route->upstreams[i]);
    }
}

static void text_route(const struct config_route *route)
{
    char window[32];
    out_text("%-8s%s", "route", route->match);
    text_upstreams(route);
    out_text("\n%-8s%s, window %s, key %s%s, fences", "", profile_name(route->profile),
        text_put_duration(window, route->window_ms), keys[route->key],
        route->key_is_uuid ? " (a UUID)" : "");
    for (size_t i = 0; i < METHODS; i++) {
        out_text("%s", (route->fenced & methods[i].bit) != 0 ? " " : "");
        out_text("%s", (route->fenced & methods[i].bit) != 0 ? methods[i].name : "");
    }
    out_text("\n");
    if (route->reconcile.get != NULL && route->principal != CONFIG_PRINCIPAL_NONE &&
        strstr(route->reconcile.get, "{operation_id}") == NULL) {
        out_text("%-8snote: reconcile asks by {key}, which two principals may share; the API has "
                 "to look at Once-Operation-Id, or ask by {operation_id}\n",
            "");
    }
}

static void text_notes(const struct config_policy *policy)
{
    for (size_t i = 0; i < policy->count; i++) {
        const struct config_policy_line *line = &policy->lines[i];
        if (line->is_note) {
            out_text("%-8s%s: %s: %s\n", "note", line->setting, line->value, line->meaning);
        }
    }
}

void serve_gateway_text(const struct config *config)
{
    const struct config_gateway *gateway = &config->gateway;
    for (size_t i = 0; gateway->is_on && i < gateway->listen_count; i++) {
        bool is_unix = config_address(gateway->listen[i]) == CONFIG_ADDRESS_UNIX;
        out_text("%-8s%s%s\n", "gateway", gateway->listen[i],
            gateway->tls_cert != NULL && !is_unix ? " (TLS)" : "");
    }
    for (size_t i = 0; gateway->is_on && i < gateway->route_count; i++) {
        text_route(&gateway->routes[i]);
    }
    /* A lone implicit route matches everything. */
    if (gateway->is_on && gateway->otherwise != NULL && gateway->routes[0].line > 0) {
        out_text("%-8sno route matches", "others");
        text_upstreams(gateway->otherwise);
        out_text(", not fenced\n");
    }
    text_notes(&config->policy);
}

/* ---- as JSON ----------------------------------------------------------------------------- */

static void json_texts(struct jsonw *json, const char *name, const char *const *texts, size_t count)
{
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        jsonw_str(json, NULL, texts[i]);
    }
    jsonw_close(json, ']');
}

static void json_methods(struct jsonw *json, const char *name, unsigned bits)
{
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < METHODS; i++) {
        if ((bits & methods[i].bit) != 0) {
            jsonw_str(json, NULL, methods[i].name);
        }
    }
    jsonw_close(json, ']');
}

static void json_ms(struct jsonw *json, const char *name, int64_t ms)
{
    char text[32];
    jsonw_str(json, name, text_put_duration(text, ms));
}

static void json_principal(struct jsonw *json, const struct config_route *route)
{
    char text[512];
    (void)snprintf(text, sizeof text, "%s%s%s", principals[route->principal],
        route->principal_name == NULL ? "" : ":",
        route->principal_name == NULL ? "" : route->principal_name);
    jsonw_str(json, "principal", text);
    if (route->jwt.key_file != NULL) {
        jsonw_open(json, "jwt", '{');
        jsonw_str(json, "alg", algs[route->jwt.alg]);
        jsonw_str(json, "key_file", route->jwt.key_file);
        jsonw_str_some(json, "issuer", route->jwt.issuer);
        jsonw_str_some(json, "audience", route->jwt.audience);
        jsonw_close(json, '}');
    }
}

static void json_statuses(
    struct jsonw *json, const char *name, const uint16_t *statuses, size_t count)
{
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        jsonw_u64(json, NULL, statuses[i]);
    }
    jsonw_close(json, ']');
}

static void json_unknown(struct jsonw *json, const struct config_route *route)
{
    const struct config_reconcile *reconcile = &route->reconcile;
    jsonw_str(json, "on_5xx", on_5xx[route->on_5xx]);
    jsonw_str(json, "on_unknown", on_unknown[route->on_unknown]);
    if (reconcile->get != NULL) {
        jsonw_open(json, "reconcile", '{');
        jsonw_str(json, "get", reconcile->get);
        json_statuses(json, "executed", reconcile->executed, reconcile->executed_count);
        json_statuses(json, "not_executed", reconcile->not_executed, reconcile->not_executed_count);
        jsonw_str_some(json, "authorization_file", reconcile->authorization_file);
        json_ms(json, "every", reconcile->every_ms);
        json_ms(json, "every_max", reconcile->every_ms_max);
        json_ms(json, "quiet", reconcile->quiet_ms);
        jsonw_close(json, '}');
    }
}

static void json_bounds(struct jsonw *json, const struct config_route *route)
{
    jsonw_open(json, "timeout", '{');
    json_ms(json, "connect", route->connect_ms);
    json_ms(json, "first_byte", route->first_byte_ms);
    json_ms(json, "total", route->total_ms);
    jsonw_close(json, '}');
    jsonw_open(json, "limits", '{');
    jsonw_u64(json, "body_bytes_max", route->body_bytes_max);
    jsonw_u64(json, "outcome_bytes_max", route->outcome_bytes_max);
    jsonw_real(json, "duplicate_rate", route->duplicate_rate);
    jsonw_real(json, "duplicate_burst", route->duplicate_burst);
    jsonw_close(json, '}');
}

static void json_route(struct jsonw *json, const char *name, const struct config_route *route)
{
    jsonw_open(json, name, '{');
    jsonw_str(json, "match", route->match);
    if (route->line > 0) {
        jsonw_u64(json, "line", route->line);
    }
    json_methods(json, "methods", route->methods);
    json_methods(json, "fenced", route->fenced);
    jsonw_str(json, "path", route->path);
    json_texts(json, "upstream", route->upstreams, route->upstream_count);
    jsonw_str_some(json, "ca_file", route->ca_file);
    jsonw_str(json, "profile", profile_name(route->profile));
    jsonw_str(json, "tenant", route->tenant);
    jsonw_str(json, "key", keys[route->key]);
    jsonw_bool(json, "key_is_uuid", route->key_is_uuid);
    jsonw_str(json, "kind", kinds[route->retention]);
    json_ms(json, "window", route->window_ms);
    json_ms(json, "lease", route->lease_ms);
    json_ms(json, "wait", route->wait_ms_max);
    json_principal(json, route);
    json_texts(json, "ignore", route->ignore, route->ignore_count);
    json_texts(json, "redact", route->redact, route->redact_count);
    json_texts(json, "replay_headers", route->replay_headers, route->replay_header_count);
    jsonw_u64(json, "conflict_status", route->conflict_status);
    jsonw_bool(json, "conflict_diff", route->conflict_diff);
    json_unknown(json, route);
    json_bounds(json, route);
    jsonw_close(json, '}');
}

static void json_line(struct jsonw *json, const struct config_policy_line *line)
{
    jsonw_open(json, NULL, '{');
    jsonw_u64(json, "line", line->line);
    jsonw_str(json, "setting", line->setting);
    jsonw_str(json, "value", line->value);
    jsonw_str(json, "meaning", line->meaning);
    jsonw_bool(json, "note", line->is_note);
    jsonw_close(json, '}');
}

static void json_policy(struct jsonw *json, const char *name, const struct config_policy *policy)
{
    jsonw_open(json, name, '[');
    for (size_t i = 0; i < policy->count; i++) {
        json_line(json, &policy->lines[i]);
    }
    jsonw_close(json, ']');
}

void serve_gateway_json(struct jsonw *json, const struct config *config)
{
    const struct config_gateway *gateway = &config->gateway;
    if (!gateway->is_on) {
        return;
    }
    jsonw_open(json, "gateway", '{');
    json_texts(json, "listen", gateway->listen, gateway->listen_count);
    jsonw_str_some(json, "tls_cert", gateway->tls_cert);
    jsonw_str_some(json, "tls_key", gateway->tls_key);
    jsonw_str_some(json, "spool_dir", gateway->spool_dir);
    jsonw_u64(json, "spool_memory", gateway->spool_memory_bytes);
    jsonw_u64(json, "spool_max", gateway->spool_bytes_max);
    jsonw_u64(json, "connections_max", gateway->connections_max);
    json_ms(json, "idle", gateway->idle_ms_max);
    json_texts(json, "require_headers", gateway->require_headers, gateway->require_header_count);
    jsonw_open(json, "routes", '[');
    for (size_t i = 0; i < gateway->route_count; i++) {
        json_route(json, NULL, &gateway->routes[i]);
    }
    jsonw_close(json, ']');
    if (gateway->otherwise != NULL) {
        json_texts(
            json, "otherwise", gateway->otherwise->upstreams, gateway->otherwise->upstream_count);
    }
    if (config->policy.count > 0) {
        json_policy(json, "policy", &config->policy);
    }
    jsonw_close(json, '}');
}

/* ---- a policy file ----------------------------------------------------------------------- */

enum { POLICY_BYTES_MAX = 1 << 20 };

static int policy_json(const char *path, const struct serve_file *file)
{
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, POLICY_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "file", path);
    jsonw_bool(&json, "ok", file->faults.count == 0);
    jsonw_str(&json, "kind", "policy");
    serve_faults_json(&json, &file->faults);
    static const struct config_policy none;
    json_policy(&json, "lines", file->faults.count == 0 ? &file->config->policy : &none);
    jsonw_close(&json, '}');
    int code = jsonw_print(&json);
    buf_release(&bytes);
    return code;
}

int serve_policy_show(struct cli *cli, const char *path, const struct serve_file *file)
{
    if (cli->json) {
        return policy_json(path, file);
    }
    out_text("%s: ok, a policy for once gateway --policy\n", path);
    for (size_t i = 0; i < file->config->policy.count; i++) {
        const struct config_policy_line *line = &file->config->policy.lines[i];
        out_text("%s:%u: %s: %s\n    %s%s\n", path, line->line, line->setting, line->value,
            line->is_note ? "note: " : "", line->meaning);
    }
    return out_finish();
}

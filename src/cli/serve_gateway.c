/* Prints what a configuration means for the gateway, and what a policy file means. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"
#include "cli/out.h"
#include "cli/serve_config.h"

/* ---- for people -------------------------------------------------------------------------- */

static void text_upstreams(const struct config_route *route)
{
    for (size_t i = 0; i < route->upstream_count; i++) {
        out_text("%s%s", i == 0 ? " -> " : ", ", route->upstreams[i]);
    }
}

static const char *on_500(const struct config_route *route)
{
    switch (config_result(route, 500)) {
    case CONFIG_RESULT_SEAL: return "500 from the API is final: every duplicate gets it";
    case CONFIG_RESULT_RELEASE:
        return "500 from the API frees the key: on_status says that the API rolls back";
    case CONFIG_RESULT_UNKNOWN:
        return "500 from the API leaves the operation unknown until it is settled; "
               "on_status: {5xx: release} says that the API rolls back";
    }
    return "";
}

static const char *on_unknown(const struct config_route *route)
{
    return route->on_unknown == CONFIG_UNKNOWN_TAKEOVER
               ? "an unknown operation runs again, and its effect may happen twice (on_unknown: "
                 "takeover)"
               : NULL;
}

static const char *without_key(const struct config_route *route)
{
    switch (route->key) {
    case CONFIG_KEY_REQUIRED: return NULL;
    case CONFIG_KEY_GENERATED: return "a write without a key gets a new one: its retries run again";
    case CONFIG_KEY_OPTIONAL: return "a write without a key passes through, not fenced";
    case CONFIG_KEY_HEADER:
    case CONFIG_KEY_JSON: return NULL;
    }
    return NULL;
}

static const char *principal(const struct config_route *route)
{
    switch (route->principal) {
    case CONFIG_PRINCIPAL_AUTO:
        return "a key belongs to its Authorization, else X-Api-Key or Api-Key; set principal if "
               "tokens are renewed (JWT) or clients have only cookies or nothing";
    case CONFIG_PRINCIPAL_NONE: return "all clients share their keys (principal: none)";
    case CONFIG_PRINCIPAL_AUTHORIZATION:
    case CONFIG_PRINCIPAL_HEADER:
    case CONFIG_PRINCIPAL_JWT: return NULL;
    }
    return NULL;
}

const char *serve_gateway_fact(const struct config_route *route, size_t which)
{
    static const char *(*const facts[SERVE_GATEWAY_FACTS])(const struct config_route *) = {
        on_500, on_unknown, without_key, principal};
    return facts[which](route);
}

static void text_route(const struct config_route *route)
{
    char window[32];
    char methods[CONFIG_METHODS_BYTES];
    out_text("%-8s%s", "route", route->match);
    text_upstreams(route);
    out_text("\n%-8s%s, window %s, key %s%s, fences %s\n", "",
        config_choice("gateway.profile", route->profile),
        text_put_duration(window, route->window_ms), route->key_text,
        route->key_is_uuid ? " (a UUID)" : "", config_methods_put(methods, route->fenced));
    for (size_t i = 0; i < SERVE_GATEWAY_FACTS; i++) {
        if (serve_gateway_fact(route, i) != NULL) {
            out_text("%-8s%s\n", "", serve_gateway_fact(route, i));
        }
    }
    if (route->reconcile.get != NULL && route->principal != CONFIG_PRINCIPAL_NONE &&
        strstr(route->reconcile.get, "{operation_id}") == NULL) {
        out_text("%-8snote: reconcile asks by {key}, which two principals may share: have the "
                 "API check Once-Operation-Id, or ask by {operation_id}\n",
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
    /* A single implicit route matches everything. */
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
    char text[CONFIG_METHODS_BYTES];
    (void)config_methods_put(text, bits);
    jsonw_open(json, name, '[');
    for (const char *at = text; *at != '\0'; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        jsonw_bytes(json, NULL, slice_of(at, len));
        at += len;
    }
    jsonw_close(json, ']');
}

/* Its settings, and what they mean. */
static void json_route(struct jsonw *json, const struct config_route *route)
{
    jsonw_open(json, NULL, '{');
    config_put_route(json, route);
    if (route->line > 0) {
        jsonw_u64(json, "line", route->line);
    }
    json_methods(json, "methods", route->methods);
    json_methods(json, "fenced", route->fenced);
    jsonw_str(json, "path", route->path);
    jsonw_bool(json, "key_is_uuid", route->key_is_uuid);
    jsonw_u64(json, "conflict_status", route->conflict_status);
    jsonw_bool(json, "conflict_diff", route->conflict_diff);
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
    config_put_gateway(json, gateway);
    json_texts(json, "require_headers", gateway->require_headers, gateway->require_header_count);
    jsonw_open(json, "routes", '[');
    for (size_t i = 0; i < gateway->route_count; i++) {
        json_route(json, &gateway->routes[i]);
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
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, POLICY_BYTES_MAX);
    jsonw_str(json, "file", path);
    jsonw_bool(json, "ok", file->faults.count == 0);
    jsonw_str(json, "kind", "policy");
    serve_faults_json(json, "faults", &file->faults);
    static const struct config_policy none;
    json_policy(json, "lines", file->faults.count == 0 ? &file->config->policy : &none);
    return out_json_end(&whole);
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

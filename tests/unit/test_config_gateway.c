/*
 * The configuration of the gateway: what each profile comes to, what wins over what, and what is
 * refused and where.
 */
#include "config_drive.h"

/* A route of the only setting. */
static struct config *take_route(const char *members)
{
    char text[512];
    (void)snprintf(text, sizeof text, "gateway: {" UP ", routes: [{match: /x%s}]}\n", members);
    return take(text);
}

static void refuse_route(const char *members, const char *says, const char *hint)
{
    char text[512];
    (void)snprintf(text, sizeof text, "gateway: {" UP ", routes: [{match: /x, \n%s}]}\n", members);
    struct reading reading = read_all(text, NULL);
    judge(text, &reading, 2, reading.faults.items[0].column, says, hint);
}

/* ---- what is taken ----------------------------------------------------------------------- */

static void without_a_section_there_is_no_gateway(void **state)
{
    (void)state;
    struct config *config = take("drain: 3s\n");
    assert_false(config->gateway.is_on);
    assert_int_equal(config->gateway.route_count, 0);
    config_free(config);
}

static void an_upstream_alone_fences_every_path(void **state)
{
    (void)state;
    struct config *config = take("gateway: {" UP "}\n");
    const struct config_gateway *gateway = &config->gateway;
    assert_true(gateway->is_on);
    assert_int_equal(gateway->listen_count, 1);
    assert_string_equal(gateway->listen[0], "127.0.0.1:8080");
    assert_int_equal(gateway->route_count, 1);
    const struct config_route *route = &gateway->routes[0];
    assert_string_equal(route->match, "(default)");
    assert_string_equal(route->path, "/**");
    assert_int_equal(route->line, 0);
    assert_int_equal(route->methods, 0);
    assert_int_equal(route->fenced, 15);
    assert_int_equal(route->upstream_count, 1);
    assert_string_equal(route->upstreams[0], "http://127.0.0.1:3000");
    assert_string_equal(route->tenant, "default");
    assert_int_equal(route->lease_ms, 60000);
    assert_int_equal(route->wait_ms, 10000);
    assert_false(route->streams);
    assert_int_equal(route->principal, CONFIG_PRINCIPAL_AUTO);
    assert_int_equal(route->on_unknown, CONFIG_UNKNOWN_HOLD);
    assert_int_equal(route->replay_header_count, 1);
    assert_string_equal(route->replay_headers[0], "*");
    assert_int_equal(route->connect_ms, 2000);
    assert_int_equal(route->first_byte_ms, 30000);
    assert_int_equal(route->total_ms, 60000);
    assert_int_equal(route->upgraded_ms, 300000);
    assert_int_equal(route->reconcile.every_ms, 1000);
    assert_int_equal(route->reconcile.every_ms_max, 300000);
    assert_null(route->reconcile.get);
    assert_true(route->conflict_diff);
    assert_int_equal(gateway->spool_memory_bytes, 256 << 10);
    assert_int_equal(gateway->connections_max, 256);
    assert_int_equal(gateway->idle_ms_max, 4000);
    assert_null(gateway->spool_dir);
    config_free(config);
}

static void a_key_may_be_in_a_field_or_in_the_body(void **state)
{
    (void)state;
    struct config *config = take("gateway:\n  " UP "\n  key: {header: X-GitHub-Delivery}\n"
                                 "  redact: [/i]\n  routes:\n"
                                 "    - {match: /a, profile: guardia}\n"
                                 "    - {match: /b, key: {json: /id}}\n"
                                 "    - {match: /c, key: required, profile: guardia}\n");
    const struct config_route *routes = config->gateway.routes;
    assert_int_equal(routes[0].key, CONFIG_KEY_HEADER);
    assert_string_equal(routes[0].key_name, "X-GitHub-Delivery");
    assert_false(routes[0].key_is_uuid); /* whoever sends it chose its form */
    assert_int_equal(routes[1].key, CONFIG_KEY_JSON);
    assert_string_equal(routes[1].key_name, "/id");
    assert_string_equal(routes[1].key_text, "json:/id");
    assert_int_equal(routes[2].key, CONFIG_KEY_REQUIRED);
    assert_null(routes[2].key_name);
    assert_true(routes[2].key_is_uuid);
    config_free(config);
}

/* The table of docs/gateway.md (Profiles). */
static void each_profile_has_its_own_manners(void **state)
{
    (void)state;
    const unsigned all = 15;
    const unsigned no_delete = 7;
    const struct {
        const char *name;
        unsigned methods;
        enum config_key key;
        bool is_uuid;
        unsigned conflict;
        enum config_result on_500;
        int64_t window_ms;
    } rows[] = {
        {"ietf", all, CONFIG_KEY_REQUIRED, false, 422, CONFIG_RESULT_UNKNOWN, 24 * HOUR_MS},
        {"guardia", no_delete, CONFIG_KEY_REQUIRED, true, 409, CONFIG_RESULT_UNKNOWN, 24 * HOUR_MS},
        {"adr007", all, CONFIG_KEY_GENERATED, false, 409, CONFIG_RESULT_UNKNOWN, 24 * HOUR_MS},
        {"ops", all, CONFIG_KEY_REQUIRED, false, 409, CONFIG_RESULT_UNKNOWN, 48 * HOUR_MS},
        {"stripe", CONFIG_METHOD_POST, CONFIG_KEY_OPTIONAL, false, 400, CONFIG_RESULT_SEAL,
            24 * HOUR_MS},
    };
    for (size_t i = 0; i < CONFIG_PROFILES; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, "gateway: {" UP ", profile: %s}\n", rows[i].name);
        struct config *config = take(text);
        const struct config_route *route = &config->gateway.routes[0];
        assert_int_equal(route->profile, i);
        assert_int_equal(route->fenced, rows[i].methods);
        assert_int_equal(route->key, rows[i].key);
        assert_int_equal(route->key_is_uuid, rows[i].is_uuid);
        assert_int_equal(route->conflict_status, rows[i].conflict);
        assert_int_equal(config_result(route, 500), rows[i].on_500);
        assert_int_equal(config_result(route, 503), CONFIG_RESULT_RELEASE);
        assert_int_equal(route->window_ms, rows[i].window_ms);
        config_free(config);
    }
}

static struct config *take_everything(void)
{
    return take(
        "gateway:\n"
        "  listen: [0.0.0.0:8080, 'unix:/run/gate.sock']\n"
        "  tls: {cert: c.pem, key: k.pem}\n"
        "  routes:\n"
        "    - match: \"POST,DELETE /v1/payments/**\"\n"
        "      upstream: [https://a.example:8443/, 'https://[::1]:1']\n"
        "      ca_file: ca.pem\n"
        "      profile: stripe\n"
        "      tenant: acme\n"
        "      key: required\n"
        "      kind: webhook\n"
        "      window: 30d\n"
        "      lease: 1s\n"
        "      wait: 0s\n"
        "      stream: true\n"
        "      principal: jwt:sub\n"
        "      jwt: {alg: ES256, key_file: jwt.pem, issuer: me, audience: you}\n"
        "      ignore: [/client_time, /a~1b/~0c]\n"
        "      redact: /card/number\n"
        "      replay_headers: [X-Payment-Id, '*']\n"
        "      on_status: {5xx: unknown, 500: release, 404: unknown}\n"
        "      on_unknown: reconcile\n"
        "      reconcile: {get: '/by-key/{key}?x=1', executed: [200, 201], not_executed: 404,\n"
        "        authorization_file: token, every: 2s, every_max: 1m}\n"
        "      timeout: {connect: 1s, first_byte: 2s, total: 3s}\n"
        "      limits: {body_bytes_max: 1KiB, outcome_bytes_max: 2KiB, duplicate_rate: 0.5,\n"
        "        duplicate_burst: 3}\n"
        "  spool_dir: /var/tmp\n"
        "  spool_memory: 1MiB\n"
        "  connections_max: 7\n"
        "  idle: 9s\n");
}

static void a_section_says_everything(void **state)
{
    (void)state;
    struct config *config = take_everything();
    const struct config_gateway *gateway = &config->gateway;
    assert_int_equal(gateway->listen_count, 2);
    assert_string_equal(gateway->tls_key, "k.pem");
    assert_string_equal(gateway->spool_dir, "/var/tmp");
    assert_int_equal(gateway->spool_memory_bytes, 1 << 20);
    assert_int_equal(gateway->connections_max, 7);
    assert_int_equal(gateway->idle_ms_max, 9000);
    assert_int_equal(gateway->route_count, 1);
    config_free(config);
}

static void a_route_says_everything(void **state)
{
    (void)state;
    struct config *config = take_everything();
    const struct config_route *route = &config->gateway.routes[0];
    assert_int_equal(route->line, 5);
    assert_string_equal(route->match, "POST,DELETE /v1/payments/**");
    assert_string_equal(route->path, "/v1/payments/**");
    assert_int_equal(route->methods, CONFIG_METHOD_POST | CONFIG_METHOD_DELETE);
    assert_int_equal(route->fenced, route->methods);
    assert_int_equal(route->upstream_count, 2);
    assert_string_equal(route->upstreams[0], "https://a.example:8443");
    assert_string_equal(route->upstreams[1], "https://[::1]:1");
    assert_string_equal(route->ca_file, "ca.pem");
    assert_int_equal(route->profile, CONFIG_PROFILE_STRIPE);
    assert_string_equal(route->tenant, "acme");
    assert_int_equal(route->key, CONFIG_KEY_REQUIRED);
    assert_int_equal(route->retention, CONFIG_RETENTION_WEBHOOK);
    assert_int_equal(route->window_ms, 30 * DAY_MS);
    assert_int_equal(route->lease_ms, 1000);
    assert_int_equal(route->wait_ms, 0);
    assert_true(route->streams);
    assert_int_equal(route->principal, CONFIG_PRINCIPAL_JWT);
    assert_string_equal(route->principal_name, "sub");
    assert_int_equal(route->jwt.alg, CONFIG_JWT_ES256);
    assert_string_equal(route->jwt.key_file, "jwt.pem");
    assert_string_equal(route->jwt.issuer, "me");
    assert_string_equal(route->jwt.audience, "you");
    assert_int_equal(route->ignore_count, 2);
    assert_string_equal(route->ignore[1], "/a~1b/~0c");
    assert_int_equal(route->redact_count, 1);
    assert_string_equal(route->redact[0], "/card/number");
    assert_int_equal(route->replay_header_count, 2);
    assert_int_equal(config_result(route, 500), CONFIG_RESULT_RELEASE);
    assert_int_equal(config_result(route, 503), CONFIG_RESULT_UNKNOWN); /* {5xx} is meant for it */
    assert_int_equal(config_result(route, 404), CONFIG_RESULT_UNKNOWN);
    assert_int_equal(config_result(route, 429), CONFIG_RESULT_RELEASE);
    assert_int_equal(route->on_unknown, CONFIG_UNKNOWN_RECONCILE);
    assert_string_equal(route->reconcile.get, "/by-key/{key}?x=1");
    assert_int_equal(route->reconcile.executed_count, 2);
    assert_int_equal(route->reconcile.executed[1], 201);
    assert_int_equal(route->reconcile.not_executed_count, 1);
    assert_int_equal(route->reconcile.not_executed[0], 404);
    assert_string_equal(route->reconcile.authorization_file, "token");
    assert_int_equal(route->reconcile.every_ms, 2000);
    assert_int_equal(route->reconcile.every_ms_max, 60000);
    assert_int_equal(route->connect_ms + route->first_byte_ms + route->total_ms, 6000);
    assert_int_equal(route->body_bytes_max, 1024);
    assert_int_equal(route->outcome_bytes_max, 2048);
    assert_true(route->duplicate_rate == 0.5 && route->duplicate_burst == 3);
    config_free(config);
}

static void a_route_wins_over_the_section_and_this_over_the_profile(void **state)
{
    (void)state;
    struct config *config =
        take("limits: {body_bytes_max: 5KiB, outcome_bytes_max: 6KiB, duplicate_rate: 7}\n"
             "gateway:\n"
             "  upstream: http://all\n"
             "  profile: guardia\n"
             "  window: 3h\n"
             "  on_status: {5xx: seal, 404: unknown}\n"
             "  timeout: {connect: 5s, total: 6s}\n"
             "  ignore: [/a, /b]\n"
             "  limits: {body_bytes_max: 8KiB}\n"
             "  routes:\n"
             "    - {match: /one}\n"
             "    - {match: /two, upstream: http://two, profile: ietf, window: 4h,\n"
             "       on_status: {5xx: release},\n"
             "       timeout: {total: 7s}, ignore: [/c], limits: {body_bytes_max: 9KiB}}\n");
    const struct config_route *one = &config->gateway.routes[0];
    const struct config_route *two = &config->gateway.routes[1];
    assert_int_equal(config->gateway.route_count, 2);
    assert_string_equal(one->upstreams[0], "http://all");
    assert_string_equal(two->upstreams[0], "http://two");
    assert_int_equal(one->profile, CONFIG_PROFILE_GUARDIA);
    assert_int_equal(two->profile, CONFIG_PROFILE_IETF);
    assert_true(one->key_is_uuid && !two->key_is_uuid);
    assert_int_equal(one->window_ms, 3 * HOUR_MS);
    assert_int_equal(two->window_ms, 4 * HOUR_MS);
    assert_int_equal(config_result(one, 500), CONFIG_RESULT_SEAL);
    assert_int_equal(config_result(two, 500), CONFIG_RESULT_RELEASE);
    assert_int_equal(config_result(one, 404), CONFIG_RESULT_UNKNOWN);
    assert_int_equal(config_result(two, 404), CONFIG_RESULT_SEAL); /* replaced, not merged */
    assert_int_equal(two->connect_ms, 5000);                       /* members of a map one by one */
    assert_int_equal(two->total_ms, 7000);
    assert_int_equal(one->total_ms, 6000);
    assert_int_equal(one->ignore_count, 2);
    assert_int_equal(two->ignore_count, 1);
    assert_string_equal(two->ignore[0], "/c");
    assert_int_equal(one->body_bytes_max, 8192);
    assert_int_equal(two->body_bytes_max, 9216);
    assert_int_equal(two->outcome_bytes_max, 6144);
    assert_true(two->duplicate_rate == 7 && two->duplicate_burst == 40);
    config_free(config);
}

static void what_no_route_matches_passes_to_the_first_upstream(void **state)
{
    (void)state;
    struct config *config =
        take("gateway: {routes: [{match: /a, upstream: http://one, profile: guardia},\n"
             "  {match: /b, upstream: http://two}]}\n");
    const struct config_route *otherwise = config->gateway.otherwise;
    assert_string_equal(otherwise->upstreams[0], "http://one");
    assert_int_equal(otherwise->fenced, 0);
    assert_int_equal(otherwise->methods, 0);
    assert_string_equal(otherwise->path, "/**");
    config_free(config);
    config = take("gateway: {upstream: http://all, profile: stripe, routes: [{match: /a,\n"
                  "  upstream: http://one, profile: guardia}]}\n");
    otherwise = config->gateway.otherwise;
    assert_string_equal(otherwise->upstreams[0], "http://all");
    assert_int_equal(otherwise->profile, CONFIG_PROFILE_STRIPE);
    assert_int_equal(otherwise->fenced, 0);
    config_free(config);
}

static void the_window_goes_by_kind_where_none_is_said(void **state)
{
    (void)state;
    const struct {
        const char *members;
        int64_t window_ms;
    } rows[] = {
        {", kind: webhook", 14 * DAY_MS},
        {", kind: batch", 3 * DAY_MS},
        {", kind: api, profile: ops", 2 * DAY_MS},
        {", kind: webhook, profile: ops", 14 * DAY_MS},
        {", kind: webhook, window: 7d", 7 * DAY_MS},
        {", kind: batch, profile: ops, window: 1h", HOUR_MS},
        {", profile: guardia, window: 2h", 2 * HOUR_MS},
        {", profile: guardia, window: 24h", DAY_MS},
        {", profile: guardia, kind: batch, window: 24h", DAY_MS},
        {", profile: ops, window: 24h", DAY_MS},
        {", profile: ops, window: 72h", 3 * DAY_MS},
        {", profile: ietf, window: 1s", 1000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config *config = take_route(rows[i].members);
        assert_int_equal(config->gateway.routes[0].window_ms, rows[i].window_ms);
        config_free(config);
    }
}

static void principals_are_of_four_kinds(void **state)
{
    (void)state;
    const struct {
        const char *members;
        enum config_principal principal;
        const char *name;
    } rows[] = {
        {", principal: auto", CONFIG_PRINCIPAL_AUTO, NULL},
        {", principal: authorization", CONFIG_PRINCIPAL_AUTHORIZATION, NULL},
        {", principal: none", CONFIG_PRINCIPAL_NONE, NULL},
        {", principal: header:X-Tenant", CONFIG_PRINCIPAL_HEADER, "X-Tenant"},
        {", principal: 'jwt:https://example.com/id', jwt: {alg: HS256, key_file: k}",
            CONFIG_PRINCIPAL_JWT, "https://example.com/id"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config *config = take_route(rows[i].members);
        const struct config_route *route = &config->gateway.routes[0];
        assert_int_equal(route->principal, rows[i].principal);
        assert_true((route->principal_name == NULL) == (rows[i].name == NULL));
        assert_true(rows[i].name == NULL || strcmp(route->principal_name, rows[i].name) == 0);
        config_free(config);
    }
}

static void a_match_is_methods_and_a_path(void **state)
{
    (void)state;
    const struct {
        const char *match;
        unsigned methods;
        const char *path;
    } rows[] = {
        {"/v1/**", 0, "/v1/**"},
        {"POST /", CONFIG_METHOD_POST, "/"},
        {"POST, PUT  /a/*/b*c", CONFIG_METHOD_POST | CONFIG_METHOD_PUT, "/a/*/b*c"},
        {"PATCH,DELETE,PUT,POST /**/x", 15, "/**/x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        (void)snprintf(
            text, sizeof text, "gateway: {" UP ", routes: [{match: '%s'}]}\n", rows[i].match);
        struct config *config = take(text);
        assert_int_equal(config->gateway.routes[0].methods, rows[i].methods);
        assert_string_equal(config->gateway.routes[0].path, rows[i].path);
        assert_string_equal(config->gateway.routes[0].match, rows[i].match);
        config_free(config);
    }
}

/* ---- what is refused --------------------------------------------------------------------- */

static void an_unknown_key_is_refused_with_the_nearest_name(void **state)
{
    (void)state;
    refuse("gatway: {" UP "}\n", 1, 1, "unknown key 'gatway'", "did you mean 'gateway'?");
    refuse("gateway: {" UP ", lisen: x}\n", 1, 44, "unknown key 'lisen'", "'listen'");
    refuse("gateway: {" UP ", route: []}\n", 1, 44, "unknown key 'route'", "'routes'");
    refuse("gateway:\n  " UP "\n  timeout: {conect: 1s}\n", 3, 13, "unknown key 'conect'",
        "did you mean 'connect'?");
    refuse_route("widow: 1h", "unknown key 'widow'", "did you mean 'window'?");
    refuse_route("listen: 127.0.0.1:1", "unknown key 'listen'", NULL);
    refuse_route("timeout: {totl: 1s}", "unknown key 'totl'", "did you mean 'total'?");
    refuse_route("reconcile: {got: /x}", "unknown key 'got'", "did you mean 'get'?");
    refuse_route("limits: {keys_max: 1}", "unknown key 'keys_max'", NULL);
    refuse("gateway: {" UP ", match: /x}\n", 1, 44, "'match' is of a route", "routes:");
}

static void the_forms_are_held_to(void **state)
{
    (void)state;
    refuse("gateway: 3\n", 1, 10, "gateway must be a map", NULL);
    refuse("gateway:\n", 1, 1, "gateway must be a map", NULL);
    refuse("gateway: {" UP ", timeout: 3s}\n", 1, 53, "timeout must be a map", NULL);
    refuse("gateway: {" UP ", routes: []}\n", 1, 52, "at least one route", NULL);
    refuse("gateway: {" UP ", routes: {match: /x}}\n", 1, 52, "at least one route", NULL);
    refuse("gateway: {" UP ", routes: [/x]}\n", 1, 53, "a route must be a map", NULL);
    refuse("gateway: {" UP ", routes: [{window: 3h}]}\n", 1, 53, "the route has no match", NULL);
    refuse("gateway: {upstream: []}\n", 1, 21, "gateway.upstream is empty", NULL);
    refuse("gateway: {" UP ", window: [3h]}\n", 1, 52, "must be one value, not a list", NULL);
    refuse("gateway: {" UP ", window: }\n", 1, 52, "gateway.window has no value", NULL);
    refuse("gateway: {" UP ", profile: fast}\n", 1, 53,
        "'fast' is not one of ietf, guardia, adr007, ops, stripe", "the default is ietf");
    refuse("gateway: {" UP ", listen: example.com:80}\n", 1, 52, "is not an address", NULL);
    refuse("gateway: {" UP ", idle: -1s}\n", 1, 50, "is not a duration", NULL);
    refuse_route("key: maybe", "'maybe' is not one of required, generated, optional", NULL);
    refuse_route("key: {json: id}", "'json:id' is not one of required", NULL);
    refuse_route("key: {cookie: id}", "'cookie:id' is not one of required", NULL);
    refuse_route("key: {header: A, json: /b}", "takes one of header and json", NULL);
    refuse_route("key: {header: 'a b'}", "is not one of required", NULL);
    refuse_route("key: {header: Authorization}", "would keep clients' credentials", NULL);
    refuse_route("key: {header: idempotency-key}", "is where the key is anyway", "key: required");
    refuse_route("redact: [/card], key: {json: /card/id}", "the key '/card/id' is redacted", NULL);
    refuse_route("cors: {origins: [https://Shop.example]}", "is not the origin of a page", NULL);
    refuse_route("cors: {origins: [https://shop.example/]}", "is not the origin of a page", NULL);
    refuse_route("cors: {origins: [shop.example]}", "is not the origin of a page", NULL);
    refuse_route("cors: {origins: '*', credentials: true}", "would show every page", NULL);
    refuse_route("lease: 999ms", "'999ms' is less than 1s", NULL);
    refuse_route("lease: 8d", "'8d' is more than 168h", NULL);
    refuse_route("wait: 61s", "'61s' is more than 1m", NULL);
    refuse_route("tenant: '*'", "must be a name", NULL);
    refuse_route("tenant: ''", "is empty", NULL);
    refuse_route("principal: me", "is not one of auto, authorization, header:NAME", NULL);
    refuse_route("principal: 'header:'", "is not one of auto, authorization", NULL);
    refuse_route("principal: 'header:a b'", "is not one of auto, authorization", NULL);
    refuse_route("principal: 'jwt:'", "is not one of auto, authorization", NULL);
    refuse_route("principal: 'header:authorization'", "would keep clients' credentials", "SHA-256");
    refuse_route("principal: 'header:Cookie'", "would keep clients' credentials", NULL);
    refuse_route("limits: {outcome_bytes_max: 17MiB}", "'17MiB' is more than 16MiB", NULL);
    refuse_route("replay_headers: [Set-Cookie]", "Set-Cookie is never kept", NULL);
    refuse_route("replay_headers: [connection]", "Connection is never kept", NULL);
    refuse_route("replay_headers: ['a b']", "is not the name of a field", NULL);
    refuse_route("ignore: [/a, /a]", "'/a' is given twice", NULL);
}

static void urls_are_a_scheme_and_a_host(void **state)
{
    (void)state;
    static const char *const good[] = {"http://a", "http://a:1", "https://a.b-c_d:65535",
        "http://127.0.0.1:80/", "http://[::1]", "https://[fe80::1]:443"};
    static const struct {
        const char *url;
        const char *says;
    } bad[] = {{"a:80", "is not an http or https URL"}, {"ftp://a", "is not an http or https URL"},
        {"HTTP://a", "is not an http or https URL"}, {"http://", "invalid host or port"},
        {"http://:80", "invalid host or port"}, {"http://a:0", "invalid host or port"},
        {"http://a:65536", "invalid host or port"}, {"http://a:x", "invalid host or port"},
        {"http://a:", "invalid host or port"}, {"http://[::1", "invalid host or port"},
        {"http://[::g]", "invalid host or port"}, {"http://[::1]x", "invalid host or port"},
        {"http://[]", "invalid host or port"}, {"http://a b", "invalid host or port"},
        {"http://a/b", "has a path"}, {"http://a//", "has a path"}, {"http://a?x", "has a path"},
        {"http://a/?", "has a path"}, {"http://u:p@a", "has a user or a password"}};
    char text[256];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        (void)snprintf(text, sizeof text, "gateway: {upstream: '%s'}\n", good[i]);
        config_free(take(text));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(text, sizeof text, "gateway: {upstream: '%s'}\n", bad[i].url);
        refuse(text, 1, 21, bad[i].says, NULL);
    }
    refuse("gateway: {upstream: [http://a, https://a]}\n", 1, 21, "of two schemes", NULL);
    refuse("gateway: {listen: 127.0.0.1:1}\n", 1, 1, "the gateway has no upstream",
        "--upstream http://");
    refuse("gateway: {routes: [{match: /a, upstream: http://a},\n  {match: /b}]}\n", 2, 3,
        "the route has no upstream", NULL);
}

static void globs_begin_with_a_slash_and_can_match(void **state)
{
    (void)state;
    static const struct {
        const char *match;
        const char *says;
        const char *hint;
    } bad[] = {{"v1/**", "does not begin with '/'", NULL}, {"POST v1", "does not begin", NULL},
        {"POST", "is a method without a path", NULL}, {"", "is empty", NULL},
        {"/a?b=1", "has a query", NULL}, {"/a#b", "has a query", NULL},
        {"/a b", "has a space", NULL}, {"/a/../b", "could never match", NULL},
        {"/a/./b", "could never match", NULL}, {"/a**", "must be a whole segment", NULL},
        {"/***", "must be a whole segment", NULL}, {"post /a", "not a method", "'POST'"},
        {"POST,,PUT /a", "'' is not a method", NULL}, {"POST,POST /a", "POST is given twice", NULL},
        {"LINK /a", "'LINK' is not a method", "POST, PUT, PATCH and DELETE"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        (void)snprintf(
            text, sizeof text, "gateway: {" UP ", routes: [{match: '%s'}]}\n", bad[i].match);
        refuse(text, 1, 61, bad[i].says, bad[i].hint);
    }
}

static void reads_are_never_fenced(void **state)
{
    (void)state;
    static const char *const reads[] = {"GET", "HEAD", "OPTIONS", "TRACE"};
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        char text[256];
        char says[128];
        (void)snprintf(
            text, sizeof text, "gateway: {" UP ", routes: [{match: 'POST,%s /a'}]}\n", reads[i]);
        (void)snprintf(says, sizeof says,
            "%s cannot be fenced: reads are never subject to idempotency keys", reads[i]);
        refuse(text, 1, 61, says, "passed through");
    }
}

static void pointers_and_statuses_and_templates_are_checked(void **state)
{
    (void)state;
    refuse_route("ignore: [a]", "'a' is not a JSON Pointer", "RFC 6901");
    refuse_route("ignore: ['']", "is empty", NULL);
    refuse_route("redact: [/a~2]", "is not a JSON Pointer", NULL);
    refuse_route("redact: [/a~]", "is not a JSON Pointer", NULL);
    refuse_route("reconcile: {executed: [20]}", "is not a status", NULL);
    refuse_route("reconcile: {executed: [500]}", "says nothing about the operation", NULL);
    refuse_route("reconcile: {not_executed: [100]}", "says nothing about the operation", NULL);
    refuse_route("reconcile: {get: '{key}'}", "begins with '/'", NULL);
    refuse_route("reconcile: {get: /a}", "has no {key}", NULL);
    refuse_route("reconcile: {get: '/a/{id}/{key}'}", "a brace outside {key}", NULL);
    refuse_route(
        "reconcile: {get: '/{key}', executed: [200], not_executed: [200]}", "200 means both", NULL);
    refuse_route("reconcile: {get: '/{key}', executed: []}", "settles anything", NULL);
    refuse_route("reconcile: {get: '/{key}', every: 2s, every_max: 1s}", "is more than", NULL);
}

static void a_profile_bounds_the_window(void **state)
{
    (void)state;
    refuse_route("profile: guardia, window: 25h",
        "a window of 25h is more than 24h: guardia keeps keys for 2h to 24h", NULL);
    refuse_route("profile: guardia, window: 119m", "is less than 2h", NULL);
    refuse_route("profile: ops, window: 73h", "is more than 72h", NULL);
    refuse_route("profile: ops, window: 23h", "is less than 24h", NULL);
    refuse_route("profile: ops, kind: webhook, window: 6d", "is less than 168h", NULL);
    refuse_route("kind: webhook, window: 6d", "is less than 168h", NULL);
    /* The section's window, and a route that it does not fit. */
    refuse("gateway:\n  " UP "\n  window: 72h\n  routes: [{match: /x, profile: guardia}]\n", 3, 11,
        "guardia keeps keys for 2h to 24h", NULL);
    refuse("gateway:\n  " UP "\n  profile: guardia\n  kind: webhook\n", 1, 1, "is more than 24h",
        NULL);
}

static void settings_have_to_go_together(void **state)
{
    (void)state;
    refuse_route("on_unknown: reconcile", "on_unknown: reconcile needs reconcile.get", NULL);
    refuse_route(
        "on_unknown: reconcile, reconcile: {executed: [200]}", "needs reconcile.get", NULL);
    refuse_route("principal: 'jwt:sub'", "needs jwt.alg and jwt.key_file", "jwt: {alg");
    refuse_route("principal: 'jwt:sub', jwt: {alg: HS256}", "needs jwt.key_file", NULL);
    refuse("gateway:\n  " UP "\n  tls: {cert: c}\n", 3, 15,
        "gateway.tls.cert is set and gateway.tls.key is not", NULL);
    refuse("gateway:\n  " UP "\n  tls: {key: c}\n", 3, 14, "gateway.tls.cert is not", NULL);
}

static void a_route_that_is_never_reached_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *first;
        const char *then;
        const char *says; /* NULL: both are reached */
    } rows[] = {
        {"/a", "/a", "the same match as the route in line 1"},
        {"POST,PUT /a", "PUT,POST /a", "the same match"},
        {"/a", "POST /a", "never reached"},
        {"POST,PUT /a", "PUT /a", "never reached"},
        {"/**", "/a/b", "never reached"},
        {"/a/**", "POST /a/*/c", "never reached"},
        {"/a/**", "/a", "never reached"},
        {"POST /a", "/a", NULL},
        {"POST /a", "PUT /a", NULL},
        {"POST /**", "POST,PUT /a", NULL},
        {"/a/**", "/ab", NULL},
        {"/a/**", "/b", NULL},
        {"/a/*", "/a/b", NULL}, /* known to overlap; only what is plain is told */
        {"/*/b/**", "/a/b/c", NULL},
        {"/a/b", "/a/**", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
            "gateway: {" UP ", routes: [{match: '%s'},\n  {match: '%s'}]}\n", rows[i].first,
            rows[i].then);
        if (rows[i].says != NULL) {
            refuse(text, 2, 11, rows[i].says, NULL);
        } else {
            config_free(take(text));
        }
    }
}

static void routes_and_items_are_bounded(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, &mem_libc, 1 << 20);
    buf_str(&text, "gateway:\n  " UP "\n  routes:\n");
    for (int i = 0; i < CONFIG_ROUTES_MAX; i++) {
        buf_printf(&text, "    - {match: /r%d}\n", i);
    }
    size_t whole = text.len;
    buf_char(&text, '\0');
    struct config *config = take(text.data);
    assert_int_equal(config->gateway.route_count, CONFIG_ROUTES_MAX);
    config_free(config);
    text.len = whole;
    buf_str(&text, "    - {match: /one-more}\n");
    buf_char(&text, '\0');
    refuse(text.data, 4, 5, "more than 256 routes", NULL);
    text.len = 0;
    buf_str(&text, "gateway:\n  " UP "\n  ignore:\n");
    for (int i = 0; i <= CONFIG_POINTERS_MAX; i++) {
        buf_printf(&text, "    - /p%d\n", i);
    }
    buf_char(&text, '\0');
    refuse(text.data, 4 + CONFIG_POINTERS_MAX, 7, "gateway.ignore: more than 64", NULL);
    buf_release(&text);
}

/* ---- flags, restarts, the example -------------------------------------------------------- */

static void flags_win_and_lists_grow(void **state)
{
    (void)state;
    struct config_faults faults = {0};
    struct config *config = NULL;
    const struct config_option *listen = config_option_find("gateway.listen");
    const struct config_option *upstream = config_option_find("gateway.upstream");
    const struct config_option *profile = config_option_find("gateway.profile");
    assert_int_equal(config_new(&mem_libc, &config, NULL), OK);
    assert_int_equal(config_set(config, profile, "stripe", "--profile", false, &faults), OK);
    assert_false(config->gateway.is_on);
    assert_int_equal(
        config_read(config,
            SLICE_LIT("gateway: {listen: 127.0.0.1:1,\n"
                      "  upstream: http://file, profile: ietf, routes: [{match: /a}]}\n"),
            &faults),
        OK);
    assert_int_equal(config_set(config, listen, "0.0.0.0:2", "--listen", false, &faults), OK);
    assert_int_equal(config_set(config, listen, "[::]:2", "--listen", true, &faults), OK);
    assert_int_equal(config_set(config, upstream, "http://one", "--upstream", false, &faults), OK);
    assert_int_equal(config_set(config, upstream, "http://two", "--upstream", true, &faults), OK);
    assert_int_equal(config_set(config, profile, "guardia", "--profile", false, &faults), OK);
    /* A gateway may be reached by others without tokens: its upstream knows them. */
    assert_int_equal(config_check(config, &faults), OK);
    const struct config_route *route = &config->gateway.routes[0];
    assert_int_equal(config->gateway.listen_count, 2);
    assert_string_equal(config->gateway.listen[1], "[::]:2");
    assert_int_equal(route->upstream_count, 2);
    assert_string_equal(route->upstreams[1], "http://two");
    assert_int_equal(route->profile, CONFIG_PROFILE_GUARDIA);
    assert_int_equal(config_set(config, upstream, "two", "--upstream", false, &faults), E_INVALID);
    assert_int_equal(faults.count, 1);
    assert_string_equal(
        faults.items[0].text, "--upstream: gateway.upstream: 'two' is not an http or https URL");
    config_free(config);
}

static void an_upstream_from_a_flag_turns_it_on(void **state)
{
    (void)state;
    struct config_faults faults = {0};
    struct config *config = NULL;
    assert_int_equal(config_new(&mem_libc, &config, NULL), OK);
    assert_int_equal(config_set(config, config_option_find("gateway.upstream"), "http://a", "-u",
                         false, &faults),
        OK);
    assert_true(config->gateway.is_on);
    assert_int_equal(config_check(config, &faults), OK);
    assert_int_equal(config->gateway.route_count, 1);
    config_free(config);
}

static void routes_may_change_and_doors_may_not(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"gateway: {" UP "}\n", NULL},
        {"gateway: {upstream: http://b, routes: [{match: /a}], idle: 1s}\n", NULL},
        {"drain: 10s\n", "gateway.listen"},
        {"gateway: {" UP ", listen: 127.0.0.1:1}\n", "gateway.listen"},
        {"gateway: {" UP ", tls: {cert: a, key: b}}\n", "gateway.tls.cert"},
        {"gateway: {" UP ", spool_dir: /tmp}\n", "gateway.spool_dir"},
    };
    struct config *old = take("gateway: {" UP "}\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct config *new = take(texts[i][0]);
        const char *path = config_needs_restart(old, new);
        assert_true((path == NULL) == (texts[i][1] == NULL));
        assert_true(path == NULL || strcmp(path, texts[i][1]) == 0);
        config_free(new);
    }
    config_free(old);
}

static void every_setting_has_words_and_is_in_the_example(void **state)
{
    (void)state;
    struct buf made;
    buf_init(&made, &mem_libc, 1 << 20);
    config_example_put(&made);
    buf_char(&made, '\0');
    size_t count = 0;
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        char facts[256];
        if (o->help == NULL) {
            /* The table's own words are of routes, and on_status' of the name it had before. */
            assert_true(
                strcmp(o->path, "gateway.routes") == 0 || strcmp(o->path, "gateway.on_5xx") == 0);
            continue;
        }
        assert_true(o->unsure != NULL && o->in != 0);
        assert_true(o->fallback != NULL || o->example != NULL);
        assert_ptr_equal(config_option_find(o->path), o);
        (void)snprintf(facts, sizeof facts, "\n# %s: %s%s", o->path,
            o->fallback == NULL && o->absent == NULL ? "" : "default ",
            o->fallback != NULL ? o->fallback
            : o->absent != NULL ? o->absent
                                : "not set by default");
        const char *at = strstr(made.data, facts);
        assert_non_null(at);
        assert_non_null(strstr(at, "\n# If unsure: "));
        count++;
    }
    assert_int_equal(count, 48);
    buf_release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_section_there_is_no_gateway),
        TEST(an_upstream_alone_fences_every_path),
        TEST(a_key_may_be_in_a_field_or_in_the_body),
        TEST(each_profile_has_its_own_manners),
        TEST(a_section_says_everything),
        TEST(a_route_says_everything),
        TEST(a_route_wins_over_the_section_and_this_over_the_profile),
        TEST(what_no_route_matches_passes_to_the_first_upstream),
        TEST(the_window_goes_by_kind_where_none_is_said),
        TEST(principals_are_of_four_kinds),
        TEST(a_match_is_methods_and_a_path),
        TEST(an_unknown_key_is_refused_with_the_nearest_name),
        TEST(the_forms_are_held_to),
        TEST(urls_are_a_scheme_and_a_host),
        TEST(globs_begin_with_a_slash_and_can_match),
        TEST(reads_are_never_fenced),
        TEST(pointers_and_statuses_and_templates_are_checked),
        TEST(a_profile_bounds_the_window),
        TEST(settings_have_to_go_together),
        TEST(a_route_that_is_never_reached_is_refused),
        TEST(routes_and_items_are_bounded),
        TEST(flags_win_and_lists_grow),
        TEST(an_upstream_from_a_flag_turns_it_on),
        TEST(routes_may_change_and_doors_may_not),
        TEST(every_setting_has_words_and_is_in_the_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

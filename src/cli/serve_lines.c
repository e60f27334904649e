/* The output of a server when it is ready: four lines and the commands to paste first, or one JSON
 * object. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/out.h"
#include "cli/serve.h"

enum { LINES_BYTES_MAX = 64 << 10 };

/* "http://127.0.0.1:7411", or the address of a socket unchanged. */
static void put_url(struct buf *out, const struct serve *serve, const char *door, size_t which)
{
    const char *address = server_address(serve->server, door, which);
    const struct config *config = serve->config;
    const char *tls_cert =
        strcmp(door, "gateway") == 0 ? config->gateway.tls_cert : config->tls_cert;
    buf_printf(out, "%s%s",
        strncmp(address, "unix:", 5) == 0 ? ""
        : tls_cert != NULL                ? "https://"
                                          : "http://",
        address);
}

static void put_urls(struct buf *out, const struct serve *serve, const char *door)
{
    for (size_t i = 0; server_address(serve->server, door, i) != NULL; i++) {
        buf_str(out, i == 0 ? "" : ", ");
        put_url(out, serve, door, i);
    }
}

/* Where it listens, and its upstream. */
static void put_gateway(struct buf *out, const struct serve *serve)
{
    const struct config_gateway *gateway = &serve->config->gateway;
    put_urls(out, serve, "gateway");
    const struct config_route *route =
        gateway->route_count > 0 ? &gateway->routes[0] : gateway->otherwise;
    for (size_t i = 0; route != NULL && i < route->upstream_count; i++) {
        buf_printf(out, "%s%s", i == 0 ? " -> " : ", ", route->upstreams[i]);
    }
    if (gateway->route_count > 1) {
        buf_printf(out, " and %s", COUNTED(gateway->route_count - 1, "more route", "more routes"));
    }
}

static const char *route_fact(const void *gateway, size_t number, size_t which)
{
    return serve_gateway_fact(&((const struct config_gateway *)gateway)->routes[number], which);
}

/* `once check` shows which fact applies to which route. */
static void put_facts(struct buf *out, const struct config_gateway *gateway)
{
    serve_facts_put(out, &(struct serve_facts){.many = "routes",
                             .count = gateway->route_count,
                             .fact_count = SERVE_GATEWAY_FACTS,
                             .fact = route_fact,
                             .context = gateway});
}

/* A fenced request to try, ready to paste. */
static void put_gateway_curl(struct buf *out, const struct serve *serve)
{
    const char *address = server_address(serve->server, "gateway", 0);
    buf_str(out, "curl -sS -i -X POST ");
    if (strncmp(address, "unix:", 5) == 0) {
        buf_printf(out, "--unix-socket '%s' http://localhost", address + 5);
    } else {
        put_url(out, serve, "gateway", 0);
    }
    buf_str(out, "/ -H 'Idempotency-Key: \"00000000-0000-4000-8000-000000000001\"' "
                 "-H 'Content-Type: application/json' -d '{\"amount\":100}'");
}

static void put_store(struct buf *out, const struct serve *serve)
{
    const struct server_facts *facts = server_facts(serve->server);
    buf_printf(out, "%s: %s, %llu in progress, %llu unknown", facts->store,
        COUNTED(facts->operations, "operation", "operations"),
        (unsigned long long)facts->in_progress, (unsigned long long)facts->unknown);
    if (facts->writes != SERVER_WRITES_ELSEWHERE) { /* else others write most of it */
        buf_printf(out, "; %s of evidence", COUNTED(facts->entries, "entry", "entries"));
    }
}

/* A POST to /v1/fences, ready to paste, from the directory where the server was started; the path
 * and the body follow. */
static void put_curl(struct buf *out, const struct serve *serve)
{
    const struct config *config = serve->config;
    const char *address = server_address(serve->server, "api", 0);
    buf_str(out, "curl -sS -w '\\n' -H 'Content-Type: application/json' ");
    if (config->has_auth) {
        buf_str(out, "-H \"Authorization: Bearer $ONCE_TOKEN\" ");
    }
    if (strncmp(address, "unix:", 5) == 0) {
        buf_printf(out, "--unix-socket '%s' http://localhost", address + 5);
    } else {
        if (config->tls_cert != NULL) {
            buf_printf(out, "--cacert '%s' ", config->tls_cert);
        }
        put_url(out, serve, "api", 0);
    }
    buf_str(out, "/v1/fences");
}

/* Every start has its own key, so that the first command pasted is granted. The lease is longer
 * than a reader takes between two of them. */
static void put_begin(struct buf *out, const struct serve *serve)
{
    put_curl(out, serve);
    buf_printf(out,
        " -d '{\"scope\":\"try\",\"key\":\"order-%llu\",\"payload\":{\"amount\":100},"
        "\"lease\":\"1h\"}'",
        (unsigned long long)server_facts(serve->server)->operations + 1);
}

/* Three commands to paste in the first minute, for sh, bash and zsh. The first keeps the grant in a
 * variable for the second; pasting it again does not lose the grant. */
static void put_first_commands(struct buf *out, const struct serve *serve)
{
    buf_str(out, "paste these lines, one after another, into a second terminal: begin, seal, and "
                 "the same begin again\ngrant=$(");
    put_begin(out, serve);
    buf_str(out, " | tee /dev/stderr | grep '\"fence\"' || echo \"$grant\")\n");
    put_curl(out, serve);
    buf_str(out, "/$(echo \"$grant\" | grep -o 'op_[^\"]*')/seal "
                 "-d '{'$(echo \"$grant\" | grep -o '\"fence\":[0-9]*')',"
                 "\"status\":\"executed\",\"outcome\":{\"charge\":\"ch_1\"}}'\n");
    put_begin(out, serve);
    buf_char(out, '\n');
}

static void put_writes(struct buf *out, const struct serve *serve)
{
    const struct server_facts *facts = server_facts(serve->server);
    if (facts->writes == SERVER_WRITES_MEMORY) {
        buf_str(out, "in memory: nothing outlives this process");
        return;
    }
    if (facts->writes == SERVER_WRITES_ELSEWHERE) {
        buf_str(out, "by the database server: a commit counts when it says so");
        return;
    }
    buf_str(out, facts->way);
    if (facts->flush_ns > 0) {
        buf_printf(out, ", a flush takes about %.2f ms", (double)facts->flush_ns / 1e6);
    }
}

/* For a person, or on a new store; a service that restarts does not need this. */
static void put_first_steps(struct buf *out, const struct serve *serve)
{
    if (isatty(STDOUT_FILENO) != 1 && server_facts(serve->server)->operations > 0) {
        return;
    }
    if (serve->config->gateway.is_on) {
        put_gateway_curl(out, serve);
        buf_char(out, '\n');
    } else {
        put_first_commands(out, serve);
    }
}

static void put_json_urls(
    struct jsonw *json, const char *name, const struct serve *serve, const char *door)
{
    struct buf url;
    buf_init(&url, &mem_libc, LINES_BYTES_MAX);
    jsonw_open(json, name, '[');
    for (size_t i = 0; server_address(serve->server, door, i) != NULL; i++) {
        buf_clear(&url);
        put_url(&url, serve, door, i);
        jsonw_bytes(json, NULL, buf_view(&url));
    }
    jsonw_close(json, ']');
    buf_release(&url);
}

static int print_json(const struct serve *serve)
{
    struct buf bytes;
    struct buf part;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, LINES_BYTES_MAX);
    buf_init(&part, &mem_libc, LINES_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "version", once_version());
    put_json_urls(&json, "urls", serve, "api");
    jsonw_str(&json, "store", server_facts(serve->server)->store);
    jsonw_u64(&json, "operations", server_facts(serve->server)->operations);
    put_writes(&part, serve);
    jsonw_bytes(&json, "writes", buf_view(&part));
    if (serve->config->gateway.is_on) {
        put_json_urls(&json, "gateway", serve, "gateway");
    }
    buf_clear(&part);
    if (serve->config->gateway.is_on) {
        put_gateway_curl(&part, serve);
    } else {
        put_begin(&part, serve);
    }
    jsonw_bytes(&json, "try", buf_view(&part));
    jsonw_close(&json, '}');
    int code = jsonw_print(&json);
    buf_release(&part);
    buf_release(&bytes);
    return code;
}

int serve_lines(struct serve *serve)
{
    struct buf lines;
    if (serve->cli->json) {
        return print_json(serve);
    }
    buf_init(&lines, &mem_libc, LINES_BYTES_MAX);
    buf_printf(&lines, "once %s", once_version());
    if (serve->config->gateway.is_on) {
        buf_str(&lines, "\ngateway on ");
        put_gateway(&lines, serve);
        put_facts(&lines, &serve->config->gateway);
    }
    if (serve->config->listen_count > 0) {
        buf_str(&lines, "\nlistening on ");
        put_urls(&lines, serve, "api");
    }
    serve_work_lines(&lines, serve->config);
    buf_str(&lines, "\nstore ");
    put_store(&lines, serve);
    buf_str(&lines, "\nwrites ");
    put_writes(&lines, serve);
    buf_char(&lines, '\n');
    put_first_steps(&lines, serve);
    out_bytes(buf_view(&lines));
    buf_release(&lines);
    return out_finish();
}

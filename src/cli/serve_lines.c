/* What a server says on standard output when it is ready: five lines, or one JSON object. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/out.h"
#include "cli/serve.h"

enum { FLUSH_TRIES = 5, FLUSH_BYTES = 4096, LINES_BYTES_MAX = 64 << 10 };

uint64_t serve_flush_nanos(const char *dir)
{
    static const char block[FLUSH_BYTES];
    uint64_t best = UINT64_MAX;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    /* The first write makes room for the block; those after it are what a commit costs. */
    bool works = fd >= 0 && pwrite(fd, block, sizeof block, 0) == (ssize_t)sizeof block &&
                 fdatasync(fd) == 0;
    for (int i = 0; works && i < FLUSH_TRIES; i++) {
        uint64_t begin = clock_nanos();
        works = pwrite(fd, block, sizeof block, 0) == (ssize_t)sizeof block && fdatasync(fd) == 0;
        uint64_t took = clock_nanos() - begin;
        best = took < best ? took : best;
    }
    if (fd >= 0) {
        (void)close(fd); /* it has no name: gone */
    }
    return works ? best : 0;
}

static void put_url(struct buf *out, const struct serve *serve, size_t which)
{
    const char *bound = serve->bound[which];
    bool is_unix = strncmp(bound, "unix:", 5) == 0;
    buf_printf(out, "%s%s",
        is_unix                           ? ""
        : serve->config->tls_cert != NULL ? "https://"
                                          : "http://",
        bound);
}

static void put_urls(struct buf *out, const struct serve *serve)
{
    for (size_t i = 0; i < serve->config->listen_count; i++) {
        buf_str(out, i == 0 ? "" : ", ");
        put_url(out, serve, i);
    }
}

static void put_gateway_url(struct buf *out, const struct serve *serve, size_t which)
{
    const char *bound = serve->gateway_bound[which];
    buf_printf(out, "%s%s",
        strncmp(bound, "unix:", 5) == 0           ? ""
        : serve->config->gateway.tls_cert != NULL ? "https://"
                                                  : "http://",
        bound);
}

/* Where it listens, and what is behind it. */
static void put_gateway(struct buf *out, const struct serve *serve)
{
    const struct config_gateway *gateway = &serve->config->gateway;
    for (size_t i = 0; i < gateway->listen_count; i++) {
        buf_str(out, i == 0 ? "" : ", ");
        put_gateway_url(out, serve, i);
    }
    const struct config_route *route =
        gateway->route_count > 0 ? &gateway->routes[0] : gateway->otherwise;
    for (size_t i = 0; route != NULL && i < route->upstream_count; i++) {
        buf_printf(out, "%s%s", i == 0 ? " -> " : ", ", route->upstreams[i]);
    }
    if (gateway->route_count > 1) {
        buf_printf(out, " and %zu more route%s", gateway->route_count - 1,
            gateway->route_count == 2 ? "" : "s");
    }
}

/* A fenced request to try, as it stands. */
static void put_gateway_curl(struct buf *out, const struct serve *serve)
{
    buf_str(out, "curl -sS -i -X POST ");
    if (strncmp(serve->gateway_bound[0], "unix:", 5) == 0) {
        buf_printf(out, "--unix-socket '%s' http://localhost", serve->gateway_bound[0] + 5);
    } else {
        put_gateway_url(out, serve, 0);
    }
    buf_str(out, "/ -H 'Idempotency-Key: \"00000000-0000-4000-8000-000000000001\"' "
                 "-H 'Content-Type: application/json' -d '{\"amount\":100}'");
}

static void put_store(struct buf *out, const struct serve *serve)
{
    const struct store_head *head = &serve->head;
    buf_printf(out,
        "%s: %llu operation%s, %llu in progress, %llu unknown; %llu entries of evidence",
        serve->config->store, (unsigned long long)head->records, head->records == 1 ? "" : "s",
        (unsigned long long)head->in_progress, (unsigned long long)head->unknown,
        (unsigned long long)head->seq);
}

/* Works as it stands, in any shell, from the directory the server was started in. */
static void put_curl(struct buf *out, const struct serve *serve)
{
    const struct config *config = serve->config;
    bool is_unix = strncmp(serve->bound[0], "unix:", 5) == 0;
    buf_str(out, "curl -sS ");
    if (is_unix) {
        buf_printf(out, "--unix-socket '%s' http://localhost", serve->bound[0] + 5);
    } else {
        if (config->tls_cert != NULL) {
            buf_printf(out, "--cacert '%s' ", config->tls_cert);
        }
        put_url(out, serve, 0);
    }
    buf_str(out, "/v1/fences -H 'Content-Type: application/json'");
    if (config->has_auth) {
        buf_str(out, " -H \"Authorization: Bearer $ONCE_TOKEN\"");
    }
    buf_str(out, " -d '{\"scope\":\"try\",\"key\":\"order-1\",\"payload\":{\"amount\":100}}'");
}

/* What a newcomer pastes first. */
static void put_try(struct buf *out, const struct serve *serve)
{
    if (serve->gateway != NULL) {
        put_gateway_curl(out, serve);
    } else {
        put_curl(out, serve);
    }
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
    jsonw_open(&json, "urls", '[');
    for (size_t i = 0; i < serve->config->listen_count; i++) {
        buf_clear(&part);
        put_url(&part, serve, i);
        jsonw_bytes(&json, NULL, buf_view(&part));
    }
    jsonw_close(&json, ']');
    jsonw_str(&json, "store", serve->config->store);
    jsonw_u64(&json, "operations", serve->head.records);
    jsonw_str(&json, "writes", serve->writes);
    if (serve->gateway != NULL) {
        jsonw_open(&json, "gateway", '[');
        for (size_t i = 0; i < serve->config->gateway.listen_count; i++) {
            buf_clear(&part);
            put_gateway_url(&part, serve, i);
            jsonw_bytes(&json, NULL, buf_view(&part));
        }
        jsonw_close(&json, ']');
    }
    buf_clear(&part);
    put_try(&part, serve);
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
    if (serve->gateway != NULL) {
        buf_str(&lines, "\ngateway on ");
        put_gateway(&lines, serve);
    }
    if (serve->config->listen_count > 0) {
        buf_str(&lines, "\nlistening on ");
        put_urls(&lines, serve);
    }
    buf_str(&lines, "\nstore ");
    put_store(&lines, serve);
    buf_printf(&lines, "\nwrites %s\n", serve->writes);
    put_try(&lines, serve);
    buf_char(&lines, '\n');
    out_bytes(buf_view(&lines));
    buf_release(&lines);
    return out_finish();
}

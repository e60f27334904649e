/*
 * fuzz_redis: a store's URL, and where a server says that the store is.
 *
 * The first byte chooses which. A URL that is taken has bounded parts that end, and its password is
 * in no error. A redirect that is followed leads to a host and a port.
 */
#include <string.h>

#include "base/check.h"
#include "store/redis/impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES_MAX = 4096 };

static void url_try(const char *text)
{
    struct redis_url url;
    struct err err = {0};
    enum status status = redis_url_read(text, &url, &err);
    ASSERT(status == OK || status == E_INVALID);
    ASSERT((status == OK) == (err.status == OK));
    if (status != OK) {
        return;
    }
    ASSERT(url.hosts_count <= REDIS_HOSTS_MAX);
    ASSERT((url.hosts_count == 0) == (url.socket[0] != '\0'));
    ASSERT(url.sentinels == (url.service[0] != '\0'));
    ASSERT(url.name[0] != '\0' && memchr(url.name, '\0', sizeof url.name) != NULL);
    for (size_t i = 0; i < url.hosts_count; i++) {
        ASSERT(url.hosts[i].host[0] != '\0' && url.hosts[i].port[0] != '\0');
        ASSERT(memchr(url.hosts[i].host, '\0', sizeof url.hosts[i].host) != NULL);
    }
}

static void redirect_try(const char *text)
{
    static struct redis_url url = {.hosts = {{.host = "h", .port = "1"}}, .hosts_count = 1};
    static const struct redis_tls plain = {.context = NULL};
    struct redis_link link;
    redis_link_init(&link, &url, &plain);
    link.nodes.at = url.hosts[0];
    if (nodes_redirect(&link, text)) {
        ASSERT(link.nodes.best.host[0] != '\0' && link.nodes.best.port[0] != '\0');
        ASSERT(memchr(link.nodes.best.host, '\0', sizeof link.nodes.best.host) != NULL);
        ASSERT(link.nodes.is_cluster);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_BYTES_MAX];
    if (size == 0 || size > sizeof text) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] == 'u') {
        url_try(text);
    } else {
        redirect_try(text);
    }
    return 0;
}

/*
 * The store's URL. The password in it appears in no error text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/percent.h"
#include "base/text.h"
#include "store/redis/impl.h"

enum { WAIT_REPLICAS_MAX = 16, DB_MAX = 65535 }; /* more is a typing error */

/* Copies a part of the URL, percent-decoded. False: it is too long or has a zero byte. */
static bool part_take(struct slice text, char *ret_text, size_t size)
{
    size_t len = 0;
    while (text.len > 0 && len + 1 < size) {
        char byte = text.data[0];
        size_t used = 1;
        if (byte == '%') {
            if (!percent_read(text, &byte)) {
                return false;
            }
            used = 3;
        }
        if (byte == '\0') {
            return false;
        }
        ret_text[len++] = byte;
        text = slice_of(text.data + used, text.len - used);
    }
    ret_text[len] = '\0';
    return text.len == 0;
}

/* Splits *text at the mark: *ret_before is the part before it, *text the part after it; false:
 * there is no mark. */
static bool split(struct slice *text, char mark, struct slice *ret_before)
{
    const char *at = text->len == 0 ? NULL : memchr(text->data, mark, text->len);
    if (at == NULL) {
        return false;
    }
    size_t len = (size_t)(at - text->data);
    *ret_before = slice_of(text->data, len);
    *text = slice_of(at + 1, text->len - len - 1);
    return true;
}

static bool name_is_good(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
    return len > 0 && name[len] == '\0';
}

static enum status option_take(
    struct redis_url *url, struct slice name, struct slice value, struct err *err)
{
    uint64_t number = 0;
    bool good = false;
    if (slice_is(name, "name")) {
        good = part_take(value, url->name, sizeof url->name) && name_is_good(url->name);
    } else if (slice_is(name, "wait")) {
        good = text_u64(value, &number) && number <= WAIT_REPLICAS_MAX;
        url->wait = (unsigned)number;
    } else if (slice_is(name, "wait_timeout")) {
        good = text_duration(value, &url->wait_ms) && url->wait_ms > 0 && url->wait_ms <= 60000;
    } else if (slice_is(name, "socket")) {
        good = part_take(value, url->socket, sizeof url->socket) && url->socket[0] == '/';
    } else if (slice_is(name, "cacert")) {
        good = part_take(value, url->ca_file, sizeof url->ca_file) && value.len > 0;
    } else if (slice_is(name, "cert")) {
        good = part_take(value, url->cert_file, sizeof url->cert_file) && value.len > 0;
    } else if (slice_is(name, "key")) {
        good = part_take(value, url->key_file, sizeof url->key_file) && value.len > 0;
    } else {
        (void)err_set(err, E_INVALID, "a redis: URL has no option '%.*s'", SLICE_ARGS(name));
        err_hint(err, "there are name, wait, wait_timeout, socket, cacert, cert and key");
        return E_INVALID;
    }
    return good ? OK
                : err_set(err, E_INVALID, "option '%.*s' of the redis: URL cannot be '%.*s'",
                      SLICE_ARGS(name), SLICE_ARGS(value));
}

static enum status options_take(struct redis_url *url, struct slice text, struct err *err)
{
    enum status status = OK;
    while (text.len > 0 && status == OK) {
        struct slice option;
        struct slice name;
        if (!split(&text, '&', &option)) {
            option = text;
            text = SLICE_EMPTY;
        }
        if (!split(&option, '=', &name)) {
            return err_set(
                err, E_INVALID, "option '%.*s' of the redis: URL has no value", SLICE_ARGS(option));
        }
        status = option_take(url, name, option, err);
    }
    return status;
}

static enum status account_take(struct redis_url *url, struct slice text, struct err *err)
{
    struct slice user = text;
    struct slice password = text;
    if (split(&password, ':', &user)) {
        if (!part_take(password, url->password, sizeof url->password)) {
            return err_set(err, E_INVALID, "the password of the redis: URL cannot be read");
        }
    }
    return part_take(user, url->user, sizeof url->user)
               ? OK
               : err_set(err, E_INVALID, "the user of the redis: URL cannot be read");
}

bool redis_address_read(struct slice text, unsigned port_default, struct redis_address *ret_address)
{
    struct redis_address address;
    struct slice host = text;
    struct slice port = SLICE_EMPTY;
    uint64_t number = port_default;
    if (text.len > 0 && text.data[0] == '[') {
        port = slice_of(text.data + 1, text.len - 1);
        if (!split(&port, ']', &host) || (port.len > 0 && port.data[0] != ':')) {
            return false;
        }
        port = port.len > 0 ? slice_of(port.data + 1, port.len - 1) : port;
    } else if (split(&text, ':', &host)) {
        port = text;
    }
    if ((port.len > 0 && (!text_u64(port, &number) || number == 0 || number > 65535)) ||
        !part_take(host, address.host, sizeof address.host) || address.host[0] == '\0') {
        return false;
    }
    (void)snprintf(address.port, sizeof address.port, "%u", (unsigned)number & 0xffff);
    *ret_address = address;
    return true;
}

/* Takes HOST[:PORT], or several separated by commas. */
static enum status hosts_take(struct redis_url *url, struct slice text, struct err *err)
{
    unsigned port_default = url->sentinels ? 26379 : 6379;
    while (text.len > 0) {
        struct slice one;
        if (!split(&text, ',', &one)) {
            one = text;
            text = SLICE_EMPTY;
        }
        if (url->hosts_count == REDIS_HOSTS_MAX) {
            return err_set(err, E_INVALID, "a redis: URL has %d hosts at most", REDIS_HOSTS_MAX);
        }
        if (!redis_address_read(one, port_default, &url->hosts[url->hosts_count])) {
            return err_set(err, E_INVALID, "the host and port of the redis: URL cannot be read");
        }
        url->hosts_count++;
    }
    return OK;
}

/* Takes what the URL leaves out from the environment, as redis-cli does. */
static void environment_take(struct redis_url *url)
{
    const char *password = getenv("REDISCLI_AUTH");
    if (url->password[0] == '\0' && password != NULL && strlen(password) < sizeof url->password) {
        memcpy(url->password, password, strlen(password) + 1);
    }
}

/* "DB"; of Sentinels "SERVICE" or "SERVICE/DB". */
static enum status path_take(struct redis_url *url, struct slice path, struct err *err)
{
    uint64_t db = 0;
    if (url->sentinels) {
        struct slice service = path;
        path = split(&path, '/', &service) ? path : SLICE_EMPTY;
        if (service.len == 0 || !part_take(service, url->service, sizeof url->service)) {
            (void)err_set(err, E_INVALID, "the path of a redis+sentinel: URL names the server");
            err_hint(err, "redis+sentinel://HOST:26379,HOST:26379/mymaster");
            return E_INVALID;
        }
    }
    if (path.len > 0 && (!text_u64(path, &db) || db > DB_MAX)) {
        return err_set(err, E_INVALID, "the path of a redis: URL is the number of a database");
    }
    url->db = (unsigned)db;
    return OK;
}

static enum status parts_take(struct redis_url *url, struct slice text, struct err *err)
{
    struct slice account = SLICE_EMPTY;
    struct slice options = text;
    struct slice path = text; /* "SERVER/DB", without the options */
    if (!split(&options, '?', &path)) {
        options = SLICE_EMPTY;
    }
    struct slice hosts = path;
    path = split(&path, '/', &hosts) ? path : SLICE_EMPTY;
    enum status status = path_take(url, path, err);
    if (status == OK && split(&hosts, '@', &account)) {
        status = account_take(url, account, err);
    }
    status = status == OK ? hosts_take(url, hosts, err) : status;
    return status == OK ? options_take(url, options, err) : status;
}

/* Checks that the parts fit together. */
static enum status parts_check(const struct redis_url *url, struct err *err)
{
    if ((url->hosts_count == 0) == (url->socket[0] == '\0')) {
        return err_set(err, E_INVALID, "a redis: URL needs a host, or a socket in its place");
    }
    if (!url->tls &&
        (url->ca_file[0] != '\0' || url->cert_file[0] != '\0' || url->key_file[0] != '\0')) {
        return err_set(err, E_INVALID, "cacert, cert and key are options of rediss: URLs");
    }
    return (url->cert_file[0] == '\0') == (url->key_file[0] == '\0')
               ? OK
               : err_set(err, E_INVALID, "cert and key of a rediss: URL need each other");
}

static const struct {
    const char *prefix;
    bool tls;
    bool sentinels;
} schemes[] = {
    {"redis://", false, false},
    {"rediss://", true, false},
    {"redis+sentinel://", false, true},
    {"rediss+sentinel://", true, true},
};

enum status redis_url_read(const char *url, struct redis_url *ret_url, struct err *err)
{
    struct redis_url read = {.name = "once", .wait_ms = 5000};
    const char *rest = NULL;
    for (size_t i = 0; i < COUNT(schemes); i++) {
        if (strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) {
            rest = url + strlen(schemes[i].prefix);
            read.tls = schemes[i].tls;
            read.sentinels = schemes[i].sentinels;
        }
    }
    if (rest == NULL) {
        return err_set(err, E_INVALID, "a redis: URL begins with 'redis://' or 'rediss://'");
    }
    enum status status = parts_take(&read, slice_str(rest), err);
    status = status == OK ? parts_check(&read, err) : status;
    if (status == OK) {
        environment_take(&read);
        bool is_unix = read.socket[0] != '\0';
        (void)snprintf(read.where, sizeof read.where, "%s%s%s",
            is_unix ? read.socket : read.hosts[0].host, is_unix ? "" : ":",
            is_unix ? "" : read.hosts[0].port);
        *ret_url = read;
    }
    mem_wipe(&read, sizeof read);
    return status;
}

enum status redis_url_check(const char *url, struct err *err)
{
    struct redis_url read;
    enum status status = redis_url_read(url, &read, err);
    mem_wipe(&read, sizeof read);
    return status;
}

/*
 * The store's URL. The password in it appears in no error text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/percent.h"
#include "base/text.h"
#include "store/redis/impl.h"

enum { WAIT_REPLICAS_MAX = 16, DB_MAX = 65535 }; /* more is a typing error */

/* Copy a part of the URL, its percent signs decoded. False: it is too long or has a zero byte. */
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

/* What is before the mark, and in *text what is after it; false: there is no mark. */
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
    } else {
        (void)err_set(err, E_INVALID, "a redis: URL has no option '%.*s'", SLICE_ARGS(name));
        err_hint(err, "there are name, wait, wait_timeout and socket");
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

/* HOST, HOST:PORT, [IPv6] or [IPv6]:PORT. */
static enum status server_take(struct redis_url *url, struct slice text, struct err *err)
{
    struct slice host = text;
    struct slice port = SLICE_EMPTY;
    uint64_t number = 6379;
    if (text.len > 0 && text.data[0] == '[') {
        port = slice_of(text.data + 1, text.len - 1);
        if (!split(&port, ']', &host) || (port.len > 0 && port.data[0] != ':')) {
            return err_set(err, E_INVALID, "the host of the redis: URL cannot be read");
        }
        port = port.len > 0 ? slice_of(port.data + 1, port.len - 1) : port;
    } else if (split(&text, ':', &host)) {
        port = text;
    }
    if ((port.len > 0 && (!text_u64(port, &number) || number == 0 || number > 65535)) ||
        !part_take(host, url->host, sizeof url->host)) {
        return err_set(err, E_INVALID, "the host and port of the redis: URL cannot be read");
    }
    (void)snprintf(url->port, sizeof url->port, "%u", (unsigned)number & 0xffff);
    return OK;
}

/* What the URL leaves out comes from the environment, as redis-cli has it. */
static void environment_take(struct redis_url *url)
{
    const char *password = getenv("REDISCLI_AUTH");
    if (url->password[0] == '\0' && password != NULL && strlen(password) < sizeof url->password) {
        memcpy(url->password, password, strlen(password) + 1);
    }
}

static enum status parts_take(struct redis_url *url, struct slice text, struct err *err)
{
    struct slice account = SLICE_EMPTY;
    struct slice options = text;
    struct slice path = text; /* "SERVER/DB", without the options */
    uint64_t db = 0;
    if (!split(&options, '?', &path)) {
        options = SLICE_EMPTY;
    }
    struct slice server = path;
    if (split(&path, '/', &server)) {
        if (path.len > 0 && (!text_u64(path, &db) || db > DB_MAX)) {
            return err_set(err, E_INVALID, "the path of a redis: URL is the number of a database");
        }
        url->db = (unsigned)db;
    }
    enum status status = OK;
    if (split(&server, '@', &account)) {
        status = account_take(url, account, err);
    }
    status = status == OK ? server_take(url, server, err) : status;
    return status == OK ? options_take(url, options, err) : status;
}

enum status redis_url_read(const char *url, struct redis_url *ret_url, struct err *err)
{
    static const char scheme[] = "redis://";
    struct redis_url read = {.name = "once", .wait_ms = 5000};
    if (strncmp(url, "rediss:", 7) == 0) {
        (void)err_set(err, E_INVALID, "rediss: is not supported: hiredis of this build has no TLS");
        err_hint(err, "let stunnel or a sidecar encrypt, and connect to it with redis://");
        return E_INVALID;
    }
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) {
        return err_set(err, E_INVALID, "a redis: URL begins with 'redis://'");
    }
    enum status status = parts_take(&read, slice_str(url + sizeof scheme - 1), err);
    if (status == OK && (read.host[0] == '\0') == (read.socket[0] == '\0')) {
        status = err_set(err, E_INVALID, "a redis: URL needs a host, or a socket in its place");
    }
    if (status == OK) {
        environment_take(&read);
        (void)snprintf(read.where, sizeof read.where, "%s%s%s",
            read.socket[0] != '\0' ? read.socket : read.host, read.socket[0] != '\0' ? "" : ":",
            read.socket[0] != '\0' ? "" : read.port);
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

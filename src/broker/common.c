#include "broker/common.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/percent.h"
#include "base/text.h"

bool broker_decode(struct slice text, char *ret_text, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len && len + 1 < size; i++) {
        char c = text.data[i];
        if (c == '%') {
            if (!percent_read(slice_of(text.data + i, text.len - i), &c)) {
                return false;
            }
            i += 2;
        }
        if (c == '\0') {
            return false;
        }
        ret_text[len++] = c;
        if (i + 1 == text.len) {
            ret_text[len] = '\0';
            return true;
        }
    }
    return false;
}

/* ---- the URL ------------------------------------------------------------------------------- */

/* The text up to the first of these characters; *at is moved past that character. */
static struct slice until_any(const char **at, const char *ends)
{
    size_t len = strcspn(*at, ends);
    struct slice found = slice_of(*at, len);
    *at += len;
    return found;
}

static enum status read_user(struct slice text, struct broker_url *url, struct err *err)
{
    const char *colon = text.len == 0 ? NULL : memchr(text.data, ':', text.len);
    size_t len = colon == NULL ? text.len : (size_t)(colon - text.data);
    struct slice password = colon == NULL ? SLICE_EMPTY : slice_of(colon + 1, text.len - len - 1);
    bool is_good =
        (len == 0 || broker_decode(slice_of(text.data, len), url->user, sizeof url->user)) &&
        (password.len == 0 || broker_decode(password, url->password, sizeof url->password));
    return is_good ? OK
                   : err_set(err, E_INVALID,
                         "the user or password of the URL is malformed or "
                         "too long");
}

static enum status read_hosts(struct slice place, struct broker_url *url, struct err *err)
{
    const char *at = NULL;
    for (size_t i = 0; i < place.len; i++) {
        at = place.data[i] == '@' ? place.data + i : at;
    }
    enum status status = OK;
    if (at != NULL) {
        status = read_user(slice_of(place.data, (size_t)(at - place.data)), url, err);
        place = slice_of(at + 1, place.len - (size_t)(at - place.data) - 1);
    }
    if (status == OK && (place.len == 0 || place.len >= sizeof url->hosts)) {
        status = err_set(err, E_INVALID, "the URL names no host, or too many");
    }
    if (status == OK) {
        memcpy(url->hosts, place.data, place.len);
        url->hosts[place.len] = '\0';
    }
    return status;
}

static enum status read_path(const char **at, struct broker_url *url, struct err *err)
{
    while (**at == '/') {
        (*at)++;
        struct slice part = until_any(at, "/?");
        if (url->path_count == BROKER_URL_PARTS_MAX ||
            !broker_decode(part, url->path[url->path_count], BROKER_TEXT_BYTES_MAX)) {
            return err_set(err, E_INVALID,
                "the path of the URL has too many parts, or an empty "
                "one");
        }
        url->path_count++;
    }
    return OK;
}

static bool read_option(const struct broker_option *option, struct slice value)
{
    if (option->text != NULL) {
        return broker_decode(value, option->text, BROKER_TEXT_BYTES_MAX);
    }
    int64_t ms = 0;
    if (!text_duration(value, &ms) || ms < option->ms_min || ms > option->ms_max) {
        return false;
    }
    *option->ms = ms;
    return true;
}

static enum status read_options(const char *at, const struct broker_option *options, size_t count,
    const char *scheme, struct err *err)
{
    while (*at != '\0') {
        at++;
        struct slice text = until_any(&at, "&");
        const char *equals = text.len == 0 ? NULL : memchr(text.data, '=', text.len);
        size_t len = equals == NULL ? text.len : (size_t)(equals - text.data);
        struct slice value =
            equals == NULL ? SLICE_EMPTY : slice_of(equals + 1, text.len - len - 1);
        bool is_good = false;
        for (size_t i = 0; i < count; i++) {
            if (slice_is(slice_of(text.data, len), options[i].name)) {
                is_good = read_option(&options[i], value);
            }
        }
        if (!is_good) {
            return err_set(err, E_INVALID,
                "option '%.*s' of the %s: URL is unknown, or cannot be "
                "that",
                (int)len, text.data, scheme);
        }
    }
    return OK;
}

enum status broker_url_read(const char *text, struct broker_url *ret_url,
    const struct broker_option *options, size_t option_count, struct err *err)
{
    const char *at = strstr(text, "://");
    struct broker_url *url = ret_url;
    size_t len = at == NULL ? 0 : (size_t)(at - text);
    *url = (struct broker_url){.path_count = 0};
    if (at == NULL || len == 0 || len >= sizeof url->scheme) {
        return err_set(err, E_INVALID, "it is not a URL");
    }
    memcpy(url->scheme, text, len);
    at += 3;
    struct slice place = until_any(&at, "/?");
    enum status status = read_hosts(place, url, err);
    status = status == OK ? read_path(&at, url, err) : status;
    return status == OK ? read_options(at, options, option_count, url->scheme, err) : status;
}

bool broker_url_host(const struct broker_url *url, size_t number,
    char ret_host[BROKER_TEXT_BYTES_MAX], char ret_port[BROKER_PORT_TEXT_BYTES])
{
    const char *at = url->hosts;
    for (size_t i = 0; i < number; i++) {
        (void)until_any(&at, ",");
        if (*at == '\0') {
            return false;
        }
        at++;
    }
    struct slice one = until_any(&at, ",");
    const char *end = one.data + one.len;
    bool is_bracketed = one.len > 0 && one.data[0] == '[';
    const char *close = is_bracketed ? memchr(one.data, ']', one.len) : NULL;
    const char *from = close != NULL ? close : one.data;
    const char *colon = one.len == 0 ? NULL : memchr(from, ':', (size_t)(end - from));
    struct slice host =
        close != NULL ? slice_of(one.data + 1, (size_t)(close - one.data) - 1)
                      : slice_of(one.data, (size_t)((colon == NULL ? end : colon) - one.data));
    struct slice port =
        colon == NULL ? SLICE_EMPTY : slice_of(colon + 1, (size_t)(end - colon) - 1);
    if (host.len == 0 || host.len >= BROKER_TEXT_BYTES_MAX || port.len >= BROKER_PORT_TEXT_BYTES) {
        return false;
    }
    memcpy(ret_host, host.data, host.len);
    ret_host[host.len] = '\0';
    memcpy(ret_port, port.len == 0 ? "" : port.data, port.len);
    ret_port[port.len] = '\0';
    return true;
}

/* ---- messages ------------------------------------------------------------------------------ */

/* "cloudEvents:id" → "ce-id"; any other name stays as it is. */
static bool name_of(const char *prefix, struct slice *name, struct arena *arena)
{
    size_t len = strlen(prefix);
    if (name->len <= len || memcmp(name->data, prefix, len) != 0) {
        return true;
    }
    char *made = arena_alloc(arena, name->len - len + 3);
    if (made == NULL) {
        return false;
    }
    memcpy(made, "ce-", 3);
    memcpy(made + 3, name->data + len, name->len - len);
    *name = slice_of(made, name->len - len + 3);
    return true;
}

bool broker_put_field(struct broker_message *message, struct broker_field *fields,
    const char *prefix, struct slice name, struct slice value, struct arena *arena)
{
    if (!name_of(prefix, &name, arena)) {
        return false;
    }
    if (slice_is(name, "ce-datacontenttype") || slice_is(name, "content-type")) {
        message->type = value;
    } else if (message->field_count < BROKER_FIELDS_MAX) {
        bool is_attribute = name.len > 3 && memcmp(name.data, "ce-", 3) == 0;
        message->is_binary = message->is_binary || is_attribute;
        fields[message->field_count++] = (struct broker_field){name, value};
    }
    return true;
}

void broker_end_fields(struct broker_message *message)
{
    static const char structured[] = "application/cloudevents";
    size_t len = sizeof structured - 1;
    bool is_structured =
        message->type.len >= len && memcmp(message->type.data, structured, len) == 0;
    message->is_binary = message->is_binary && !is_structured;
}

/* ---- waiting ------------------------------------------------------------------------------- */

uint64_t broker_until(int64_t ms)
{
    return clock_nanos() + UINT64_C(1000000) * (uint64_t)(ms < 0 ? 0 : ms);
}

int64_t broker_left_ms(uint64_t until_ns)
{
    uint64_t now = clock_nanos();
    return now >= until_ns ? 0 : (int64_t)((until_ns - now) / 1000000) + 1;
}

bool broker_wait(int fd, int wake_fd, int64_t wait_ms)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    return poll(fds, 2, (int)wait_ms) > 0 && fds[0].revents != 0 && fds[1].revents == 0;
}

/* ---- a source ------------------------------------------------------------------------------ */

enum status broker_pair(
    const struct broker_url *url, const char *cert, const char *key, struct err *err)
{
    return (cert[0] == '\0') == (key[0] == '\0')
               ? OK
               : err_set(
                     err, E_INVALID, "cert and key of a URL with %s: come together", url->scheme);
}

void broker_source_free(void *source, size_t bytes)
{
    mem_wipe(source, bytes);
    mem_free(&mem_libc, source);
}

enum status broker_source_read(size_t bytes,
    enum status (*read)(void *source, const char *url, struct err *err), const char *url,
    void **ret_source, struct err *err)
{
    void *made = mem_zalloc(&mem_libc, 1, bytes);
    if (made == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a queue");
    }
    enum status status = read(made, url, err);
    if (status != OK || ret_source == NULL) {
        broker_source_free(made, bytes);
        return status;
    }
    *ret_source = made;
    return OK;
}

enum status broker_arrivals(int *ret_fd, struct err *err)
{
    *ret_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *ret_fd >= 0 ? OK : err_set(err, E_NOMEM, "cannot make an eventfd");
}

void broker_arrivals_clear(int fd)
{
    uint64_t count = 0;
    ssize_t got = read(fd, &count, sizeof count); /* it does not block */
    (void)got;
}

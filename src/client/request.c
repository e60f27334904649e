#include "client/request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/slice.h"
#include "base/uuid.h"

enum {
    LINES_OWN_MAX = 4, /* Request-Id, Idempotency-Key, Expect, Content-Type */
    KEY_LINE_BYTES_MAX = 17 + 2 + 2 * LIMIT_KEY_BYTES_MAX, /* name, quotes, all escaped */
};

/* ---- checks ------------------------------------------------------------------------------ */

static enum status check_method(const char *method, struct err *err)
{
    size_t len = strlen(method);
    for (size_t i = 0; i < len; i++) {
        if ((method[i] < 'A' || method[i] > 'Z') && (method[i] != '-' || i == 0)) {
            return err_set(err, E_INVALID, "method is not in capital letters");
        }
    }
    if (len == 0 || len > REQUEST_METHOD_BYTES_MAX || strcmp(method, "CONNECT") == 0) {
        return err_set(
            err, E_INVALID, "method '%.*s' cannot be sent", REQUEST_METHOD_BYTES_MAX, method);
    }
    return OK;
}

static enum status check_url(const char *url, struct err *err)
{
    size_t len = strlen(url);
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) {
        return err_set(err, E_INVALID, "url does not begin with http:// or https://");
    }
    for (size_t i = 0; i < len; i++) {
        if (url[i] <= ' ' || url[i] >= 0x7f) {
            return err_set(
                err, E_INVALID, "url has a space or an odd character; escape it as %%XX");
        }
    }
    if (len > REQUEST_URL_BYTES_MAX) {
        return err_set(err, E_INVALID, "url is longer than %d bytes", REQUEST_URL_BYTES_MAX);
    }
    CURLU *parts = curl_url();
    CURLUcode fault =
        parts == NULL ? CURLUE_OUT_OF_MEMORY : curl_url_set(parts, CURLUPART_URL, url, 0);
    curl_url_cleanup(parts);
    if (fault == CURLUE_OUT_OF_MEMORY) {
        return E_NOMEM;
    }
    return fault == CURLUE_OK
               ? OK
               : err_set(err, E_INVALID, "url is not one: %s", curl_url_strerror(fault));
}

/* Printable ASCII of at most max bytes; a space only where one is allowed. */
static bool is_printable(const char *text, size_t bytes_max, bool with_spaces)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] > '~' || text[i] < (with_spaces ? ' ' : '!')) {
            return false;
        }
    }
    return len > 0 && len <= bytes_max;
}

static enum status check_names(const struct once_send *send, struct err *err)
{
    if (send->idempotency_key != NULL &&
        !is_printable(send->idempotency_key, LIMIT_KEY_BYTES_MAX, true)) {
        return err_set(err, E_INVALID, "idempotency_key is not 1 to %d printable characters",
            LIMIT_KEY_BYTES_MAX);
    }
    if (send->request_id != NULL && !is_printable(send->request_id, REQUEST_ID_BYTES_MAX, false)) {
        return err_set(
            err, E_INVALID, "request_id is not 1 to %d visible characters", REQUEST_ID_BYTES_MAX);
    }
    return OK;
}

static enum status check_numbers(const struct once_send *send, struct err *err)
{
    if (send->deadline_ms < 0 || send->deadline_ms > CLIENT_MS_LIMIT) {
        return err_set(err, E_INVALID, "deadline_ms is not between 1 and %d", CLIENT_MS_LIMIT);
    }
    if (send->attempt_timeout_ms < 0 || send->attempt_timeout_ms > CLIENT_MS_LIMIT) {
        return err_set(
            err, E_INVALID, "attempt_timeout_ms is not between 1 and %d", CLIENT_MS_LIMIT);
    }
    if (send->retries < ONCE_NO_RETRIES || send->retries > CLIENT_RETRIES_LIMIT) {
        return err_set(err, E_INVALID, "retries is not between 1 and %d, nor ONCE_NO_RETRIES",
            CLIENT_RETRIES_LIMIT);
    }
    if (send->body.size > 0 && send->body.data == NULL) {
        return err_set(err, E_INVALID, "body has a size and no data");
    }
    if (send->body.size > 0 && strcmp(send->method, "HEAD") == 0) {
        return err_set(err, E_INVALID, "a HEAD has no body");
    }
    return OK;
}

/* ---- headers ----------------------------------------------------------------------------- */

/* RFC 9110 section 5.6.2. */
static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_named(struct slice name, const char *other)
{
    return name.len == strlen(other) && strncasecmp(name.data, other, name.len) == 0;
}

/* Fields that the client sets itself: a second one would be ambiguous. */
static bool is_reserved(struct slice name)
{
    static const char *const reserved[] = {"Idempotency-Key", "Request-Id", "Content-Length",
        "Transfer-Encoding", "Connection", "Expect"};
    for (size_t i = 0; i < COUNT(reserved); i++) {
        if (is_named(name, reserved[i])) {
            return true;
        }
    }
    return false;
}

/* Split "Name: value"; E_INVALID when it is not one that can be sent as it is. */
static enum status read_field(
    const char *line, struct slice *ret_name, struct slice *ret_value, struct err *err)
{
    const char *colon = strchr(line, ':');
    struct slice name = slice_of(line, colon == NULL ? 0 : (size_t)(colon - line));
    for (size_t i = 0; i < name.len; i++) {
        name.len = is_token(name.data[i]) ? name.len : 0;
    }
    if (name.len == 0) {
        return err_set(err, E_INVALID, "a header is not of the form 'Name: value'");
    }
    struct slice value = slice_str(colon + 1);
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return err_set(err, E_INVALID, "header '%.*s' has a control character in its value",
                SLICE_ARGS(name));
        }
    }
    while (value.len > 0 && (value.data[0] == ' ' || value.data[0] == '\t')) {
        value = slice_of(value.data + 1, value.len - 1);
    }
    if (is_reserved(name)) {
        return err_set(err, E_INVALID,
            "header '%.*s' is not the caller's to set; a key and a "
            "request id have members of their own",
            SLICE_ARGS(name));
    }
    *ret_name = name;
    *ret_value = value;
    return OK;
}

/* How many headers there are and what room their lines need; and whether one is a content type. */
static enum status measure(const char *const *headers, size_t *ret_count, size_t *ret_bytes,
    bool *ret_has_type, struct err *err)
{
    size_t count = 0;
    size_t bytes = 0;
    bool has_type = false;
    for (; headers != NULL && headers[count] != NULL; count++) {
        struct slice name = SLICE_EMPTY;
        struct slice value = SLICE_EMPTY;
        enum status status = read_field(headers[count], &name, &value, err);
        if (status != OK) {
            return status;
        }
        bytes += name.len + value.len + 3;
        has_type = has_type || is_named(name, "Content-Type");
        if (count == REQUEST_FIELDS_MAX || bytes > REQUEST_FIELDS_BYTES_MAX) {
            return err_set(err, E_INVALID, "more than %d headers, or more than %d bytes of them",
                REQUEST_FIELDS_MAX, REQUEST_FIELDS_BYTES_MAX);
        }
    }
    *ret_count = count;
    *ret_bytes = bytes;
    *ret_has_type = has_type;
    return OK;
}

/* ---- lines ------------------------------------------------------------------------------- */

/* Where the next line goes. */
struct layout {
    struct curl_slist *node; /* the next unused one */
    struct curl_slist *last; /* NULL: absent */
    char *text;              /* the next unused byte */
};

static void add_node(struct layout *layout, char *text)
{
    struct curl_slist *node = layout->node++;
    *node = (struct curl_slist){.data = text};
    if (layout->last != NULL) {
        layout->last->next = node;
    }
    layout->last = node;
}

/* The text written after layout->text becomes a line. */
static void end_line(struct layout *layout, char *end)
{
    *end = '\0';
    add_node(layout, layout->text);
    layout->text = end + 1;
}

static void add_text(struct layout *layout, const char *text)
{
    size_t len = strlen(text);
    memcpy(layout->text, text, len);
    end_line(layout, layout->text + len);
}

/* Unquoted if that is unambiguous, otherwise as a string of RFC 9651: both name the same key. */
static void add_key(struct layout *layout, const char *key)
{
    char *at = layout->text;
    bool is_quoted = strpbrk(key, " \"\\,;") != NULL;
    memcpy(at, "Idempotency-Key: ", 17);
    at += 17;
    if (is_quoted) {
        *at++ = '"';
    }
    for (const char *from = key; *from != '\0'; from++) {
        if (is_quoted && (*from == '"' || *from == '\\')) {
            *at++ = '\\';
        }
        *at++ = *from;
    }
    if (is_quoted) {
        *at++ = '"';
    }
    end_line(layout, at);
}

/* libcurl takes "Name:" for "leave it out" and "Name;" for an empty value. */
static void add_field(struct layout *layout, const char *line)
{
    struct slice name = SLICE_EMPTY;
    struct slice value = SLICE_EMPTY;
    enum status status = read_field(line, &name, &value, NULL);
    ASSERT(status == OK); /* measured before */
    ASSERT(name.data != NULL);
    char *at = layout->text;
    memcpy(at, name.data, name.len);
    at += name.len;
    *at++ = value.len == 0 ? ';' : ':';
    if (value.len > 0) {
        *at++ = ' ';
        memcpy(at, value.data, value.len);
        at += value.len;
    }
    end_line(layout, at);
}

static enum status make_lines(
    struct client_request *request, const char *const *headers, struct err *err)
{
    size_t count = 0;
    size_t bytes = 0;
    bool has_type = false;
    enum status status = measure(headers, &count, &bytes, &has_type, err);
    if (status != OK) {
        return status;
    }
    size_t nodes_bytes = (count + LINES_OWN_MAX) * sizeof(struct curl_slist);
    request->block_bytes = nodes_bytes + bytes + KEY_LINE_BYTES_MAX + 64;
    request->block = mem_zalloc(request->mem, 1, request->block_bytes);
    if (request->block == NULL) {
        return E_NOMEM;
    }
    struct layout layout = {
        .node = (struct curl_slist *)(void *)request->block, .text = request->block + nodes_bytes};
    request->lines = layout.node;
    add_node(&layout, request->id_line);
    if (!request->is_read) {
        add_key(&layout, request->key);
    }
    add_text(&layout, "Expect:"); /* no pause before the body: it goes with the head */
    if (request->has_body && !has_type) {
        add_text(&layout, "Content-Type: application/json");
    }
    for (size_t i = 0; i < count; i++) {
        add_field(&layout, headers[i]);
    }
    ASSERT(layout.text <= request->block + request->block_bytes);
    return OK;
}

/* ---- all together ------------------------------------------------------------------------ */

static bool is_one_of(const char *method, const char *const *names)
{
    while (*names != NULL && strcmp(*names, method) != 0) {
        names++;
    }
    return *names != NULL;
}

static enum status choose_key(struct client_request *request, const struct once_client *client,
    const char *given, struct err *err)
{
    unsigned char random[UUID_BYTES];
    if (request->is_read) {
        return OK; /* GRD-11 */
    }
    if (given != NULL) {
        memcpy(request->key, given, strlen(given) + 1);
        return OK;
    }
    enum status status = client_random(client, random, sizeof random, err);
    if (status == OK) {
        uuid_v4(random);
        (void)uuid_put(request->key, random);
    }
    return status;
}

static enum status check_all(const struct once_send *send, struct err *err)
{
    if (send->method == NULL || send->url == NULL) {
        return err_set(err, E_INVALID, "%s is not given", send->method == NULL ? "method" : "url");
    }
    enum status status = check_method(send->method, err);
    status = status == OK ? check_url(send->url, err) : status;
    status = status == OK ? check_names(send, err) : status;
    return status == OK ? check_numbers(send, err) : status;
}

enum status client_request_init(struct client_request *request, const struct once_client *client,
    const struct once_send *send, struct err *err)
{
    static const char *const reads[] = {"GET", "HEAD", "OPTIONS", "TRACE", NULL};
    static const char *const bodied[] = {"POST", "PUT", "PATCH", NULL};
    *request = (struct client_request){.mem = &client->mem};
    enum status status = check_all(send, err);
    if (status != OK) {
        return status;
    }
    request->method = send->method;
    request->url = send->url;
    request->body = send->body;
    request->given_id = send->request_id;
    request->is_read = is_one_of(send->method, reads);
    request->has_body = send->body.size > 0 || is_one_of(send->method, bodied);
    request->retries = send->retries == 0                 ? CLIENT_RETRIES
                       : send->retries == ONCE_NO_RETRIES ? 0
                                                          : send->retries;
    request->deadline_ms = send->deadline_ms == 0 ? CLIENT_DEADLINE_MS : send->deadline_ms;
    request->attempt_ms =
        send->attempt_timeout_ms == 0 ? CLIENT_ATTEMPT_MS : send->attempt_timeout_ms;
    status = choose_key(request, client, send->idempotency_key, err);
    return status == OK ? make_lines(request, send->headers, err) : status;
}

void client_request_release(struct client_request *request)
{
    if (request->block != NULL) {
        mem_wipe(request->block, request->block_bytes);
        mem_free(request->mem, request->block);
        request->block = NULL;
    }
}

enum status client_request_number(struct client_request *request, const struct once_client *client,
    int number, char ret_id[REQUEST_ID_SIZE], struct err *err)
{
    unsigned char random[UUID_BYTES];
    if (request->given_id != NULL && number == 1) {
        memcpy(ret_id, request->given_id, strlen(request->given_id) + 1);
    } else if (request->given_id != NULL) { /* ADR-3: never the same twice */
        (void)snprintf(ret_id, REQUEST_ID_SIZE, "%s.%d", request->given_id, number);
    } else {
        enum status status = client_random(client, random, sizeof random, err);
        if (status != OK) {
            return status;
        }
        uuid_v7(random, client_wall_ms(client));
        (void)uuid_put(ret_id, random);
    }
    (void)snprintf(request->id_line, sizeof request->id_line, "Request-Id: %s", ret_id);
    return OK;
}

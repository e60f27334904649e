#include "client/response.h"

#include <strings.h>

#include "base/check.h"
#include "base/macros.h"

struct client_response *client_response_new(const struct once_client *client)
{
    struct client_response *response = mem_zalloc(&client->mem, 1, sizeof *response);
    if (response != NULL) {
        buf_init(&response->head, &client->mem, client->options.headers_bytes_max);
        buf_init(&response->body, &client->mem, client->options.body_bytes_max);
        response->body.max += response->body.max < SIZE_MAX ? 1 : 0; /* the terminating zero */
        client_response_clear(response);
    }
    return response;
}

void client_response_clear(struct client_response *response)
{
    buf_clear(&response->head);
    buf_clear(&response->body);
    response->field_count = 0;
    response->head_is_over = false;
    response->head_too_large = false;
    response->body_too_large = false;
    response->why[0] = '\0';
    response->operation_id[0] = '\0';
    response->shown = (struct once_response){
        .headers = response->fields,
        .idempotency_key = response->key,
        .request_id = response->request_id,
        .attempts = response->shown.attempts,
        .decision = "",
        .operation_id = response->operation_id,
    };
}

/* ---- while it comes ---------------------------------------------------------------------- */

static void add_field(struct client_response *response, struct slice line)
{
    const char *colon = memchr(line.data, ':', line.len);
    if (colon == NULL || (unsigned char)line.data[0] <= ' ') {
        return; /* not a field, or a folded line, which RFC 9112 section 5.2 forbids */
    }
    size_t name_len = (size_t)(colon - line.data);
    struct slice name = slice_trim(slice_of(line.data, name_len));
    struct slice value = slice_trim(slice_of(colon + 1, line.len - name_len - 1));
    if (memchr(line.data, '\0', line.len) != NULL) {
        return; /* it could not be distinguished from the next one */
    }
    buf_slice(&response->head, name);
    buf_char(&response->head, '\0');
    buf_slice(&response->head, value);
    buf_char(&response->head, '\0');
    response->field_count++;
}

bool client_response_line(struct client_response *response, struct slice line)
{
    while (line.len > 0 && (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r')) {
        line.len--;
    }
    if (line.len >= 5 && memcmp(line.data, "HTTP/", 5) == 0) {
        buf_clear(&response->head); /* the one before was a 1xx */
        response->field_count = 0;
        response->head_is_over = false;
    } else if (slice_trim(line).len == 0) {
        response->head_is_over = true;
    } else if (!response->head_is_over) {
        if (response->field_count == RESPONSE_FIELDS_MAX) {
            response->head_too_large = true;
            return false;
        }
        add_field(response, line);
    }
    response->head_too_large = buf_status(&response->head) == E_LIMIT;
    return buf_status(&response->head) == OK;
}

bool client_response_piece(struct client_response *response, struct slice piece)
{
    struct buf *body = &response->body;
    if (buf_status(body) == OK && piece.len >= body->max - body->len) {
        response->body_too_large = true;
        return false;
    }
    buf_slice(body, piece);
    return buf_status(body) == OK;
}

/* ---- when it is there -------------------------------------------------------------------- */

static void show_fields(struct client_response *response)
{
    const char *at = response->head.data;
    for (uint32_t i = 0; i < response->field_count; i++) {
        response->fields[i].name = at;
        response->fields[i].value = at + strlen(at) + 1;
        at = response->fields[i].value + strlen(response->fields[i].value) + 1;
    }
    ASSERT(response->field_count == 0 || at == response->head.data + response->head.len);
    response->shown.header_count = response->field_count;
}

bool client_response_end(struct client_response *response, int status)
{
    struct once_response *shown = &response->shown;
    if (response->body_too_large) {
        buf_clear(&response->body);
    }
    buf_char(&response->body, '\0');
    if (buf_status(&response->body) != OK) {
        return false;
    }
    show_fields(response);
    shown->status = status;
    shown->body = (struct once_bytes){response->body.data, response->body.len - 1};
    shown->body_is_lost = response->body_too_large;
    const char *replayed = once_response_header(shown, "Idempotent-Replayed");
    const char *decision = once_response_header(shown, "Once-Decision");
    const char *operation = once_response_header(shown, "Once-Operation-Id");
    shown->is_replayed = replayed != NULL && strcasecmp(replayed, "true") == 0;
    shown->decision = decision == NULL ? "" : decision;
    shown->operation_id = operation == NULL ? response->operation_id : operation;
    return true;
}

/* ---- what the caller sees ---------------------------------------------------------------- */

const char *once_response_header(const struct once_response *response, const char *name)
{
    for (size_t i = 0; response != NULL && name != NULL && i < response->header_count; i++) {
        if (strcasecmp(response->headers[i].name, name) == 0) {
            return response->headers[i].value;
        }
    }
    return NULL;
}

void once_response_free(struct once_client *client, struct once_response *response)
{
    if (response != NULL) {
        struct client_response *whole = CONTAINER_OF(response, struct client_response, shown);
        buf_release(&whole->head);
        buf_release(&whole->body);
        mem_free(&client->mem, whole);
    }
}

const char *once_effect_name(enum once_effect effect)
{
    switch (effect) {
    case ONCE_EFFECT_NO: return "no";
    case ONCE_EFFECT_YES: return "yes";
    case ONCE_EFFECT_UNKNOWN: break;
    }
    return "unknown";
}

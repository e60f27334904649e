/*
 * Finds the key of a fenced request: its Idempotency-Key field, a generated one, or, if the route
 * says so, a different field or a member of the body.
 */
#include "base/uuid.h"
#include "gateway/fenced.h"

static enum status make(struct fenced *fenced)
{
    char *text = arena_alloc(fenced->request.exchange->arena, UUID_TEXT_BYTES);
    if (text == NULL) {
        return E_NOMEM;
    }
    enum status status = uuid_new(text, &fenced->fault);
    if (status != OK) {
        return status;
    }
    fenced->key = slice_str(text);
    fenced->request.key_field = fenced->key;
    return OK;
}

/* The client's own field, which is echoed unchanged. */
static enum status read_usual(struct fenced *fenced, struct slice field)
{
    fenced->request.key_field = field;
    struct arena *arena = fenced->request.exchange->arena;
    enum status status =
        fenced->request.route->profile == CONFIG_PROFILE_STRIPE
            ? request_form_key_printable(field, arena, &fenced->key, &fenced->fault)
            : request_form_key(field, arena, &fenced->key, &fenced->fault);
    if (status == OK && fenced->request.route->key_is_uuid &&
        !request_form_key_is_uuid(fenced->key)) {
        fenced->key = SLICE_EMPTY;
        return err_set(&fenced->fault, E_INVALID, "Idempotency-Key must be a UUID");
    }
    return status;
}

/* A key from elsewhere: the upstream gets it as Idempotency-Key, instead of the client's. */
static enum status put_field(struct fenced *fenced)
{
    return request_form_key_field(
        fenced->key, fenced->request.exchange->arena, &fenced->request.key_field);
}

enum status fenced_key_from_head(struct fenced *fenced)
{
    const struct config_route *route = fenced->request.route;
    const struct http_head *head = fenced->request.exchange->head;
    bool is_named = route->key == CONFIG_KEY_HEADER;
    const char *name = is_named ? route->key_name : "Idempotency-Key";
    struct slice field = SLICE_EMPTY;
    if (http_find(head, slice_str(name), 0) == head->field_count) {
        if (route->key == CONFIG_KEY_GENERATED) { /* not OPTIONAL: gateway_begin */
            return make(fenced);
        }
        if (is_named) {
            (void)err_set(&fenced->fault, E_INVALID,
                "the field %s, which has the idempotency key, is missing; nothing was done", name);
        }
        return OK;
    }
    if (!http_find_single(head, slice_str(name), &field)) {
        return err_set(&fenced->fault, E_INVALID, "%s came more than once", name);
    }
    if (!is_named) {
        return read_usual(fenced, field);
    }
    enum status status = request_form_key_plain(
        field, fenced->request.exchange->arena, &fenced->key, &fenced->fault);
    return status == OK ? put_field(fenced) : status;
}

enum status fenced_key_from_body(struct fenced *fenced, struct slice body)
{
    const char *pointer = fenced->request.route->key_name;
    enum status status = request_form_key_in_body(
        body, pointer, fenced->request.exchange->arena, &fenced->key, &fenced->fault);
    if (status == OK && fenced->key.len == 0) {
        (void)err_set(&fenced->fault, E_INVALID,
            "the body has no %s, which is the idempotency key; nothing was done", pointer);
        return OK;
    }
    return status == OK ? put_field(fenced) : status;
}

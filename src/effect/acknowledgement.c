#include "effect/acknowledgement.h"

#include <string.h>

#include "canon/json_mask.h"

static bool text_of(const struct json_value *object, const char *name, struct slice *ret_text)
{
    const struct json_value *value = json_find(object, slice_str(name));
    if (value == NULL || value->type == JSON_NULL) {
        return true;
    }
    *ret_text = json_text(value);
    return value->type == JSON_STRING;
}

bool acknowledgement_read(
    struct slice text, struct arena *arena, struct acknowledgement *ret_acknowledgement)
{
    const struct json_value *value = NULL;
    struct acknowledgement ack = {.status = EFFECT_ACK_NONE};
    if (json_read(text, arena, &value, NULL) != OK || !json_is(value, JSON_OBJECT)) {
        return false;
    }
    const struct json_value *status = json_find(value, SLICE_LIT("status"));
    const struct json_value *retryable = json_find(value, SLICE_LIT("retryable"));
    bool is_well = json_is(status, JSON_STRING) && effect_ack_read(json_text(status), &ack.status);
    is_well = is_well && text_of(value, "effect_id", &ack.effect_id) &&
              text_of(value, "provider_ref", &ack.provider_ref);
    is_well = is_well &&
              (retryable == NULL || retryable->type == JSON_TRUE || retryable->type == JSON_FALSE);
    ack.retryable = json_is(retryable, JSON_TRUE);
    if (is_well) {
        *ret_acknowledgement = ack;
    }
    return is_well;
}

struct slice acknowledgement_ref(const char *where, const struct outcall *out, struct arena *arena)
{
    static const char header[] = "header:";
    const struct json_value *value = NULL;
    struct slice ref = SLICE_EMPTY;
    if (strncmp(where, header, sizeof header - 1) == 0) {
        const char *name = where + sizeof header - 1;
        bool is_there = out->answer != NULL && http_find_single(out->answer, slice_str(name), &ref);
        return is_there ? ref : SLICE_EMPTY;
    }
    if (json_read(out->captured, arena, &value, NULL) != OK) {
        return SLICE_EMPTY;
    }
    const struct json_value *at = json_at(value, slice_str(where));
    return at == NULL ? SLICE_EMPTY : json_text(at);
}

/* The last reference token of a pointer is a place in a list. */
static bool is_index(struct slice pointer)
{
    size_t digits = 0;
    while (pointer.data[pointer.len - 1 - digits] >= '0' &&
           pointer.data[pointer.len - 1 - digits] <= '9') {
        digits++; /* the pointer begins with '/' */
    }
    return digits > 0 && pointer.data[pointer.len - 1 - digits] == '/';
}

/* Only an answer that could have shown it says that it is not there: a member that is missing may
 * be an error document with a status of 200 (P5). */
enum acknowledgement_found acknowledgement_found(
    const char *where, struct slice answer, struct arena *arena, struct slice *ret_ref)
{
    const struct json_value *root = NULL;
    struct slice pointer = slice_str(where);
    if (json_read(answer, arena, &root, NULL) != OK) {
        return ACKNOWLEDGEMENT_SILENT;
    }
    const struct json_value *at = root;
    for (size_t end = 1; end <= pointer.len && at->type != JSON_NULL; end++) {
        if (end < pointer.len && pointer.data[end] != '/') {
            continue;
        }
        struct slice part = slice_of(pointer.data, end);
        const struct json_value *inside = json_at(root, part);
        if (inside == NULL) {
            return at->type == JSON_ARRAY && is_index(part) ? ACKNOWLEDGEMENT_NOT_FOUND
                                                            : ACKNOWLEDGEMENT_SILENT;
        }
        at = inside;
    }
    bool has_count = at->type == JSON_STRING || at->type == JSON_ARRAY || at->type == JSON_OBJECT;
    if (at->type == JSON_NULL || (has_count && at->count == 0)) {
        return ACKNOWLEDGEMENT_NOT_FOUND;
    }
    *ret_ref = json_text(at);
    return ACKNOWLEDGEMENT_FOUND;
}

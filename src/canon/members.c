#include "canon/members.h"

#include <stdio.h>

#include "base/check.h"
#include "base/text.h"

enum { NAME_SHOWN_MAX = 64 }; /* of a member name from the caller, in a refusal */

enum status member_refuse(struct member_fault *fault, const char *code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fault->code = code;
    return err_set(&fault->err, E_INVALID, "%s", text);
}

static bool is_passed_over(const struct member_table *table, struct slice name)
{
    return table->is_open && (slice_is(name, "extensions") || slice_starts(name, SLICE_LIT("x_")));
}

/* Put the values of an object at their members' places in the table. */
static enum status find_values(const struct member_table *table, const struct json_value *object,
    const struct json_value **ret_values, struct member_fault *fault)
{
    memset(ret_values, 0, table->count * sizeof *ret_values);
    for (uint32_t i = 0; i < object->count; i++) {
        struct slice name = json_text(&object->members[i].name);
        size_t at = 0;
        while (at < table->count && !slice_equal(name, table->members[at].name)) {
            at++;
        }
        if (at < table->count) {
            ret_values[at] = &object->members[i].value;
        } else if (!is_passed_over(table, name)) {
            return member_refuse(fault, "unknown_member", "unknown member '%s%.*s'", table->prefix,
                name.len > NAME_SHOWN_MAX ? NAME_SHOWN_MAX : (int)name.len, name.data);
        }
    }
    return OK;
}

/* Store a value in its place. Returns NULL, or what the value must be instead. */
static const char *take(enum member_type type, const struct json_value *value, void *place)
{
    bool is_text = value->type == JSON_STRING;
    switch (type) {
    case MEMBER_VALUE: return NULL;
    case MEMBER_OBJECT: return value->type == JSON_OBJECT ? NULL : "an object";
    case MEMBER_TEXT:
    case MEMBER_TEXT_OR_EMPTY:
        if (!is_text || (type == MEMBER_TEXT && value->count == 0)) {
            return type == MEMBER_TEXT ? "a string that is not empty" : "a string";
        }
        *(struct slice *)place = json_text(value);
        return NULL;
    case MEMBER_DURATION:
        return is_text && text_duration(json_text(value), (int64_t *)place)
                   ? NULL
                   : "a duration such as \"30s\" or \"24h\"";
    case MEMBER_BOOL:
        *(bool *)place = value->type == JSON_TRUE;
        return json_is(value, JSON_TRUE) || json_is(value, JSON_FALSE) ? NULL : "true or false";
    case MEMBER_POSITIVE:
        return value->type == JSON_NUMBER && text_u64(json_text(value), (uint64_t *)place) &&
                       *(uint64_t *)place > 0
                   ? NULL
                   : "a whole number from 1 on";
    }
    return "something else";
}

enum status members_read(const struct member_table *table, const struct json_value *object,
    void *into, const struct json_value **ret_values, struct member_fault *fault)
{
    if (!json_is(object, JSON_OBJECT)) {
        return member_refuse(fault, "invalid_body", "the body is not a JSON object");
    }
    enum status status = find_values(table, object, ret_values, fault);
    for (size_t i = 0; i < table->count && status == OK; i++) {
        const struct member *member = &table->members[i];
        if (ret_values[i] != NULL) {
            const char *wanted = take(member->type, ret_values[i], (char *)into + member->offset);
            status = wanted == NULL ? OK
                                    : member_refuse(fault, NULL, "member '%s%.*s' must be %s",
                                          table->prefix, SLICE_ARGS(member->name), wanted);
        } else if (member->is_required) {
            status = member_refuse(fault, "missing_member", "member '%s%.*s' is missing",
                table->prefix, SLICE_ARGS(member->name));
        }
    }
    return status;
}

#include "canon/key.h"

#include "base/check.h"
#include "canon/jcs.h"

/* What a member must be. */
enum rule {
    IGNORED, /* anything, and it never enters the key */
    NAME,    /* a string that is not empty */
    SCALAR,  /* such a string or a number */
    OBJECT,
    ANY,
    ORDINAL, /* an integer, zero or more */
    INTENT,  /* {entity, action, target} */
};

enum key_presence { REQUIRED, OPTIONAL };

struct field {
    const char *name;
    enum rule rule;
    enum key_presence presence;
};

/* Those that are hashed come in canonical order, which is the order they are written in. */
static const struct field command_fields[] = {{"actor_id", NAME, REQUIRED},
    {"args", OBJECT, OPTIONAL}, {"command_kind", NAME, OPTIONAL}, {"intent", INTENT, REQUIRED},
    {"tenant_id", NAME, REQUIRED}, {"effective_actor_id", IGNORED, OPTIONAL},
    {"command_id", IGNORED, OPTIONAL}, {"source", IGNORED, OPTIONAL}, {"trace", IGNORED, OPTIONAL},
    {"created_at", IGNORED, OPTIONAL}, {"confirmation", IGNORED, OPTIONAL},
    {"idempotency_key", IGNORED, OPTIONAL}, {"extensions", IGNORED, OPTIONAL}};

static const struct field intent_fields[] = {
    {"action", NAME, REQUIRED}, {"entity", NAME, REQUIRED}, {"target", ANY, REQUIRED}};

static const struct field effect_fields[] = {{"command_id", NAME, REQUIRED},
    {"effect_type", NAME, REQUIRED}, {"ordinal", ORDINAL, OPTIONAL}, {"target", ANY, OPTIONAL},
    {"tenant_id", NAME, REQUIRED}, {"effect_id", IGNORED, OPTIONAL},
    {"idempotency_key", IGNORED, OPTIONAL}, {"payload", IGNORED, OPTIONAL},
    {"trace", IGNORED, OPTIONAL}, {"attempt", IGNORED, OPTIONAL}, {"created_at", IGNORED, OPTIONAL},
    {"policy_refs", IGNORED, OPTIONAL}, {"extensions", IGNORED, OPTIONAL}};

static const struct field source_fields[] = {{"action", SCALAR, OPTIONAL},
    {"index_hash", SCALAR, OPTIONAL}, {"revision", SCALAR, OPTIONAL},
    {"source_id", SCALAR, OPTIONAL}, {"source_type", SCALAR, OPTIONAL},
    {"tenant_id", NAME, REQUIRED}};

enum { HASHED_MAX = 6 }; /* members of the longest hashed object */

/* One object and what it may hold. */
struct form {
    const char *prefix; /* JSON Pointer of the object, for error texts */
    const struct field *fields;
    size_t count;
    bool extensible; /* members named x_* are ignored */
};

#define FORM(pointer, table, x)                                                                    \
    {                                                                                              \
        (pointer), (table), sizeof(table) / sizeof *(table), (x)                                   \
    }
static const struct form forms[] = {
    [KEY_COMMAND] = FORM("", command_fields, true),
    [KEY_EFFECT] = FORM("", effect_fields, true),
    [KEY_SOURCE] = FORM("", source_fields, false),
};
static const struct form intent_form = FORM("/intent", intent_fields, false);

/* The object that is hashed. It borrows its values from the envelope. */
struct hashed {
    struct json_member members[HASHED_MAX];
    struct json_member intent[3]; /* members of intent, where there is one */
    uint32_t count;
};

static struct json_value name_value(const char *name)
{
    return (struct json_value){
        .type = JSON_STRING, .verbatim = true, .count = (uint32_t)strlen(name), .text = name};
}

static bool known_member(const struct form *form, struct slice name)
{
    if (form->extensible && name.len >= 2 && memcmp(name.data, "x_", 2) == 0) {
        return true;
    }
    for (size_t i = 0; i < form->count; i++) {
        if (slice_is(name, form->fields[i].name)) {
            return true;
        }
    }
    return false;
}

static enum status check_members(
    const struct form *form, const struct json_value *object, struct err *err)
{
    if (!json_is(object, JSON_OBJECT)) {
        return err_set(err, E_INVALID, "\"%s\" is not an object", form->prefix);
    }
    for (uint32_t i = 0; i < object->count; i++) {
        if (!known_member(form, json_text(&object->members[i].name))) {
            char pointer[256];
            json_pointer_of(object, &object->members[i].value, pointer, sizeof pointer);
            return err_set(err, E_INVALID, "unknown member \"%s%s\"", form->prefix, pointer);
        }
    }
    return OK;
}

static bool is_name(const struct json_value *value)
{
    return value->type == JSON_STRING && value->count > 0;
}

/* What a value should have been, or NULL when it is right. */
static const char *rule_broken(enum rule rule, const struct json_value *value)
{
    int64_t ordinal;
    switch (rule) {
    case IGNORED:
    case ANY: return NULL;
    case NAME: return is_name(value) ? NULL : "a string that is not empty";
    case SCALAR:
        return is_name(value) || value->type == JSON_NUMBER
                   ? NULL
                   : "a string that is not empty, or a number";
    case OBJECT:
    case INTENT: return value->type == JSON_OBJECT ? NULL : "an object";
    case ORDINAL: return json_int(value, &ordinal) && ordinal >= 0 ? NULL : "an integer from 0 on";
    }
    return NULL;
}

/* The values that stand for absent members; NULL where absent means left out. */
static const struct json_value *default_of(const struct field *field)
{
    static const struct json_value no_args = {.type = JSON_OBJECT};
    static const struct json_value zero = {
        .type = JSON_NUMBER, .verbatim = true, .count = 1, .text = "0"};
    if (field->presence == REQUIRED) {
        return NULL;
    }
    return field->rule == OBJECT ? &no_args : field->rule == ORDINAL ? &zero : NULL;
}

static enum status check_value(const struct form *form, const struct field *field, const char *name,
    const struct json_value *value, struct err *err)
{
    if (value == NULL && field->presence == REQUIRED) {
        return err_set(err, E_INVALID, "member \"%s/%s\" is missing", form->prefix, name);
    }
    const char *expected = value == NULL ? NULL : rule_broken(field->rule, value);
    if (expected != NULL) {
        return err_set(err, E_INVALID, "member \"%s/%s\" must be %s", form->prefix, name, expected);
    }
    return OK;
}

/* The member that supplies a field's value: if one actor acts for a different one, the effective
 * actor counts (IDS VII.E). */
static const char *member_for(const struct json_value *object, const struct field *field)
{
    const struct slice effective = SLICE_LIT("effective_actor_id");
    if (strcmp(field->name, "actor_id") == 0 && json_find(object, effective) != NULL) {
        return effective.data;
    }
    return field->name;
}

/* Copy what is hashed of an object into ret_members, checked; *ret_count of them. */
static enum status collect(const struct form *form, const struct json_value *object,
    struct json_member *ret_members, uint32_t *ret_count, struct err *err)
{
    enum status status = check_members(form, object, err);
    uint32_t count = 0;
    for (size_t i = 0; status == OK && i < form->count; i++) {
        const struct field *field = &form->fields[i];
        if (field->rule == IGNORED) {
            continue;
        }
        const char *name = member_for(object, field);
        const struct json_value *value = json_find(object, slice_str(name));
        value = value == NULL ? default_of(field) : value;
        status = check_value(form, field, name, value, err);
        if (status == OK && value != NULL) {
            ASSERT(count < HASHED_MAX);
            ret_members[count++] =
                (struct json_member){.name = name_value(field->name), .value = *value};
        }
    }
    *ret_count = count;
    return status;
}

/* Replace intent by its checked copy, so that nothing but its three members is hashed. */
static enum status collect_intent(struct hashed *hashed, struct err *err)
{
    for (uint32_t i = 0; i < hashed->count; i++) {
        struct json_member *member = &hashed->members[i];
        if (slice_is(json_text(&member->name), "intent")) {
            uint32_t count;
            enum status status = collect(&intent_form, &member->value, hashed->intent, &count, err);
            member->value.members = hashed->intent;
            member->value.count = count;
            return status;
        }
    }
    return OK;
}

enum status key_derive(enum key_kind kind, const struct json_value *envelope, struct buf *out,
    struct digest *ret, struct err *err)
{
    struct hashed hashed;
    enum status status = collect(&forms[kind], envelope, hashed.members, &hashed.count, err);
    if (status == OK && kind == KEY_COMMAND) {
        status = collect_intent(&hashed, err);
    }
    if (status == OK && kind == KEY_SOURCE && hashed.count < 2) {
        status = err_set(err, E_INVALID,
            "one of source_type, source_id, revision, index_hash, action is needed");
    }
    if (status != OK) {
        return status;
    }
    struct json_value object = {
        .type = JSON_OBJECT, .count = hashed.count, .members = hashed.members};
    struct jcs_report report;
    buf_clear(out);
    status = jcs_write(&object, out, &report, err);
    if (status == OK && report.lossy_count > 0) {
        status = jcs_refuse_lossy(&object, &report, err);
    }
    if (status == OK) {
        digest_sha256(out->data, out->len, ret);
    }
    return status;
}

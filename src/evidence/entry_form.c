#include "evidence/entry_form.h"

#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "base/uuid.h"
#include "evidence/entry.h"

enum {
    MEMBERS_MAX = 48,  /* of one object; ours have about 25 */
    DERIVED_MAX = 16,  /* members that are added to one object */
    TEXTS_BYTES = 640, /* derived values: two hashes, ids, a time, a few words */
};

struct form_object;

struct form_member {
    struct slice name;
    struct slice value;               /* canonical JSON … */
    const struct form_object *object; /* … unless it is this object */
};

/* The members of an object in canonical order. */
struct form_object {
    struct form_member at[MEMBERS_MAX + DERIVED_MAX];
    size_t count;
};

/* One entry on its way from one form to the other. */
struct entry_form {
    bool expands;    /* adds what is absent; otherwise removes what follows from the rest */
    bool is_partial; /* something that follows was absent */
    struct form_object top, decided, dedupe, outcome;
    char texts[TEXTS_BYTES]; /* derived values */
    size_t used;
};

/* ---- the link ------------------------------------------------------------------------------ */

bool entry_is_version_2(struct slice bytes)
{
    static const char end[] = ENTRY_VERSION_2;
    size_t size = sizeof end - 1;
    return bytes.len > size && memcmp(bytes.data + bytes.len - size, end, size) == 0;
}

void entry_link(const struct digest *prev_hash, const struct entry *entry, struct digest *ret_hash)
{
    struct {
        unsigned char prev_hash[DIGEST_BYTES];
        unsigned char chain_id[UUID_BYTES];
        unsigned char seq[8]; /* big-endian */
        struct digest digest; /* of the bytes */
    } link;
    static_assert(sizeof link == 88, "no padding: these bytes are hashed");
    ASSERT(entry->bytes.len > 0);
    if (!entry_is_version_2(entry->bytes)) {
        digest_sha256_2(prev_hash->bytes, sizeof prev_hash->bytes, entry->bytes.data,
            entry->bytes.len, ret_hash);
        return;
    }
    /* The bytes do not say where they stand: here they are bound to it (P10). */
    memcpy(link.prev_hash, prev_hash->bytes, sizeof link.prev_hash);
    memcpy(link.chain_id, entry->chain_id, sizeof link.chain_id);
    for (size_t i = 0; i < sizeof link.seq; i++) {
        link.seq[i] = (unsigned char)(entry->seq >> (56 - 8 * i));
    }
    digest_sha256(entry->bytes.data, entry->bytes.len, &link.digest);
    digest_sha256(&link, sizeof link, ret_hash);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Moves *at past the string that begins there; false: it does not end. */
static bool skip_string(struct slice text, size_t *at)
{
    ASSERT(text.data[*at] == '"');
    for (size_t i = *at + 1; i < text.len; i++) {
        if (text.data[i] == '"') {
            *at = i + 1;
            return true;
        }
        i += text.data[i] == '\\';
    }
    return false;
}

/* Moves *at past the value that begins there: brackets are counted, strings skipped. */
static bool skip_value(struct slice text, size_t *at)
{
    size_t depth = 0;
    while (*at < text.len) {
        char c = text.data[*at];
        if (c == '"') {
            if (!skip_string(text, at)) {
                return false;
            }
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}')) {
            return true;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        (*at)++;
    }
    return false;
}

/* Reads one `"name":value`. */
static bool read_member(struct slice text, size_t *at, struct form_member *ret_member)
{
    size_t name = *at;
    ASSERT(name < text.len);
    if (text.data[name] != '"' || !skip_string(text, at) || *at >= text.len ||
        text.data[*at] != ':') {
        return false;
    }
    size_t value = *at + 1;
    *ret_member = (struct form_member){.name = slice_of(text.data + name + 1, *at - name - 2)};
    *at = value;
    if (!skip_value(text, at) || *at == value) {
        return false;
    }
    ret_member->value = slice_of(text.data + value, *at - value);
    return true;
}

/* Splits canonical JSON, which has no spaces. False: not an object, or too many members. */
static bool read_object(struct slice text, struct form_object *ret_object)
{
    size_t at = 1;
    ret_object->count = 0;
    if (text.len < 2 || text.data[0] != '{' || text.data[text.len - 1] != '}') {
        return false;
    }
    while (at < text.len - 1) {
        if (ret_object->count == MEMBERS_MAX ||
            !read_member(text, &at, &ret_object->at[ret_object->count])) {
            return false;
        }
        ret_object->count++;
        if (text.data[at] == '}') {
            return at == text.len - 1;
        }
        at++;
    }
    return text.len == 2;
}

/* The place of a member; count if it is absent. */
static size_t find(const struct form_object *object, const char *name)
{
    size_t i = 0;
    ASSERT(object->count <= MEMBERS_MAX + DERIVED_MAX);
    while (i < object->count && !slice_is(object->at[i].name, name)) {
        i++;
    }
    return i;
}

/* The value of a member; empty if it is absent. */
static struct slice value_of(const struct form_object *object, const char *name)
{
    size_t i = find(object, name);
    return i == object->count ? SLICE_EMPTY : object->at[i].value;
}

/* Whether a value is the string `word`. */
static bool says(struct slice value, const char *word)
{
    return value.len >= 2 && value.data[0] == '"' &&
           slice_is(slice_of(value.data + 1, value.len - 2), word);
}

/* ---- changing ------------------------------------------------------------------------------ */

/* Our names are ASCII, so byte order is the order of RFC 8785. */
static bool sorts_before(struct slice a, struct slice b)
{
    size_t less = a.len < b.len ? a.len : b.len;
    int order = memcmp(a.data, b.data, less);
    return order < 0 || (order == 0 && a.len < b.len);
}

static void add(struct form_object *object, struct form_member member)
{
    size_t i = object->count;
    ASSERT(object->count < MEMBERS_MAX + DERIVED_MAX); /* read_object leaves room */
    while (i > 0 && sorts_before(member.name, object->at[i - 1].name)) {
        object->at[i] = object->at[i - 1];
        i--;
    }
    object->at[i] = member;
    object->count++;
}

static void drop(struct form_object *object, size_t place)
{
    ASSERT(place < object->count);
    object->count--;
    memmove(
        &object->at[place], &object->at[place + 1], (object->count - place) * sizeof object->at[0]);
}

/* A member that follows from others. Only the value that follows is left out; a different one is
 * stored. */
static void derive(
    struct entry_form *form, struct form_object *object, const char *name, struct slice value)
{
    size_t i = find(object, name);
    ASSERT(!form->expands || value.len > 0 || i < object->count); /* never a name without a value */
    if (i == object->count) {
        form->is_partial = true;
        if (form->expands) {
            add(object, (struct form_member){.name = slice_str(name), .value = value});
        }
    } else if (!form->expands && slice_equal(object->at[i].value, value)) {
        drop(object, i);
    }
}

/* Puts an object that was changed into its place; an empty one is left out. */
static void put_back(struct entry_form *form, const char *name, const struct form_object *object)
{
    size_t i = find(&form->top, name);
    ASSERT(object != &form->top);
    if (i < form->top.count) {
        drop(&form->top, i);
    }
    if (object->count > 0) {
        add(&form->top, (struct form_member){.name = slice_str(name), .object = object});
    }
}

/* Keeps a derived value: a text between two others. */
static struct slice keep(
    struct entry_form *form, const char *before, struct slice text, const char *after)
{
    char *start = form->texts + form->used;
    size_t first = strlen(before);
    size_t last = strlen(after);
    ASSERT(first + text.len + last <= sizeof form->texts - form->used); /* all are our own words */
    memcpy(start, before, first);
    memcpy(start + first, text.data, text.len);
    memcpy(start + first + text.len, after, last);
    form->used += first + text.len + last;
    return slice_of(start, first + text.len + last);
}

static struct slice quoted(struct entry_form *form, const char *word)
{
    return keep(form, "\"", slice_str(word), "\"");
}

/* ---- what follows from what ---------------------------------------------------------------- */

const char *entry_state_default(enum decision_kind kind, const char *named)
{
    switch (kind) {
    case DECISION_FIRST_SEEN:
    case DECISION_CLAIMED:
    case DECISION_IN_PROGRESS:
    case DECISION_RENEWED: return "in_progress";
    case DECISION_DUPLICATE_REPLAYED: return "executed";
    case DECISION_UNKNOWN:
    case DECISION_HELD_UNKNOWN: return "unknown";
    case DECISION_RELEASED: return "released";
    case DECISION_NOT_FOUND: return "absent";
    case DECISION_CONFLICT_REJECTED:
    case DECISION_SEALED:
    case DECISION_RESOLVED:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    return named;
}

const char *entry_type_default(enum decision_kind kind, struct slice state)
{
    if (kind == DECISION_FIRST_SEEN || kind == DECISION_CLAIMED) {
        return "execution.started";
    }
    if (kind == DECISION_SEALED) {
        return slice_is(state, "executed")   ? "execution.executed"
               : slice_is(state, "failed")   ? "execution.failed"
               : slice_is(state, "rejected") ? "execution.rejected"
                                             : "observation.emitted";
    }
    return "observation.emitted";
}

static bool decision_read(struct slice value, enum decision_kind *ret_kind)
{
    for (int i = DECISION_FIRST_SEEN; i <= DECISION_WRONG_STATUS; i++) {
        if (says(value, decision_name((enum decision_kind)i))) {
            *ret_kind = (enum decision_kind)i;
            return true;
        }
    }
    return false;
}

/* The unquoted text of a string; empty: it is not a string. */
static struct slice text_in(struct slice value)
{
    return value.len >= 2 && value.data[0] == '"' ? slice_of(value.data + 1, value.len - 2)
                                                  : SLICE_EMPTY;
}

/* The word that readers of this entry get for a status of its record (core/kind.h), in quotes. A
 * wake says more than the status does: a command that becomes pending was confirmed, and a command
 * that keeps waiting for its effects without a due is blocked (command/effects.h). */
static struct slice word_of(struct entry_form *form, struct slice state)
{
    const struct form_object *decided = &form->decided;
    struct slice attempt = value_of(decided, "attempt");
    bool wakes = says(value_of(decided, "request"), "wake") &&
                 says(value_of(decided, "decision"), decision_name(DECISION_DONE));
    bool has_due = value_of(decided, "delay_ms").len > 0;
    enum record_kind kind;
    enum record_status status;
    struct op_id id;
    if (!kind_id_read(text_in(value_of(&form->top, "operation_id")), &kind, &id) ||
        !record_status_read(text_in(state), &status)) {
        return state;
    }
    const char *word = kind_word(kind, status, slice_is(attempt, "0") ? 0 : 1);
    if (kind == RECORD_COMMAND && wakes && status == RECORD_PENDING) {
        word = "confirmed";
    } else if (kind == RECORD_COMMAND && wakes && status == RECORD_WAITING && !has_due) {
        word = "blocked";
    }
    return word == NULL ? state : quoted(form, word);
}

/* Readers get the word of the record's kind for its status; `outcome` has the status itself, and
 * what is stored. False: the word is a different one. */
static bool change_word(struct entry_form *form)
{
    struct slice status = value_of(&form->outcome, "status");
    size_t i = find(&form->top, "lifecycle_state");
    if (i == form->top.count || status.len == 0) {
        return true; /* a member is missing */
    }
    struct slice from = form->expands ? status : word_of(form, status);
    struct slice to = form->expands ? word_of(form, status) : status;
    struct slice found = form->top.at[i].value;
    form->top.at[i].value = to;
    return slice_equal(found, from) || slice_equal(found, to);
}

/* Where the entry stands. */
static void derive_place(struct entry_form *form, const struct entry *entry)
{
    char chain_id[UUID_TEXT_BYTES];
    char digits[20];
    ASSERT(form->used == 0); /* it comes first */
    struct buf seq = {.data = digits, .cap = sizeof digits, .max = sizeof digits};
    buf_u64(&seq, entry->seq);
    (void)uuid_put(chain_id, entry->chain_id);
    const char *quote = entry->seq > ENTRY_NUMBER_MAX ? "\"" : "";
    struct slice id = keep(form, "\"ent_", slice_of(chain_id, 8), "_");
    id.len += keep(form, "", buf_view(&seq), "\"").len; /* kept right after it */
    derive(form, &form->top, "chain_id", quoted(form, chain_id));
    derive(form, &form->top, "entry_id", id);
    derive(form, &form->top, "seq", keep(form, quote, buf_view(&seq), quote));
}

/* The members of `decided` that have a usual value. */
static void derive_decided(struct entry_form *form)
{
    struct form_object *decided = &form->decided;
    struct slice fence_next = value_of(decided, "fence_next");
    bool by_key = value_of(decided, "fingerprint").len > 0;
    ASSERT(decided->count > 0); /* derive_decision found the decision in it */
    bool grants =
        value_of(decided, "lease_ms").len > 0 && !says(value_of(decided, "request"), "renew");
    derive(form, decided, "attempt", SLICE_LIT("1"));
    derive(form, decided, "fence", fence_next.len > 0 ? fence_next : SLICE_LIT("0"));
    derive(form, decided, "version", SLICE_LIT("0"));
    if (by_key) {
        derive(form, decided, "fingerprint_version", SLICE_LIT("1"));
    }
    if (grants) {
        derive(form, decided, "on_unknown", SLICE_LIT("\"hold\""));
    }
}

static void derive_dedupe(
    struct entry_form *form, enum decision_kind kind, struct slice operation_id)
{
    const char *decision = decision_name(kind);
    const char *shown = entry_dedupe(kind);
    ASSERT(operation_id.len >= 2);
    derive(form, &form->dedupe, "decision", quoted(form, shown));
    if (strcmp(shown, decision) != 0) {
        derive(form, &form->dedupe, "detail", quoted(form, decision));
    }
    derive(form, &form->dedupe, "executed",
        kind == DECISION_FIRST_SEEN ? SLICE_LIT("true") : SLICE_LIT("false"));
    derive(form, &form->dedupe, "original_operation_id", operation_id);
}

/* An object inside of the entry; absent is empty. */
static bool read_inner(
    const struct entry_form *form, const char *name, struct form_object *ret_object)
{
    struct slice text = value_of(&form->top, name);
    ret_object->count = 0;
    return text.len == 0 || read_object(text, ret_object);
}

/* What follows from the decision. False: the members from which it follows are not there. */
static bool derive_decision(struct entry_form *form)
{
    struct form_object *top = &form->top;
    struct form_object *decided = &form->decided;
    struct slice operation_id = value_of(top, "operation_id");
    struct slice request = value_of(decided, "request");
    struct slice named = value_of(decided, "status");
    enum decision_kind kind;
    uint64_t now_ms;
    char time[TEXT_TIME_BYTES];
    if (!decision_read(value_of(decided, "decision"), &kind) || operation_id.len < 2 ||
        !text_u64(value_of(decided, "now_ms"), &now_ms) || now_ms > INT64_MAX) {
        return false;
    }
    if (!form->expands && !change_word(form)) {
        return false;
    }
    const char *usual = entry_state_default(kind, NULL);
    struct slice state_default = usual == NULL ? named : quoted(form, usual);
    struct slice state = value_of(top, "lifecycle_state");
    state = state.len == 0 ? state_default : state;
    if (state.len < 2) {
        return false;
    }
    const char *type = entry_type_default(kind, slice_of(state.data + 1, state.len - 2));
    derive(form, top, "lifecycle_state", state_default);
    derive(form, top, "occurred_at", quoted(form, text_put_time(time, (int64_t)now_ms)));
    derive(form, top, "type", quoted(form, type));
    derive(form, &form->outcome, "status", state);
    if (slice_starts(operation_id, SLICE_LIT("\"cmd_"))) {
        derive(form, top, "command_id", operation_id);
    } else if (slice_starts(operation_id, SLICE_LIT("\"eff_"))) {
        derive(form, top, "effect_id", operation_id);
    }
    if (says(request, "begin") || says(request, "enqueue")) {
        derive_dedupe(form, kind, operation_id);
    }
    derive_decided(form);
    return !form->expands || change_word(form);
}

/* Changes the form of an entry of version 2. */
static bool change_form(struct entry_form *form, const struct entry *entry)
{
    ASSERT(entry_is_version_2(entry->bytes));
    derive_place(form, entry);
    if (find(&form->top, "decided") == form->top.count) {
        return true; /* of a note everything else is stored */
    }
    if (!read_inner(form, "decided", &form->decided) ||
        !read_inner(form, "dedupe", &form->dedupe) ||
        !read_inner(form, "outcome", &form->outcome) || !derive_decision(form)) {
        return false;
    }
    put_back(form, "decided", &form->decided);
    put_back(form, "dedupe", &form->dedupe);
    put_back(form, "outcome", &form->outcome);
    return true;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void put_value(struct buf *out, const struct form_member *member)
{
    buf_char(out, '"');
    buf_slice(out, member->name);
    buf_str(out, "\":");
    buf_slice(out, member->value);
}

/* Objects have at most two levels here. */
static void put_entry(struct buf *out, const struct form_object *top)
{
    ASSERT(top->count > 0);
    for (size_t i = 0; i < top->count; i++) {
        buf_char(out, i == 0 ? '{' : ',');
        put_value(out, &top->at[i]);
        const struct form_object *inner = top->at[i].object;
        for (size_t j = 0; inner != NULL && j < inner->count; j++) {
            buf_char(out, j == 0 ? '{' : ',');
            put_value(out, &inner->at[j]);
        }
        if (inner != NULL) {
            buf_char(out, '}');
        }
    }
    buf_char(out, '}');
}

static struct slice hex(struct entry_form *form, const struct digest *digest)
{
    char text[DIGEST_HEX_BYTES];
    return quoted(form, digest_put_hex(text, digest));
}

/* prev_hash may be NULL: the hashes are not shown. */
static enum status change(
    const struct entry *entry, bool expands, const struct digest *prev_hash, struct buf *out)
{
    struct entry_form form;
    form.expands = expands;
    form.is_partial = false;
    form.used = 0;
    if (!read_object(entry->bytes, &form.top) || form.top.count == 0 ||
        (entry_is_version_2(entry->bytes) && !change_form(&form, entry)) ||
        (form.is_partial && !expands)) {
        return E_CORRUPT;
    }
    if (prev_hash != NULL) {
        derive(&form, &form.top, "hash", hex(&form, &entry->hash));
        derive(&form, &form.top, "prev_hash", hex(&form, prev_hash));
    }
    put_entry(out, &form.top);
    return buf_status(out);
}

enum status entry_expand(const struct entry *entry, struct buf *out)
{
    return change(entry, true, NULL, out);
}

enum status entry_show(const struct entry *entry, const struct digest *prev_hash, struct buf *out)
{
    ASSERT(prev_hash != NULL);
    return change(entry, true, prev_hash, out);
}

enum status entry_contract(const struct entry *entry, struct buf *out)
{
    return change(entry, false, NULL, out);
}

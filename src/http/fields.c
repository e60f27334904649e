#include "http/fields.h"

#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/scan.h"
#include "base/text.h"
#include "canon/json.h"
#include "canon/jsonw.h"
#include "http/chars.h"

#define NAME(text) SLICE_INIT(text)

enum {
    KEPT_TREE_BYTES_MAX = 4 << 20, /* of kept fields being read: 256 a byte of text */
    KEPT_BYTES_SMALL = 1024, /* of kept fields whose tree the exchange has room for, as a rule */
    KEPT_FIELDS_MAX = HTTP_FIELDS_MAX + 1, /* those of an answer, and one of ours */
    PLAIN_FIELDS_MAX = 32,                 /* of kept fields that are read without a tree */
};

/* ---- which fields are which ---------------------------------------------------------------- */

/* RFC 9110 section 7.6.1, and the fields that older software sends instead. */
static const struct slice hop_names[] = {NAME("connection"), NAME("keep-alive"), NAME("te"),
    NAME("trailer"), NAME("transfer-encoding"), NAME("upgrade")};

/* Fields of an answer that only the gateway sets: an upstream must not set them in its place. */
static const struct slice said_names[] = {NAME("idempotency-key"), NAME("request-id"),
    NAME("idempotent-replayed"), NAME("original-request-id"), NAME("upstream-request-id")};

/* … those among them that are kept, because only the first exchange knows them. */
static const struct slice said_kept_names[] = {
    NAME("original-request-id"), NAME("upstream-request-id")};

/* Never kept, whatever a route says: a session belongs to the client that got it, the gateway sets
 * Last-Modified on a replay, and the length is that of the kept body. */
static const struct slice unkept_names[] = {
    NAME("set-cookie"), NAME("set-cookie2"), NAME("last-modified"), NAME("content-length")};

/* Kept only if a route names them: they describe the first exchange, not a replay. */
static const struct slice passing_names[] = {NAME("date"), NAME("age"), NAME("server-timing")};
/* … and every field of a rate limit: RateLimit, RateLimit-Policy, X-RateLimit-Remaining. */
static const struct slice passing_prefixes[] = {
    NAME("ratelimit"), NAME("x-ratelimit"), NAME("x-rate-limit")};

enum { LEAST_NAMES = 2 }; /* of the usual ones: without these a body cannot be read */
/* Kept by every list: fields that a client needs to read the body, or to know what to do next. */
static const struct slice usual_names[] = {NAME("content-type"), NAME("content-encoding"),
    NAME("content-language"), NAME("content-disposition"), NAME("content-location"),
    NAME("location"), NAME("etag"), NAME("link"), NAME("cache-control"), NAME("vary"),
    NAME("allow"), NAME("retry-after"), NAME("www-authenticate"), NAME("deprecation"),
    NAME("sunset"), NAME("warning")};

static bool is_among(struct slice name, const struct slice *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (http_same_name(name, names[i])) {
            return true;
        }
    }
    return false;
}

static bool begins(struct slice name, struct slice prefix)
{
    return name.len >= prefix.len && http_same_name(slice_of(name.data, prefix.len), prefix);
}

static bool is_hop(struct slice name)
{
    return is_among(name, hop_names, COUNT(hop_names)) || begins(name, SLICE_LIT("proxy-"));
}

static bool is_ours(struct slice name)
{
    return is_among(name, said_names, COUNT(said_names)) || begins(name, SLICE_LIT("once-"));
}

static bool is_passing(struct slice name)
{
    bool is_limit = false;
    for (size_t i = 0; i < COUNT(passing_prefixes); i++) {
        is_limit = is_limit || begins(name, passing_prefixes[i]);
    }
    return is_limit || is_among(name, passing_names, COUNT(passing_names));
}

/* Which fields of a message go further than this hop. */
struct through {
    bool is[HTTP_FIELDS_MAX];
};

/* Compares each name in a Connection field with each field once, however many there are. */
static void mark_named(const struct http_head *head, struct slice list, struct through *through)
{
    struct slice option;
    while (http_list_next(&list, &option)) {
        for (uint32_t i = 0; i < head->field_count; i++) {
            if (http_same_name(http_text(head, head->fields[i].name), option)) {
                through->is[i] = false;
            }
        }
    }
}

static void mark_through(const struct http_head *head, struct through *ret_through)
{
    const struct slice connection = SLICE_LIT("connection");
    ASSERT(head->field_count <= HTTP_FIELDS_MAX);
    for (uint32_t i = 0; i < head->field_count; i++) {
        ret_through->is[i] = !is_hop(http_text(head, head->fields[i].name));
    }
    for (uint32_t i = http_find(head, connection, 0); i < head->field_count;
         i = http_find(head, connection, i + 1)) {
        mark_named(head, http_text(head, head->fields[i].value), ret_through);
    }
}

/* As http_find, among those that go on. */
static uint32_t find_through(
    const struct http_head *head, const struct through *through, struct slice name, uint32_t from)
{
    uint32_t i = http_find(head, name, from);
    while (i < head->field_count && !through->is[i]) {
        i = http_find(head, name, i + 1);
    }
    return i;
}

static bool has_connection_option(const struct http_head *head, struct slice wanted)
{
    const struct slice connection = SLICE_LIT("connection");
    for (uint32_t i = http_find(head, connection, 0); i < head->field_count;
         i = http_find(head, connection, i + 1)) {
        struct slice list = http_text(head, head->fields[i].value);
        struct slice option;
        while (http_list_next(&list, &option)) {
            if (http_same_name(option, wanted)) {
                return true;
            }
        }
    }
    return false;
}

struct slice fields_upgrade(const struct http_head *head)
{
    struct slice protocol = SLICE_EMPTY;
    bool is_asked = head->minor == 1 && has_connection_option(head, SLICE_LIT("upgrade")) &&
                    http_find_single(head, SLICE_LIT("Upgrade"), &protocol) &&
                    http_all(protocol, HTTP_TOKEN);
    return is_asked ? protocol : SLICE_EMPTY;
}

/* ---- to the upstream ----------------------------------------------------------------------- */

/* RFC 9112 section 3.2: an origin server is sent a path. The text is in the buffer or the head. */
static struct slice target_of(const struct http_head *head, struct buf *scratch)
{
    if (head->form != HTTP_FORM_ABSOLUTE) {
        return http_text(head, head->target);
    }
    if (head->method == HTTP_METHOD_OPTIONS && head->path.len == 0 && !head->has_query) {
        return SLICE_LIT("*"); /* section 3.2.4 */
    }
    buf_slice(scratch, http_path(head));
    if (head->has_query) {
        buf_char(scratch, '?');
        buf_slice(scratch, http_text(head, head->query));
    }
    return buf_view(scratch);
}

/* The address in "127.0.0.1:51234", "[::1]:51234" or "::1"; empty if the peer has no address. */
static struct slice address_of(struct slice peer)
{
    size_t colons = 0, first = 0, bracket = 0;
    for (size_t i = peer.len; i-- > 0;) {
        colons += peer.data[i] == ':';
        first = peer.data[i] == ':' ? i : first;
        bracket = peer.data[i] == ']' ? i : bracket;
    }
    if (colons > 0 && peer.data[0] == '[') {
        return bracket == 0 ? SLICE_EMPTY : slice_of(peer.data + 1, bracket - 1);
    }
    return colons == 0 ? SLICE_EMPTY : colons == 1 ? slice_of(peer.data, first) : peer;
}

/* A request on its way to the upstream. */
struct passage {
    struct http_put put;
    const struct http_head *head;
    const struct fields_added *added;
    struct through through;
    struct buf scratch; /* for one value at a time */
};

/* Appends our own element to the received ones, on one line: many programs read only the first line
 * of a list, or only the last. */
static void put_list(struct passage *passage, struct slice name, struct slice element)
{
    const struct http_head *head = passage->head;
    struct buf *list = &passage->scratch;
    list->len = 0;
    for (uint32_t i = find_through(head, &passage->through, name, 0); i < head->field_count;
         i = find_through(head, &passage->through, name, i + 1)) {
        struct slice value = http_text(head, head->fields[i].value);
        if (value.len > 0) {
            buf_slice(list, value);
            buf_str(list, ", ");
        }
    }
    buf_slice(list, element);
    http_put_field(&passage->put, name, buf_view(list));
}

/* A client's field that is not passed on, because a different one replaces it. */
static bool is_replaced(
    const struct http_head *head, const struct fields_added *added, struct slice name)
{
    static const struct slice always[] = {
        NAME("host"), NAME("content-length"), NAME("expect"), NAME("via")};
    if (is_among(name, always, COUNT(always)) || begins(name, SLICE_LIT("once-"))) {
        return true;
    }
    if (http_same_name(name, SLICE_LIT("idempotency-key"))) {
        return added->idempotency_key.len > 0;
    }
    if (http_same_name(name, SLICE_LIT("request-id"))) {
        return added->request_id.len > 0;
    }
    if (http_same_name(name, SLICE_LIT("accept-encoding"))) {
        return added->is_identity;
    }
    if (http_same_name(name, SLICE_LIT("x-forwarded-for"))) {
        return address_of(added->peer).len > 0;
    }
    if (http_same_name(name, SLICE_LIT("traceparent"))) {
        return added->traceparent.len > 0;
    }
    if (http_same_name(name, SLICE_LIT("tracestate")) && added->traceparent.len > 0) {
        /* Trace Context section 3.3.1: it belongs to its traceparent and is dropped with it. */
        struct slice given = SLICE_EMPTY;
        return !http_find_single(head, SLICE_LIT("traceparent"), &given) ||
               !slice_equal(given, added->traceparent);
    }
    return false;
}

static void put_some(struct http_put *put, struct slice name, struct slice value)
{
    if (value.len > 0) {
        http_put_field(put, name, value);
    }
}

static void put_if_absent(struct passage *passage, struct slice name, struct slice value)
{
    const struct http_head *head = passage->head;
    if (find_through(head, &passage->through, name, 0) == head->field_count) {
        put_some(&passage->put, name, value);
    }
}

static void put_forwarded(struct passage *passage)
{
    const struct fields_added *added = passage->added;
    struct slice address = address_of(added->peer);
    if (address.len > 0) {
        put_list(passage, SLICE_LIT("X-Forwarded-For"), address);
    }
    if (added->peer.len > 0) {
        /* A proxy in front of us is nearer to the client, so its word about the client's side
         * wins. */
        put_if_absent(passage, SLICE_LIT("X-Forwarded-Proto"),
            added->is_tls ? SLICE_LIT("https") : SLICE_LIT("http"));
        put_if_absent(passage, SLICE_LIT("X-Forwarded-Host"),
            http_text(passage->head, passage->head->authority));
    }
    put_list(passage, SLICE_LIT("Via"),
        passage->head->minor == 0 ? SLICE_LIT("1.0 once") : SLICE_LIT("1.1 once"));
}

static void put_added(struct http_put *put, const struct fields_added *added)
{
    put_some(put, SLICE_LIT("Accept-Encoding"),
        added->is_identity ? SLICE_LIT("identity") : SLICE_EMPTY);
    put_some(put, SLICE_LIT("Idempotency-Key"), added->idempotency_key);
    put_some(put, SLICE_LIT("Request-Id"), added->request_id);
    if (added->fence > 0) {
        put_some(put, SLICE_LIT("Once-Operation-Id"), added->operation_id);
        http_put_number(put, SLICE_LIT("Once-Fence"), added->fence);
        http_put_number(put, SLICE_LIT("Once-Attempt"), added->attempt);
    }
    put_some(put, SLICE_LIT("traceparent"), added->traceparent);
    if (added->upgrade.len > 0) {
        http_put_field(put, SLICE_LIT("Connection"), SLICE_LIT("Upgrade"));
        http_put_field(put, SLICE_LIT("Upgrade"), added->upgrade);
    }
}

static void put_framing(struct http_put *put, int64_t length)
{
    if (length >= 0) {
        http_put_length(put, (uint64_t)length);
    } else if (length == HTTP_LENGTH_CHUNKED) {
        http_put_chunked(put);
    }
}

static void put_through(struct passage *passage)
{
    const struct http_head *head = passage->head;
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct slice name = http_text(head, head->fields[i].name);
        if (passage->through.is[i] && !is_replaced(head, passage->added, name)) {
            http_put_field(&passage->put, name, http_text(head, head->fields[i].value));
        }
    }
}

enum status fields_request(
    const struct http_head *head, const struct fields_added *added, struct buf *out)
{
    ASSERT(!head->is_response);
    struct passage passage = {.head = head, .added = added};
    struct http_put *put = &passage.put;
    mark_through(head, &passage.through);
    buf_init(&passage.scratch, out->mem, out->max);
    http_put_request(
        put, out, http_text(head, head->method_text), target_of(head, &passage.scratch));
    http_put_field(put, SLICE_LIT("Host"),
        added->authority.len > 0 ? added->authority : http_text(head, head->authority));
    put_through(&passage);
    put_forwarded(&passage);
    put_added(put, added);
    put_framing(put, added->length);
    /* A target or a list that was cut short is not sent, and is not reported as invalid. */
    if (buf_status(&passage.scratch) != OK) {
        put->status = passage.scratch.status;
    }
    enum status status = http_put_end(put);
    buf_release(&passage.scratch);
    return status;
}

/* ---- to the client ------------------------------------------------------------------------- */

/* The name under which a field of an upstream's answer is passed on; empty: it is not. Request-Id
 * is ours, so the upstream's own id gets a different name; an echo of our id is dropped. */
static struct slice name_onward(struct slice name, struct slice value, struct slice request_id)
{
    if (http_same_name(name, SLICE_LIT("request-id"))) {
        bool is_own = value.len > 0 && !slice_equal(value, request_id);
        return is_own ? SLICE_LIT("Upstream-Request-Id") : SLICE_EMPTY;
    }
    bool is_dropped = is_ours(name) || http_same_name(name, SLICE_LIT("content-length"));
    return is_dropped ? SLICE_EMPTY : name;
}

void fields_answer(const struct http_head *head, struct http_exchange *exchange)
{
    ASSERT(head->is_response);
    struct through through;
    mark_through(head, &through);
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct slice value = http_text(head, head->fields[i].value);
        struct slice name =
            name_onward(http_text(head, head->fields[i].name), value, exchange->request_id);
        if (!through.is[i] || name.len == 0) {
            continue;
        }
        http_answer_field(exchange, name, value);
        exchange->has_date = exchange->has_date || http_same_name(name, SLICE_LIT("date"));
    }
}

/* ---- what is kept -------------------------------------------------------------------------- */

/* What a kept field may be called at all. */
static bool may_be_kept(struct slice name)
{
    return is_among(name, said_kept_names, COUNT(said_kept_names)) ||
           (!is_hop(name) && !is_ours(name) && !is_among(name, unkept_names, COUNT(unkept_names)));
}

static bool is_asked_for(struct slice name, const struct fields_kept *kept)
{
    if (kept == NULL) {
        return is_among(name, usual_names, LEAST_NAMES);
    }
    for (size_t i = 0; i < kept->count; i++) {
        struct slice asked = slice_str(kept->names[i]);
        if (http_same_name(name, asked) || (slice_is(asked, "*") && !is_passing(name))) {
            return true;
        }
    }
    return is_among(name, usual_names, COUNT(usual_names)) ||
           is_among(name, said_kept_names, COUNT(said_kept_names));
}

static void keep_field(struct jsonw *json, struct slice name, struct slice value)
{
    jsonw_open(json, NULL, '[');
    jsonw_bytes(json, NULL, name);
    if (!text_utf8(value)) {
        jsonw_raw(json, NULL, SLICE_LIT("null"));
    }
    jsonw_bytes(json, NULL, value); /* base64 if it is not UTF-8 */
    jsonw_close(json, ']');
}

bool fields_is_ours(struct slice meta)
{
    static const char start[] = "{\"format\":\"once-http-1\"";
    return meta.len >= sizeof start && memcmp(meta.data, start, sizeof start - 1) == 0;
}

/* Kept fields while they are written. The buffer may have other bytes before them. */
struct keeping {
    struct jsonw json;
    size_t start;
};

static void keep_begin(struct keeping *keeping, struct buf *out)
{
    *keeping = (struct keeping){.json = {.out = out}, .start = out->len};
    jsonw_open(&keeping->json, NULL, '{');
    jsonw_str(&keeping->json, "format", "once-http-1");
    jsonw_open(&keeping->json, "headers", '[');
}

/* On failure nothing is left in the buffer. */
static enum status keep_end(struct keeping *keeping)
{
    struct buf *out = keeping->json.out;
    jsonw_close(&keeping->json, ']');
    jsonw_close(&keeping->json, '}');
    enum status status = buf_status(out);
    if (status == OK && out->len - keeping->start > LIMIT_OUTCOME_META_BYTES_MAX) {
        status = E_LIMIT;
    }
    if (status != OK) {
        out->len = keeping->start;
    }
    return status;
}

enum status fields_keep(const struct http_head *head, const struct fields_kept *kept,
    struct slice request_id, struct buf *out)
{
    struct keeping keeping;
    struct through through;
    mark_through(head, &through);
    keep_begin(&keeping, out);
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct slice value = http_text(head, head->fields[i].value);
        struct slice name = name_onward(http_text(head, head->fields[i].name), value, request_id);
        if (through.is[i] && name.len > 0 && may_be_kept(name) && is_asked_for(name, kept)) {
            keep_field(&keeping.json, name, value);
        }
    }
    if (request_id.len > 0) {
        keep_field(&keeping.json, SLICE_LIT("Original-Request-Id"), request_id);
    }
    return keep_end(&keeping);
}

/* ---- replays ------------------------------------------------------------------------------- */

static enum status unbase64(struct slice text, struct arena *arena, struct slice *ret_bytes)
{
    char *bytes = arena_alloc(arena, BASE64_BYTES_MAX(text.len));
    size_t size = 0;
    if (bytes == NULL) {
        return E_NOMEM;
    }
    if (!base64_read(text, BASE64_PADDED, bytes, &size)) {
        return E_INVALID;
    }
    *ret_bytes = slice_of(bytes, size);
    return OK;
}

struct kept_field {
    struct slice name;
    struct slice value;
};

/* Only fields that we would have kept: an outcome may have come through a different door, whose
 * callers write the meta themselves. */
static bool is_replayable(const struct kept_field *field)
{
    return http_all(field->name, HTTP_TOKEN) && may_be_kept(field->name) &&
           http_is_value(field->value);
}

/* ["Name","value"] or ["Name",null,"base64"]. */
static enum status field_of(
    const struct json_value *item, struct arena *arena, struct kept_field *ret_field)
{
    if (!json_is(item, JSON_ARRAY) || item->count < 2 || !json_is(&item->items[0], JSON_STRING)) {
        return E_INVALID;
    }
    struct kept_field field = {.name = json_text(&item->items[0])};
    if (item->count == 2 && json_is(&item->items[1], JSON_STRING)) {
        field.value = json_text(&item->items[1]);
    } else if (item->count == 3 && json_is(&item->items[1], JSON_NULL) &&
               json_is(&item->items[2], JSON_STRING)) {
        enum status status = unbase64(json_text(&item->items[2]), arena, &field.value);
        if (status != OK) {
            return status;
        }
    } else {
        return E_INVALID;
    }
    if (!is_replayable(&field)) {
        return E_INVALID;
    }
    *ret_field = field;
    return OK;
}

/* The name of a field that cannot be kept, if there is one to show. */
static enum status refuse_field(const struct json_value *item, uint32_t number, struct err *err)
{
    enum { NAME_SHOWN_MAX = 64 };
    bool is_named = json_is(item, JSON_ARRAY) && item->count > 0 &&
                    json_is(&item->items[0], JSON_STRING) &&
                    http_all(json_text(&item->items[0]), HTTP_TOKEN);
    struct slice name = is_named ? json_text(&item->items[0]) : SLICE_EMPTY;
    if (!is_named) {
        return err_set(err, E_INVALID, "entry %u is not a pair of a name and a value", number);
    }
    return err_set(err, E_INVALID,
        may_be_kept(name) ? "'%.*s' has a value that no field can have"
                          : "'%.*s' is a field that is never replayed",
        (int)(name.len < NAME_SHOWN_MAX ? name.len : NAME_SHOWN_MAX), name.data);
}

static enum status read_list(const struct json_value *list, struct arena *arena,
    struct kept_field **ret_fields, size_t *ret_count, struct err *err)
{
    if (!json_is(list, JSON_ARRAY) || list->count > KEPT_FIELDS_MAX) {
        return err_set(
            err, E_INVALID, "not a list of at most %d pairs of name and value", HTTP_FIELDS_MAX);
    }
    struct kept_field *fields = arena_alloc(arena, (list->count + 1) * sizeof *fields);
    for (uint32_t i = 0; fields != NULL && i < list->count; i++) {
        enum status status = field_of(&list->items[i], arena, &fields[i]);
        if (status != OK) {
            return status == E_INVALID ? refuse_field(&list->items[i], i + 1, err) : status;
        }
    }
    if (fields == NULL) {
        return E_NOMEM;
    }
    *ret_fields = fields;
    *ret_count = list->count;
    return OK;
}

static enum status read_kept(
    struct slice meta, struct arena *arena, struct kept_field **ret_fields, size_t *ret_count)
{
    const struct json_value *root;
    struct err err;
    if (meta.len > LIMIT_OUTCOME_META_BYTES_MAX) {
        return E_INVALID;
    }
    enum status status = json_read(meta, arena, &root, NULL);
    if (status != OK) {
        return status == E_NOMEM ? E_NOMEM : E_INVALID;
    }
    const struct json_value *format = json_find(root, SLICE_LIT("format"));
    if (!json_is(format, JSON_STRING) || !slice_is(json_text(format), "once-http-1") ||
        root->count != 2) {
        return E_INVALID;
    }
    return read_list(json_find(root, SLICE_LIT("headers")), arena, ret_fields, ret_count, &err);
}

static bool take(struct slice *left, struct slice start)
{
    bool is_there = slice_starts(*left, start);
    if (is_there) {
        *left = slice_of(left->data + start.len, left->len - start.len);
    }
    return is_there;
}

/* Up to the first quote, escape, or byte that is not ASCII. */
static struct slice take_run(struct slice *left)
{
    const char *end = scan_ascii_run(left->data, left->data + left->len);
    struct slice run = slice_of(left->data, (size_t)(end - left->data));
    *left = slice_of(end, left->len - run.len);
    return run;
}

/* Nearly every meta has a few fields of plain text, as keep_begin, keep_field and keep_end write
 * them, and needs no tree of its JSON. False: this one is different; see read_kept. */
static bool read_plain(
    struct slice meta, struct kept_field fields[PLAIN_FIELDS_MAX], size_t *ret_count)
{
    struct slice left = meta;
    bool goes_on = meta.len <= LIMIT_OUTCOME_META_BYTES_MAX &&
                   take(&left, SLICE_LIT("{\"format\":\"once-http-1\",\"headers\":["));
    for (size_t count = 0; goes_on && count < PLAIN_FIELDS_MAX; count++) {
        struct kept_field *field = &fields[count];
        goes_on = take(&left, SLICE_LIT("[\""));
        field->name = take_run(&left);
        goes_on = goes_on && take(&left, SLICE_LIT("\",\""));
        field->value = take_run(&left);
        goes_on = goes_on && take(&left, SLICE_LIT("\"]")) && is_replayable(field);
        if (goes_on && slice_is(left, "]}")) {
            *ret_count = count + 1;
            return true;
        }
        goes_on = goes_on && take(&left, SLICE_LIT(","));
    }
    return false;
}

static bool has_type(const struct kept_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (http_same_name(fields[i].name, SLICE_LIT("content-type"))) {
            return true;
        }
    }
    return false;
}

enum status fields_keep_listed(const struct json_value *list, struct slice type,
    struct arena *arena, struct buf *out, struct err *err)
{
    struct kept_field *fields = NULL;
    size_t count = 0;
    struct keeping keeping;
    enum status status = list == NULL ? OK : read_list(list, arena, &fields, &count, err);
    if (status != OK) {
        return status;
    }
    if (count > HTTP_FIELDS_MAX) { /* the type is one more */
        return err_set(err, E_INVALID, "more than %d fields", HTTP_FIELDS_MAX);
    }
    keep_begin(&keeping, out);
    for (size_t i = 0; i < count; i++) {
        keep_field(&keeping.json, fields[i].name, fields[i].value);
    }
    if (type.len > 0 && !has_type(fields, count)) {
        keep_field(&keeping.json, SLICE_LIT("Content-Type"), type);
    }
    status = keep_end(&keeping);
    return status == E_LIMIT ? err_set(err, E_LIMIT, "longer than outcome_meta_bytes_max (%d)",
                                   LIMIT_OUTCOME_META_BYTES_MAX)
                             : status;
}

/* A long meta has its own memory, more than 16 KiB of text can need, and so has one for which the
 * exchange has none left. Otherwise a nearly full arena would look like a meta that is not ours,
 * and the answer would have no fields. */
enum status fields_replay(struct slice meta, const struct fields_how *how, const struct mem *mem,
    struct http_exchange *exchange, struct err *err)
{
    static const struct slice origin_names[] = {
        NAME("access-control-allow-origin"), NAME("access-control-allow-credentials")};
    struct arena own;
    struct kept_field plain[PLAIN_FIELDS_MAX];
    struct kept_field *fields = plain;
    size_t count = 0;
    arena_init(&own, mem, KEPT_TREE_BYTES_MAX);
    enum status status = read_plain(meta, plain, &count) ? OK
                         : meta.len > KEPT_BYTES_SMALL
                             ? E_NOMEM
                             : read_kept(meta, exchange->arena, &fields, &count);
    if (status == E_NOMEM) {
        status = read_kept(meta, &own, &fields, &count);
    }
    for (size_t i = 0; i < count; i++) {
        if (how->without_origin && is_among(fields[i].name, origin_names, COUNT(origin_names))) {
            continue;
        }
        http_answer_field(exchange, fields[i].name, fields[i].value);
        exchange->has_date =
            exchange->has_date || http_same_name(fields[i].name, SLICE_LIT("date"));
    }
    arena_release(&own);
    return status == OK ? OK
                        : err_set(err, status, "%s",
                              status == E_NOMEM ? "out of memory"
                                                : "what was kept beside the outcome is not ours");
}

/* ---- traces and dates ---------------------------------------------------------------------- */

enum {
    TRACE_ID_AT = 3,   /* after "00-" */
    PARENT_ID_AT = 36, /* after the trace id and its dash */
    FLAGS_AT = 53,     /* after the parent id and its dash */
};

void fields_traceparent(const unsigned char random[24], char ret_text[FIELDS_TRACEPARENT_BYTES + 1])
{
    unsigned char ids[24];
    memcpy(ids, random, sizeof ids);
    /* An id of zeros means none, and then the whole is not valid. */
    static const unsigned char zeros[16];
    ids[15] |= memcmp(ids, zeros, 16) == 0;
    ids[23] |= memcmp(ids + 16, zeros, 8) == 0;
    memcpy(ret_text, "00-", 3);
    (void)text_put_hex(ret_text + TRACE_ID_AT, ids, 16);
    ret_text[PARENT_ID_AT - 1] = '-';
    (void)text_put_hex(ret_text + PARENT_ID_AT, ids + 16, 8);
    memcpy(ret_text + FLAGS_AT - 1, "-00", 4);
}

/* Lower-case hex; of an id, with a digit that is not 0. */
static bool is_hex(struct slice text, size_t from, size_t count, bool is_id)
{
    bool is_zero = true;
    for (size_t i = from; i < from + count; i++) {
        char c = text.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) {
            return false;
        }
        is_zero = is_zero && c == '0';
    }
    return !is_id || !is_zero;
}

/* "00-<32 hex>-<16 hex>-<2 hex>"; a later version may continue after one more dash. */
static bool is_traceparent(struct slice text)
{
    if (text.len < FIELDS_TRACEPARENT_BYTES || text.len > LIMIT_SOURCE_BYTES_MAX ||
        text.data[TRACE_ID_AT - 1] != '-' || text.data[PARENT_ID_AT - 1] != '-' ||
        text.data[FLAGS_AT - 1] != '-' || slice_starts(text, SLICE_LIT("ff"))) {
        return false;
    }
    bool goes_on = text.len > FIELDS_TRACEPARENT_BYTES;
    if (goes_on &&
        (slice_starts(text, SLICE_LIT("00")) || text.data[FIELDS_TRACEPARENT_BYTES] != '-')) {
        return false;
    }
    return is_hex(text, 0, 2, false) && is_hex(text, TRACE_ID_AT, 32, true) &&
           is_hex(text, PARENT_ID_AT, 16, true) && is_hex(text, FLAGS_AT, 2, false);
}

struct slice fields_traceparent_of(const struct http_head *head)
{
    struct slice text = SLICE_EMPTY;
    bool found = http_find_single(head, SLICE_LIT("traceparent"), &text);
    return found && is_traceparent(text) && text_utf8(text) ? text : SLICE_EMPTY;
}

struct slice fields_trace_id(const struct http_head *head)
{
    struct slice text = fields_traceparent_of(head);
    return text.len == 0 ? SLICE_EMPTY : slice_of(text.data + TRACE_ID_AT, 32);
}

/*
 * fuzz_request_form: what a request asks, out of any bytes. The input is parts between 0x1e: key,
 * path, query, content type, glob, Prefer, an ignored pointer, a redacted one, and two bodies.
 *
 * What is read is its own form. Two JSON bodies have one fingerprint exactly when they are equal.
 * What is kept is JSON and can be read again; so can what explains a difference. A redacted text
 * that is in no other part of the input is in neither.
 */
#include <stdint.h>

#include "base/check.h"
#include "base/limits.h"
#include "canon/jcs.h"
#include "gateway/request_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    FUZZ_BYTES_MAX = 64 << 20,
    TEXT_MAX = 256, /* bytes of a glob or a pointer */
};

enum { KEY, PATH, QUERY, TYPE, GLOB, PREFER, IGNORE, REDACT, FIRST, NOW, PARTS };

static void split(struct slice text, struct slice parts[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        const char *end = text.len == 0 ? NULL : memchr(text.data, 0x1e, text.len);
        size_t len = end == NULL || i == PARTS - 1 ? text.len : (size_t)(end - text.data);
        parts[i] = slice_of(text.data, len);
        len += len < text.len;
        text = len == text.len ? SLICE_EMPTY : slice_of(text.data + len, text.len - len);
    }
}

/* A text that ends where C has it end. */
static const char *terminated(struct slice text, char ret_text[TEXT_MAX])
{
    size_t len = text.len < TEXT_MAX ? text.len : TEXT_MAX - 1;
    if (len > 0) {
        memcpy(ret_text, text.data, len);
    }
    ret_text[len] = '\0';
    return ret_text;
}

static bool has(struct slice text, struct slice word)
{
    return text.data != NULL && memmem(text.data, text.len, word.data, word.len) != NULL;
}

static void check_key(struct slice field, struct arena *arena)
{
    struct slice key, again;
    struct err err = {.status = OK};
    char quoted[2 * LIMIT_KEY_BYTES_MAX + 2];
    size_t at = 0;
    if (request_form_key(field, arena, &key, &err) != OK) {
        ASSERT(err.status == E_INVALID && err.text[0] != '\0');
        return;
    }
    ASSERT(key.len >= 1 && key.len <= LIMIT_KEY_BYTES_MAX);
    (void)request_form_key_is_uuid(key);
    quoted[at++] = '"';
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] == '"' || key.data[i] == '\\') {
            quoted[at++] = '\\';
        }
        quoted[at++] = key.data[i];
    }
    quoted[at++] = '"';
    ASSERT(request_form_key(slice_of(quoted, at), arena, &again, NULL) == OK);
    ASSERT(slice_equal(key, again));
}

static struct slice check_path(struct slice path, struct arena *arena)
{
    struct slice form, again;
    if (request_form_path(path, arena, &form, NULL) != OK) {
        return SLICE_LIT("/");
    }
    ASSERT(request_form_path(form, arena, &again, NULL) == OK);
    ASSERT(slice_equal(form, again));
    ASSERT(form.len <= path.len || path.len == 0);
    ASSERT(!has(form, SLICE_LIT("/../")) && !has(form, SLICE_LIT("/./")));
    struct slice scope;
    struct request_form_place place = {.method = SLICE_LIT("POST"), .path = form};
    ASSERT(request_form_scope(&place, arena, &scope) == OK);
    ASSERT(scope.len > 5 && scope.len <= LIMIT_SCOPE_BYTES_MAX);
    return form;
}

static struct slice check_query(struct slice query, struct arena *arena)
{
    struct slice form, again;
    if (request_form_query(query, arena, &form, NULL) != OK) {
        return SLICE_EMPTY;
    }
    ASSERT(request_form_query(form, arena, &again, NULL) == OK);
    ASSERT(slice_equal(form, again));
    return form;
}

static struct slice check_type(struct slice field, struct arena *arena)
{
    struct slice form, again;
    ASSERT(request_form_content_type(field, arena, &form) == OK);
    ASSERT(request_form_content_type(form, arena, &again) == OK);
    ASSERT(slice_equal(form, again));
    ASSERT(form.len <= field.len);
    return form;
}

static void check_glob(const char *glob, struct slice path)
{
    char own[TEXT_MAX];
    bool matches = route_glob(glob, path);
    ASSERT(route_glob("**", path));
    ASSERT(matches || !slice_is(path, glob) || strchr(glob, '*') != NULL);
    ASSERT(route_glob(terminated(path, own), path) || path.len >= TEXT_MAX ||
           memchr(path.data, '\0', path.len) != NULL);
}

static void keyed(const void *context, const struct digest *plain, struct digest *ret_keyed)
{
    digest_hmac(context, 1, plain->bytes, sizeof plain->bytes, ret_keyed);
}

static const struct json_value *read_json(struct slice text, struct arena *arena)
{
    const struct json_value *value;
    return json_read(text, arena, &value, NULL) == OK ? value : NULL;
}

/* What is kept reads as canonical JSON, but for numbers that stand as they came. */
static void check_kept(const struct request_form *asked, struct arena *arena)
{
    struct buf form;
    struct jcs_how how = {.keep_lossy = true};
    struct slice path;
    const struct json_value *kept = read_json(asked->kept, arena);
    ASSERT(kept != NULL);
    buf_init(&form, &mem_libc, FUZZ_BYTES_MAX);
    ASSERT(jcs_write_marked(kept, &how, &form, NULL, NULL) == OK);
    ASSERT(slice_equal(buf_view(&form), asked->kept));
    buf_release(&form);
    (void)request_form_kept_path(asked->kept, arena, &path);
}

static void check_equality(const struct request_form_parts *from, const struct request_form *first,
    const struct request_form *now, struct slice other, struct arena *arena)
{
    bool same = digest_equal(&first->fingerprint, &now->fingerprint);
    ASSERT(same || !slice_equal(from->body, other));
    ASSERT(!same || first->body.version == now->body.version);
    if (first->body.version == FINGERPRINT_RAW && same) {
        ASSERT(slice_equal(from->body, other));
    }
    if (from->ignore_count == 0 && first->body.version == FINGERPRINT_CANONICAL &&
        now->body.version == FINGERPRINT_CANONICAL) {
        ASSERT(same == json_equal(read_json(from->body, arena), read_json(other, arena)));
    }
}

/* A form that is known changes nothing but what is kept, and is used for its own body alone. */
static void check_known(const struct request_form_parts *from, const struct request_form *first,
    const struct request_form *now, struct arena *arena)
{
    struct request_form again;
    struct request_form_parts known = *from;
    known.known = &first->body;
    ASSERT(request_form_read(&known, arena, &again) == OK);
    ASSERT(again.is_known && again.kept.len == 0);
    ASSERT(digest_equal(&again.fingerprint, &first->fingerprint));
    ASSERT(again.body.version == first->body.version);
    known.known = &now->body;
    ASSERT(request_form_read(&known, arena, &again) == OK);
    ASSERT(again.is_known == digest_equal(&first->body.received, &now->body.received));
    ASSERT(digest_equal(&again.fingerprint, &first->fingerprint));
}

/* The text under the redacted pointer, where it is in no other place of the input, in whatever
 * spelling. One that does not begin as a secret may be there by chance. */
static struct slice secret_of(
    const struct request_form_parts *from, struct slice all, struct arena *arena)
{
    struct json_mask marks = {NULL, 0};
    struct json_mask_list list = {from->redact, from->redact_count, JSON_MASK_REDACTED};
    const struct json_value *body = read_json(from->body, arena);
    if (body == NULL || json_mask_make(body, &list, 1, arena, &marks) != OK) {
        return SLICE_EMPTY;
    }
    for (size_t i = 0; i < marks.count; i++) {
        const struct json_value *node = marks.items[i].node;
        struct slice text = json_text(node);
        const char *at = NULL;
        if (marks.items[i].way == JSON_MASK_REDACTED && node->type == JSON_STRING && text.len > 6 &&
            memcmp(text.data, "s3cr3t", 6) == 0 && memchr(all.data, '\\', all.len) == NULL &&
            memchr(all.data, '%', all.len) == NULL) {
            at = memmem(all.data, all.len, text.data, text.len);
        }
        if (at != NULL) {
            size_t left = all.len - (size_t)(at + 1 - all.data);
            return memmem(at + 1, left, text.data, text.len) == NULL ? text : SLICE_EMPTY;
        }
    }
    return SLICE_EMPTY;
}

static void check_hidden(struct slice secret, struct slice text)
{
    ASSERT(secret.len == 0 || !has(text, secret));
}

static void check_requests(struct request_form_parts *from, struct slice now_body, struct slice all,
    struct slice foreign, struct arena *arena)
{
    struct request_form first, now;
    struct buf out;
    size_t bytes;
    struct request_form_parts other = *from;
    other.body = now_body;
    ASSERT(request_form_read(from, arena, &first) == OK &&
           request_form_read(&other, arena, &now) == OK);
    check_kept(&first, arena);
    check_kept(&now, arena);
    check_known(from, &first, &now, arena);
    check_equality(from, &first, &now, now_body, arena);
    buf_init(&out, &mem_libc, FUZZ_BYTES_MAX);
    for (int i = 0; i < 4; i++) {
        buf_clear(&out);
        buf_char(&out, '{');
        ASSERT(request_form_explain(i < 2 ? first.kept : foreign, &now, i % 2 == 0, from->redact,
                   from->redact_count, &out, &bytes) == OK);
        buf_char(&out, '}');
        ASSERT(read_json(buf_view(&out), arena) != NULL);
        ASSERT(bytes <= LIMIT_DIFF_BYTES_MAX);
        check_hidden(secret_of(from, all, arena), buf_view(&out));
        check_hidden(secret_of(&other, all, arena), buf_view(&out));
    }
    check_hidden(secret_of(from, all, arena), first.kept);
    check_hidden(secret_of(&other, all, arena), now.kept);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct slice parts[PARTS];
    struct slice all = slice_of(data, size);
    char glob[TEXT_MAX], ignore[TEXT_MAX], redact[TEXT_MAX];
    split(all, parts);
    const char *ignored = terminated(parts[IGNORE], ignore);
    const char *redacted = terminated(parts[REDACT], redact);
    arena_init(&arena, &mem_libc, FUZZ_BYTES_MAX);
    check_key(parts[KEY], &arena);
    struct request_form_parts from = {.method = SLICE_LIT("POST"),
        .path = check_path(parts[PATH], &arena),
        .query = check_query(parts[QUERY], &arena),
        .has_query = parts[QUERY].len > 0,
        .content_type = check_type(parts[TYPE], &arena),
        .body = parts[FIRST],
        .ignore = &ignored,
        .ignore_count = parts[IGNORE].len > 0,
        .redact = &redacted,
        .redact_count = parts[REDACT].len > 0,
        .keyed = keyed,
        .context = "k"};
    check_glob(terminated(parts[GLOB], glob), from.path);
    ASSERT(request_form_wait_ms(parts[PREFER]) >= -1);
    check_requests(&from, parts[NOW], all, parts[FIRST], &arena);
    arena_release(&arena);
    return 0;
}

/*
 * request_form: what a request asks, in the forms that are compared, hashed and kept. Pure.
 *
 * Promises:  two spellings of the same thing have one form: a quoted and a bare key, %7E and ~,
 *            members of a JSON body in any order. Two different things never have the same (P13):
 *            parts are length-framed; what is no JSON, or would be lossy, is hashed as it is.
 *            What is under a redacted pointer is in no kept form, only in the fingerprint, which
 *            is keyed before it is stored (engine_fingerprint).
 * Does not:  read sockets, know routes or answers.
 * Ownership: results are in the arena or in the arguments.
 */
#ifndef ONCE_GATEWAY_REQUEST_FORM_H
#define ONCE_GATEWAY_REQUEST_FORM_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "canon/payload.h"

/*
 * The key in an Idempotency-Key field: an RFC 9651 string ("abc", with \" and \\), or bare: visible
 * ASCII without quotes, backslashes or commas. 1 to LIMIT_KEY_BYTES_MAX bytes. E_INVALID says what
 * is wrong, without the key. E_NOMEM.
 */
enum status request_form_key(
    struct slice field, struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;
/* The same, but what is no such string is a key all the same, of any printable ASCII, as Stripe
 * takes it. */
enum status request_form_key_printable(
    struct slice field, struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;
/* A key that is a whole text: 1 to LIMIT_KEY_BYTES_MAX bytes of ASCII without control characters.
 * E_INVALID, E_NOMEM. */
enum status request_form_key_plain(
    struct slice text, struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;
/* The key that a JSON Pointer leads to in a body: a string, or a whole number in its canonical form
 * (1.0 is 1). *ret_key is empty where the pointer leads nowhere. E_INVALID: the body is no JSON,
 * the value of a different type, a number that no double holds, or no key. E_NOMEM. */
enum status request_form_key_in_body(struct slice body, const char *pointer, struct arena *arena,
    struct slice *ret_key, struct err *err) MUST_CHECK;
/* A key as the value of an Idempotency-Key field: bare where that can be read, else an RFC 9651
 * string. The key is one of request_form_key_plain. E_NOMEM. */
enum status request_form_key_field(
    struct slice key, struct arena *arena, struct slice *ret_field) MUST_CHECK;
/* RFC 9562: 8-4-4-4-12 hex digits, any version, any case. */
bool request_form_key_is_uuid(struct slice key);

/* RFC 3986 section 6.2.2: unreserved characters decoded, hex digits in upper case, dot segments
 * removed. Slashes are not merged and reserved characters stay as they are. Nothing is "/", and "*"
 * is itself. E_INVALID: no slash in front, a broken percent-encoding, an encoded NUL, or dot
 * segments that lead above the root. E_NOMEM. */
enum status request_form_path(
    struct slice path, struct arena *arena, struct slice *ret_path, struct err *err) MUST_CHECK;
/* The same normalisation of each name and value; pairs sorted by name, those of one name in their
 * order. "a=1&b" and "b&a=1" are one; "b" and "b=" are not. E_INVALID as of a path; E_NOMEM. */
enum status request_form_query(
    struct slice query, struct arena *arena, struct slice *ret_query, struct err *err) MUST_CHECK;
/* Type and subtype in lower case, parameters trimmed, their names in lower case, in their order.
 * "charset=utf-8" of JSON is left out, unless there is a different charset too. */
enum status request_form_content_type(
    struct slice field, struct arena *arena, struct slice *ret_type) MUST_CHECK;
/* application/json and whatever ends in +json. */
bool request_form_is_json(struct slice content_type);

/* '*' is any run of characters within a segment, an empty one too; "**" as a whole segment is any
 * number of segments, none too: with one at its end, a glob of "/v1/payments" matches that path and
 * everything below. The time is at most the product of both lengths. */
bool route_glob(const char *glob, struct slice path);

/* What a scope is made of. */
struct request_form_place {
    struct slice method;
    struct slice host; /* where the API serves several names (preserve_host); else empty */
    struct slice path; /* canonical */
};
/* "POST /v1/payments", "POST shop.example/v1/payments"; the host is in lower case. One that is too
 * long is cut and ends in "#" and a digest of all of it. */
enum status request_form_scope(const struct request_form_place *place, struct arena *arena,
    struct slice *ret_scope) MUST_CHECK;

/* `Prefer: wait=N` (RFC 7240), in milliseconds; -1: it is absent, or badly written. */
int64_t request_form_wait_ms(struct slice prefer);

/* A request in its canonical parts. */
struct request_form_parts {
    struct slice method;
    struct slice path;  /* canonical */
    struct slice query; /* canonical; has_query tells "?" from nothing */
    bool has_query;
    struct slice content_type; /* canonical; may be empty */
    struct slice body;         /* as it came; may be mapped memory */
    const char *const *ignore; /* JSON Pointers (RFC 6901) */
    size_t ignore_count;
    const char *const *redact;
    size_t redact_count;
    /* Digest that is stored for what is not kept itself: keyed (engine_fingerprint). */
    void (*keyed)(const void *context, const struct digest *plain, struct digest *ret_keyed);
    const void *context;
};

struct request_form {
    struct digest fingerprint;        /* plain: to be keyed before it is stored */
    enum fingerprint_version version; /* canonical, or raw */
    struct slice kept;         /* canonical JSON for record.request: {"body":…,"body_digest":…,
                          "content_type":…,"method":…,"path":…,"query":…}, redacted, with the body
                          itself only where it is JSON and the whole fits
                          LIMIT_REQUEST_KEPT_BYTES_MAX; empty when even the rest does not */
    const char *const *ignore; /* those of request_form_parts, for request_form_explain */
    size_t ignore_count;
};
/* E_NOMEM is the only failure. A body that is not JSON though it says so is taken raw. */
enum status request_form_read(const struct request_form_parts *from, struct arena *arena,
    struct request_form *ret_asked) MUST_CHECK;

/*
 * Members that explain a conflict, without braces: "differs":["body","query"], and, where both
 * bodies are kept JSON and with_diff, "diff":[…RFC 6902…],"diff_truncated":false; else "diff":null.
 * "differs" names of method, path, query, content_type, body; what differs only under ignored or
 * redacted pointers is "redacted", and then the diff is empty. first is what the record kept; it
 * may be empty or of another door: then both are null. *ret_diff_bytes is the diff's length, for
 * the figures. E_NOMEM, or E_LIMIT when out has no room; then nothing was appended. */
enum status request_form_explain(struct slice first, const struct request_form *now, bool with_diff,
    const char *const *redact, size_t redact_count, struct buf *out,
    size_t *ret_diff_bytes) MUST_CHECK;

/* An operation's own request, for reconciling: the canonical path that was kept. False: not kept.*/
bool request_form_kept_path(struct slice kept, struct arena *arena, struct slice *ret_path);

#endif

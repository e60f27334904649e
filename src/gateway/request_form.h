/*
 * request_form: the forms of a request that are compared, hashed and kept. Pure.
 *
 * Promises:  two spellings of the same request have one form: a quoted and a bare key, %7E and ~,
 *            members of a JSON body in any order. Two different requests never have the same form
 *            (P13): parts are length-framed; a body that is not JSON, or whose canonical form would
 *            be lossy, is hashed as it is. Values under a redacted pointer are in no kept form,
 *            only in the fingerprint, which is keyed before it is stored (engine_fingerprint).
 * Does not:  read sockets, or know routes or answers.
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
 * ASCII without quotes, backslashes or commas. 1 to LIMIT_KEY_BYTES_MAX bytes. The text of
 * E_INVALID says what is wrong and does not contain the key. E_NOMEM.
 */
enum status request_form_key(
    struct slice field, struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;
/* The same, but any other printable ASCII is a key too, as with Stripe. */
enum status request_form_key_printable(
    struct slice field, struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;
/* A key that is the whole text: 1 to LIMIT_KEY_BYTES_MAX bytes of ASCII without control characters.
 * E_INVALID, E_NOMEM. */
enum status request_form_key_plain(
    struct slice text, struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;
/* The key that a JSON Pointer finds in a body: a string, or a whole number in its canonical form
 * (1.0 is 1). *ret_key is empty where the pointer finds nothing. E_INVALID: the body is not JSON,
 * or the value has a different type, is a number that no double holds, or is not a key. E_NOMEM. */
enum status request_form_key_in_body(struct slice body, const char *pointer, struct arena *arena,
    struct slice *ret_key, struct err *err) MUST_CHECK;
/* A key as the value of an Idempotency-Key field: bare where that is readable, else an RFC 9651
 * string. The key must be one of request_form_key_plain. E_NOMEM. */
enum status request_form_key_field(
    struct slice key, struct arena *arena, struct slice *ret_field) MUST_CHECK;
/* RFC 9562: 8-4-4-4-12 hex digits, any version, any case. */
bool request_form_key_is_uuid(struct slice key);

/* RFC 3986 section 6.2.2: unreserved characters decoded, hex digits in upper case, dot segments
 * removed. Slashes are not merged and reserved characters stay as they are. An empty path becomes
 * "/"; "*" stays as it is. E_INVALID: no leading slash, a broken percent-encoding, an encoded NUL,
 * or dot segments that lead above the root. E_NOMEM. */
enum status request_form_path(
    struct slice path, struct arena *arena, struct slice *ret_path, struct err *err) MUST_CHECK;
/* The same normalisation of each name and value. Pairs are sorted by name; those with the same name
 * keep their order. "a=1&b" and "b&a=1" are the same; "b" and "b=" are not. E_INVALID as for a
 * path; E_NOMEM. */
enum status request_form_query(
    struct slice query, struct arena *arena, struct slice *ret_query, struct err *err) MUST_CHECK;
/* Type and subtype in lower case; parameters trimmed, in their order, their names in lower case.
 * "charset=utf-8" of JSON is left out, unless there is also a different charset. */
enum status request_form_content_type(
    struct slice field, struct arena *arena, struct slice *ret_type) MUST_CHECK;
/* application/json, and any type that ends in +json. */
bool request_form_is_json(struct slice content_type);

/* '*' is any run of characters within a segment, possibly empty; "**" as a whole segment is any
 * number of segments, possibly none. "/v1/payments" followed by a slash and two stars matches that
 * path and everything below it. The time is at most the product of both lengths. */
bool route_glob(const char *glob, struct slice path);

/* The parts of a scope. */
struct request_form_place {
    struct slice method;
    struct slice host; /* where the API serves several hosts (preserve_host); else empty */
    struct slice path; /* canonical */
};
/* "POST /v1/payments", "POST shop.example/v1/payments"; the host is in lower case. A scope that is
 * too long is cut and ends in "#" and a digest of the whole. */
enum status request_form_scope(const struct request_form_place *place, struct arena *arena,
    struct slice *ret_scope) MUST_CHECK;

/* `Prefer: wait=N` (RFC 7240), in milliseconds; -1: absent or malformed. */
int64_t request_form_wait_ms(struct slice prefer);

/* The form of a body that is compared: what it follows from, beside the pointers to ignore. */
struct request_form_body {
    struct digest received;           /* SHA-256 of the body as received */
    struct digest form;               /* SHA-256 of the form that is compared */
    enum fingerprint_version version; /* canonical, or raw */
    bool is_json;                     /* it claims to be JSON */
};

/* A request in its canonical parts. */
struct request_form_parts {
    struct slice method;
    struct slice path;  /* canonical */
    struct slice query; /* canonical; has_query distinguishes an empty query from an absent one */
    bool has_query;
    struct slice content_type; /* canonical; may be empty */
    struct slice body;         /* as received; may be mapped memory */
    const char *const *ignore; /* JSON Pointers (RFC 6901) */
    size_t ignore_count;
    const char *const *redact;
    size_t redact_count;
    /* The digest stored for a part that is not kept itself: keyed (engine_fingerprint). */
    void (*keyed)(const void *context, const struct digest *plain, struct digest *ret_keyed);
    const void *context;
    /* A body that was read before, with the same pointers to ignore: if this is the same one, it is
     * not read again, and nothing is kept. NULL: none. */
    const struct request_form_body *known;
};

struct request_form {
    struct digest fingerprint; /* plain: must be keyed before it is stored */
    struct request_form_body body;
    bool is_known;             /* the body is request_form_parts.known; kept is empty */
    struct slice kept;         /* canonical JSON for record.request: {"body":…,"body_digest":…,
                          "content_type":…,"method":…,"path":…,"query":…}, redacted, with the body
                          itself only where it is JSON and the whole fits
                          LIMIT_REQUEST_KEPT_BYTES_MAX; empty when even the rest does not */
    const char *const *ignore; /* those of request_form_parts, for request_form_explain */
    size_t ignore_count;
};
/* Fails only with E_NOMEM. A body that claims to be JSON but is not is taken raw. */
enum status request_form_read(const struct request_form_parts *from, struct arena *arena,
    struct request_form *ret_asked) MUST_CHECK;

/*
 * Members that explain a conflict, without braces: "differs":["body","query"], and, where both
 * bodies are kept JSON and with_diff, "diff":[…RFC 6902…],"diff_truncated":false; else "diff":null.
 * "differs" lists method, path, query, content_type and body. A body that differs only under
 * ignored or redacted pointers is listed as "redacted", and its diff is empty. first is the form
 * that the record kept; if it is empty or from a different door, both are null. *ret_diff_bytes is
 * the diff's length, for the metrics. E_NOMEM, or E_LIMIT when out has no room; then nothing was
 * appended. */
enum status request_form_explain(struct slice first, const struct request_form *now, bool with_diff,
    const char *const *redact, size_t redact_count, struct buf *out,
    size_t *ret_diff_bytes) MUST_CHECK;

/* The canonical path that was kept of an operation's request, for reconciling. False: not kept. */
bool request_form_kept_path(struct slice kept, struct arena *arena, struct slice *ret_path);

#endif

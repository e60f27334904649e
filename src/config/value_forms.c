/* Checks the form of texts: addresses, globs, pointers, names of fields. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/text.h"
#include "config/impl.h"

enum { SHOWN_MAX = 100 }; /* characters shown of an invalid value; the place shows the rest */
#define SHOWN(text) (text).len < SHOWN_MAX ? (int)(text).len : SHOWN_MAX, (text).data

/* Methods that only read. Repeating them does nothing more, so they need no fence. */
static const char *const reads[] = {"GET", "HEAD", "OPTIONS", "TRACE"};
static const struct {
    const char *name;
    unsigned bit;
} methods[] = {{"POST", CONFIG_METHOD_POST}, {"PUT", CONFIG_METHOD_PUT},
    {"PATCH", CONFIG_METHOD_PATCH}, {"DELETE", CONFIG_METHOD_DELETE}};

/* Fields that belong to one connection (RFC 9110 section 7.6.1), or to one client. */
static const char *const never_kept[] = {"Connection", "Keep-Alive", "Proxy-Authenticate",
    "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
    "Set-Cookie", "Set-Cookie2"};

bool value_form_is_token(struct slice text)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_name && (c == '\0' || strchr(others, c) == NULL)) {
            return false;
        }
    }
    return text.len > 0;
}

/* Visible ASCII: the characters allowed in a request line. */
static bool is_visible(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] <= ' ' || text.data[i] > '~') {
            return false;
        }
    }
    return true;
}

/* ---- match ------------------------------------------------------------------------------- */

unsigned config_method(struct slice name)
{
    for (size_t i = 0; i < COUNT(methods); i++) {
        if (slice_is(name, methods[i].name)) {
            return methods[i].bit;
        }
    }
    return 0;
}

char *config_methods_put(char ret_text[CONFIG_METHODS_BYTES], unsigned bits)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < COUNT(methods); i++) {
        if ((bits & methods[i].bit) != 0) {
            int more = snprintf(ret_text + used, CONFIG_METHODS_BYTES - used, "%s%s",
                used == 0 ? "" : " ", methods[i].name);
            used += more > 0 ? (size_t)more : 0;
        }
    }
    ASSERT(used < CONFIG_METHODS_BYTES);
    return ret_text;
}

static enum status refuse_method(const char *name, struct slice method, struct value_fault *fault)
{
    char upper[16] = "";
    for (size_t i = 0; i < COUNT(reads); i++) {
        if (slice_is(method, reads[i])) {
            return value_refuse(fault, "leave it out: it is passed through as it is",
                "%s: %.*s cannot be fenced: reads are never subject to idempotency keys", name,
                SLICE_ARGS(method));
        }
    }
    for (size_t i = 0; i < method.len && i + 1 < sizeof upper; i++) {
        char c = method.data[i];
        upper[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    }
    char hint[64] = "methods are POST, PUT, PATCH and DELETE";
    if (config_method(slice_str(upper)) != 0) {
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", upper);
    }
    return value_refuse(
        fault, hint, "%s: '%.*s' is not a method that can be fenced", name, SHOWN(method));
}

static enum status read_methods(
    const char *name, struct slice text, unsigned *ret_methods, struct value_fault *fault)
{
    unsigned all = 0;
    size_t at = 0;
    while (at <= text.len) {
        const char *comma = at == text.len ? NULL : memchr(text.data + at, ',', text.len - at);
        size_t end = comma == NULL ? text.len : (size_t)(comma - text.data);
        struct slice one = slice_trim(slice_of(text.data + at, end - at));
        unsigned method = config_method(one);
        if (method == 0) {
            return refuse_method(name, one, fault);
        }
        if ((all & method) != 0) {
            return value_refuse(fault, "", "%s: method %.*s is given twice", name, SLICE_ARGS(one));
        }
        all |= method;
        at = end + 1;
    }
    *ret_methods = all;
    return OK;
}

/* Check one segment of a glob. NULL: it is valid. */
static const char *segment_fault(struct slice segment)
{
    if (slice_is(segment, ".") || slice_is(segment, "..")) {
        return "has a segment '.' or '..', which no canonical path has: it could never match";
    }
    if (memmem(segment.data, segment.len, "**", 2) != NULL && segment.len != 2) {
        return "has '**' beside other characters; it must be a whole segment";
    }
    return NULL;
}

static enum status check_glob(const char *name, struct slice path, struct value_fault *fault)
{
    const char *wrong = NULL;
    if (path.len == 0 || path.data[0] != '/') {
        return value_refuse(fault, "such as /v1/payments/** or \"POST,PUT /v1/payments/**\"",
            "%s: the path '%.*s' does not begin with '/'", name, SHOWN(path));
    }
    if (!is_visible(path)) {
        wrong = "has a space or a character that is not visible ASCII";
    } else if (memchr(path.data, '?', path.len) != NULL ||
               memchr(path.data, '#', path.len) != NULL) {
        wrong = "has a query or a fragment; routes are by method and path";
    }
    for (size_t at = 1; wrong == NULL && at <= path.len;) {
        const char *slash = at == path.len ? NULL : memchr(path.data + at, '/', path.len - at);
        size_t end = slash == NULL ? path.len : (size_t)(slash - path.data);
        wrong = segment_fault(slice_of(path.data + at, end - at));
        at = end + 1;
    }
    return wrong == NULL ? OK
                         : value_refuse(fault,
                               "'*' is any run of characters within a segment, '**' any number of "
                               "segments",
                               "%s: the path '%.*s' %s", name, SHOWN(path), wrong);
}

/* Where the path of a match begins: after the methods and a space. */
static size_t path_at(struct slice text)
{
    if (text.data == NULL || text.len == 0 || text.data[0] == '/') {
        return 0;
    }
    const char *path = memmem(text.data, text.len, " /", 2);
    const char *space = memrchr(text.data, ' ', text.len);
    return path != NULL ? (size_t)(path - text.data) + 1
                        : (space == NULL ? 0 : (size_t)(space - text.data) + 1);
}

enum status value_form_match(const char *name, struct slice text, unsigned *ret_methods,
    struct slice *ret_path, struct value_fault *fault)
{
    size_t at = path_at(text);
    unsigned found = 0;
    enum status status = OK;
    if (at > 0) {
        status = read_methods(name, slice_trim(slice_of(text.data, at)), &found, fault);
    } else if (config_method(text) != 0) {
        status = value_refuse(fault, "such as \"POST /v1/payments/**\"",
            "%s: '%.*s' is a method without a path", name, SLICE_ARGS(text));
    }
    struct slice path = slice_of(text.data + at, text.len - at);
    if (status == OK) {
        status = check_glob(name, path, fault);
    }
    if (status == OK) {
        *ret_methods = found;
        *ret_path = path;
    }
    return status;
}

/* ---- URLs -------------------------------------------------------------------------------- */

static bool is_host(struct slice host)
{
    if (host.len == 0 || host.len > 255) {
        return false;
    }
    for (size_t i = 0; i < host.len; i++) {
        char c = host.data[i];
        bool is_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_name && c != '.' && c != '-' && c != '_') {
            return false;
        }
    }
    return true;
}

/* "host", "host:3000", "[::1]:3000". */
static bool is_authority(struct slice text)
{
    unsigned char address[16];
    uint64_t port = 1;
    bool is_bracketed = text.len > 0 && text.data[0] == '[';
    const char *close = is_bracketed ? memchr(text.data, ']', text.len) : NULL;
    size_t from = close == NULL ? 0 : (size_t)(close - text.data) + 1;
    if (is_bracketed && close == NULL) {
        return false;
    }
    const char *colon = from == text.len ? NULL : memchr(text.data + from, ':', text.len - from);
    size_t host = colon == NULL ? text.len : (size_t)(colon - text.data);
    if (colon != NULL) {
        struct slice digits = slice_of(colon + 1, text.len - host - 1);
        if (digits.len > 5 || !text_u64(digits, &port)) {
            return false;
        }
    }
    bool is_good = is_bracketed
                       ? host == from && text_ipv6(slice_of(text.data + 1, from - 2), address)
                       : is_host(slice_of(text.data, host));
    return is_good && port > 0 && port <= 65535;
}

static enum status check_url(const char *name, struct slice url, struct value_fault *fault)
{
    static const char hint[] = "such as http://127.0.0.1:3000 or https://api.example.com";
    bool is_plain = slice_starts(url, SLICE_LIT("http://"));
    bool is_tls = slice_starts(url, SLICE_LIT("https://"));
    if (!is_plain && !is_tls) {
        return value_refuse(
            fault, hint, "%s: '%.*s' is not an http or https URL", name, SHOWN(url));
    }
    size_t skip = is_plain ? 7 : 8;
    struct slice rest = slice_of(url.data + skip, url.len - skip);
    size_t host = 0;
    while (host < rest.len && strchr("/?#", rest.data[host]) == NULL) {
        host++;
    }
    if (rest.len - host > 1 || (rest.len > host && rest.data[host] != '/')) {
        return value_refuse(fault, hint,
            "%s: '%.*s' has a path or a query; the request's own is used, whole", name, SHOWN(url));
    }
    if (memchr(rest.data, '@', host) != NULL) {
        return value_refuse(fault, "clients send their own credentials",
            "%s: the URL has a user or a password in it", name);
    }
    return is_authority(slice_of(rest.data, host))
               ? OK
               : value_refuse(fault, hint, "%s: '%.*s' has a missing or invalid host or port", name,
                     SHOWN(url));
}

/* A URL that we call: with a path, and optionally a query. */
static enum status check_handler(const char *name, struct slice url, struct value_fault *fault)
{
    static const char hint[] = "such as http://127.0.0.1:9000/refund";
    const char *slashes = url.len < 3 ? NULL : memmem(url.data, url.len, "://", 3);
    const char *path = slashes == NULL
                           ? NULL
                           : memchr(slashes + 3, '/', url.len - (size_t)(slashes + 3 - url.data));
    struct slice origin = path == NULL ? url : slice_of(url.data, (size_t)(path - url.data));
    struct slice rest = slice_of(url.data + origin.len, url.len - origin.len);
    if (!is_visible(rest) || (rest.len > 0 && memchr(rest.data, '#', rest.len) != NULL)) {
        return value_refuse(fault, hint, "%s: '%.*s' has an invalid path", name, SHOWN(url));
    }
    enum status status = check_url(name, origin, fault);
    if (status != OK) {
        (void)snprintf(fault->hint, sizeof fault->hint, "%s", hint);
    }
    return status;
}

/* One of a few words. */
static enum status check_word(const char *name, struct slice text, const char *const *words,
    size_t count, const char *what, struct value_fault *fault)
{
    for (size_t i = 0; i < count; i++) {
        if (slice_is(text, words[i])) {
            return OK;
        }
    }
    return value_refuse(fault, "", "%s: '%.*s' is not %s", name, SHOWN(text), what);
}

static enum status check_shield(const char *name, struct slice text, struct value_fault *fault)
{
    static const char *const words[] = {"S1", "S2", "S3", "S4"};
    return check_word(name, text, words, COUNT(words), "one of S1, S2, S3, S4", fault);
}

static enum status check_normalise(const char *name, struct slice text, struct value_fault *fault)
{
    static const char *const words[] = {"trim", "lower", "upper", "e164"};
    return check_word(name, text, words, COUNT(words), "one of trim, lower, upper, e164", fault);
}

/* "-12", "0.5": digits with at most one dot between them. */
static enum status check_decimal(const char *name, struct slice text, struct value_fault *fault)
{
    size_t from = text.len > 0 && text.data[0] == '-';
    size_t dots = 0;
    bool is_good = text.len > from && text.len < 20;
    for (size_t i = from; is_good && i < text.len; i++) {
        bool is_dot = text.data[i] == '.' && i > from && i + 1 < text.len;
        dots += is_dot;
        is_good = (is_dot && dots == 1) || (text.data[i] >= '0' && text.data[i] <= '9');
    }
    return is_good ? OK
                   : value_refuse(fault, "such as 1 or 0.5", "%s: '%.*s' is not a number", name,
                         SHOWN(text));
}

/* Placeholders such as {target.order_id}: braces in pairs around a name from the envelope. */
static enum status check_prompt(const char *name, struct slice text, struct value_fault *fault)
{
    static const char hint[] = "such as \"Refund order {target.order_id}?\"";
    static const char *const roots[] = {"target", "args", "actor_id", "command"};
    if (!value_form_is_line(text)) {
        return value_refuse(fault, hint, "%s: is not one line", name);
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] != '{' && text.data[i] != '}') {
            continue;
        }
        const char *end = memchr(text.data + i, '}', text.len - i);
        size_t len = end == NULL ? 0 : (size_t)(end - (text.data + i)) - 1;
        struct slice root = slice_of(text.data + i + 1, 0);
        while (root.len < len && root.data[root.len] != '.') {
            root.len++;
        }
        if (text.data[i] == '}' || end == NULL ||
            check_word(name, root, roots, COUNT(roots), "", fault) != OK) {
            return value_refuse(fault, hint,
                "%s: '%.*s' has a brace that is not of {target.…}, {args.…}, {actor_id} or "
                "{command}",
                name, SHOWN(text));
        }
        i += len + 1;
    }
    return OK;
}

/* ---- other forms ------------------------------------------------------------------------- */

static enum status check_pointer(const char *name, struct slice text, struct value_fault *fault)
{
    bool is_good = text.len > 0 && text.data[0] == '/';
    for (size_t i = 0; is_good && i < text.len; i++) {
        is_good = text.data[i] != '~' ||
                  (i + 1 < text.len && (text.data[i + 1] == '0' || text.data[i + 1] == '1'));
    }
    return is_good ? OK
                   : value_refuse(fault,
                         "such as /card/number; '~' is written ~0 and a '/' in a name ~1 (RFC "
                         "6901)",
                         "%s: '%.*s' is not a JSON Pointer", name, SHOWN(text));
}

/* In the form that a browser sends (RFC 6454 section 6.2): it is compared byte by byte. */
static enum status check_origin(const char *name, struct slice text, struct value_fault *fault)
{
    bool is_good = slice_is(text, "*") ||
                   (check_url(name, text, fault) == OK && text.data[text.len - 1] != '/');
    for (size_t i = 0; i < text.len; i++) {
        is_good = is_good && (text.data[i] < 'A' || text.data[i] > 'Z');
    }
    return is_good ? OK
                   : value_refuse(fault, "such as https://shop.example, or \"*\" for every one",
                         "%s: '%.*s' is not the origin of a page", name, SHOWN(text));
}

static enum status check_field(const char *name, struct slice text, struct value_fault *fault)
{
    for (size_t i = 0; i < COUNT(never_kept); i++) {
        if (text.len == strlen(never_kept[i]) &&
            strncasecmp(text.data, never_kept[i], text.len) == 0) {
            return value_refuse(fault, "leave it out",
                "%s: %s is never kept: it is of one connection or one client", name, never_kept[i]);
        }
    }
    return value_form_is_token(text)
               ? OK
               : value_refuse(fault, "such as X-Payment-Id, or \"*\" for every one",
                     "%s: '%.*s' is not the name of a field", name, SHOWN(text));
}

/* The length of the placeholder that a template begins with; 0: it begins with none. */
static size_t mark_bytes(struct slice text)
{
    static const char *const marks[] = {"{key}", "{operation_id}"};
    for (size_t i = 0; i < COUNT(marks); i++) {
        size_t len = strlen(marks[i]);
        if (slice_starts(text, slice_str(marks[i]))) {
            return len;
        }
    }
    return 0;
}

/* A path that is its own canonical form, so that it can be compared with a request's. */
static enum status check_path(const char *name, struct slice text, struct value_fault *fault)
{
    bool is_good = text.data[0] == '/' && strstr(text.data, "/.") == NULL;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        is_good = is_good && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                 (c >= '0' && c <= '9') || strchr("/-._~", c) != NULL);
    }
    return is_good ? OK
                   : value_refuse(fault, "such as /healthz", "%s: '%.*s' is not a plain path", name,
                         SHOWN(text));
}

static enum status check_template(const char *name, struct slice text, struct value_fault *fault)
{
    static const char hint[] = "such as /v1/payments/by-key/{key}";
    if (text.data[0] != '/' || !is_visible(text) || memchr(text.data, '#', text.len) != NULL) {
        return value_refuse(
            fault, hint, "%s: '%.*s' is not a path that begins with '/'", name, SHOWN(text));
    }
    size_t marks = 0;
    for (size_t i = 0; i < text.len; i++) {
        size_t len = mark_bytes(slice_of(text.data + i, text.len - i));
        if (len == 0 && (text.data[i] == '{' || text.data[i] == '}')) {
            return value_refuse(fault, hint,
                "%s: '%.*s' has a brace outside {key} and {operation_id}", name, SHOWN(text));
        }
        marks += len > 0;
        i += len > 0 ? len - 1 : 0;
    }
    return marks > 0 ? OK
                     : value_refuse(fault, hint,
                           "%s: '%.*s' has no {key}: it would ask the same of every operation",
                           name, SHOWN(text));
}

static bool is_claim(struct slice name)
{
    return name.len > 0 && name.len <= LIMIT_PRINCIPAL_BYTES_MAX && is_visible(name);
}

bool value_form_principal(
    struct slice text, enum config_principal *ret_principal, struct slice *ret_name)
{
    bool is_header = slice_starts(text, SLICE_LIT("header:"));
    bool is_jwt = slice_starts(text, SLICE_LIT("jwt:"));
    size_t skip = is_header ? 7 : is_jwt ? 4 : text.len;
    struct slice name = slice_of(text.data + skip, text.len - skip);
    if ((is_header && !value_form_is_token(name)) || (is_jwt && !is_claim(name)) ||
        (!is_header && !is_jwt && !slice_is(text, "auto") && !slice_is(text, "authorization") &&
            !slice_is(text, "none"))) {
        return false;
    }
    *ret_principal = is_header                ? CONFIG_PRINCIPAL_HEADER
                     : is_jwt                 ? CONFIG_PRINCIPAL_JWT
                     : slice_is(text, "none") ? CONFIG_PRINCIPAL_NONE
                     : slice_is(text, "auto") ? CONFIG_PRINCIPAL_AUTO
                                              : CONFIG_PRINCIPAL_AUTHORIZATION;
    *ret_name = name;
    return true;
}

/* A principal is stored with the operation; these fields contain secrets. */
static bool is_secret(struct slice field)
{
    static const char *const fields[] = {"Authorization", "Proxy-Authorization", "Cookie"};
    for (size_t i = 0; i < COUNT(fields); i++) {
        if (field.len == strlen(fields[i]) && strncasecmp(field.data, fields[i], field.len) == 0) {
            return true;
        }
    }
    return false;
}

static enum status check_principal(const char *name, struct slice text, struct value_fault *fault)
{
    enum config_principal principal = CONFIG_PRINCIPAL_NONE;
    struct slice rest = SLICE_EMPTY;
    bool is_good = value_form_principal(text, &principal, &rest);
    if (is_good && principal == CONFIG_PRINCIPAL_HEADER && is_secret(rest)) {
        return value_refuse(fault, "principal: auto keeps no more than a SHA-256",
            "%s: '%.*s' would keep clients' credentials", name, SHOWN(text));
    }
    return is_good ? OK
                   : value_refuse(fault, "the default is auto",
                         "%s: '%.*s' is not one of auto, authorization, header:NAME, jwt:CLAIM, "
                         "none",
                         name, SHOWN(text));
}

bool value_form_key(struct slice text, enum config_key *ret_key, struct slice *ret_name)
{
    static const struct {
        const char *word;
        enum config_key key;
    } words[] = {{"required", CONFIG_KEY_REQUIRED}, {"generated", CONFIG_KEY_GENERATED},
        {"optional", CONFIG_KEY_OPTIONAL}};
    struct value_fault unheard;
    bool is_header = slice_starts(text, SLICE_LIT("header:"));
    bool is_json = slice_starts(text, SLICE_LIT("json:"));
    size_t skip = is_header ? 7 : is_json ? 5 : text.len;
    struct slice name = slice_of(text.data + skip, text.len - skip);
    bool is_good = (is_header && value_form_is_token(name)) ||
                   (is_json && check_pointer("json", name, &unheard) == OK);
    *ret_key = is_header ? CONFIG_KEY_HEADER : CONFIG_KEY_JSON;
    for (size_t i = 0; i < COUNT(words); i++) {
        if (slice_is(text, words[i].word)) {
            *ret_key = words[i].key;
            is_good = true;
        }
    }
    *ret_name = name;
    return is_good;
}

static enum status check_key(const char *name, struct slice text, struct value_fault *fault)
{
    enum config_key key = CONFIG_KEY_REQUIRED;
    struct slice rest = SLICE_EMPTY;
    bool is_good = value_form_key(text, &key, &rest);
    if (is_good && key == CONFIG_KEY_HEADER && is_secret(rest)) {
        return value_refuse(fault, "a key is kept and shown",
            "%s: '%.*s' would keep clients' credentials", name, SHOWN(text));
    }
    if (is_good && key == CONFIG_KEY_HEADER && rest.len == strlen("Idempotency-Key") &&
        strncasecmp(rest.data, "Idempotency-Key", rest.len) == 0) {
        return value_refuse(
            fault, "key: required", "%s: Idempotency-Key is where the key is anyway", name);
    }
    return is_good ? OK
                   : value_refuse(fault, "such as required, or {header: X-GitHub-Delivery}",
                         "%s: '%.*s' is not one of required, generated, optional, {header: NAME}, "
                         "{json: POINTER}",
                         name, SHOWN(text));
}

struct slice value_form_address(struct slice text, char buffer[VALUE_ADDRESS_BYTES])
{
    struct slice localhost = SLICE_LIT("localhost");
    size_t skip = slice_starts(text, localhost) ? localhost.len : 0;
    struct slice port = slice_of(text.data + skip, text.len - skip);
    if (!slice_starts(port, SLICE_LIT(":"))) {
        return text;
    }
    int used = snprintf(buffer, VALUE_ADDRESS_BYTES, "127.0.0.1%.*s", SHOWN(port));
    bool is_one = used < VALUE_ADDRESS_BYTES && config_address(buffer) != CONFIG_ADDRESS_WRONG;
    return is_one ? slice_of(buffer, (size_t)used) : text; /* a fault shows the text as typed */
}

static enum status check_address(
    const struct config_option *option, struct slice text, struct value_fault *fault)
{
    char hint[VALUE_FAULT_BYTES_MAX];
    if (config_address(text.data) != CONFIG_ADDRESS_WRONG) {
        return OK;
    }
    (void)snprintf(
        hint, sizeof hint, "such as %s, [::1]:7411 or unix:/run/once/once.sock", option->fallback);
    return value_refuse(fault, hint, "'%.*s' is not an address to listen on", SHOWN(text));
}

static enum status check_tenant(const char *name, struct slice text, struct value_fault *fault)
{
    struct err err = {0};
    if (text.len == 0 || text.len > LIMIT_TENANT_BYTES_MAX || slice_is(text, "*")) {
        return value_refuse(fault, "such as acme", "%s: must be a name of 1 to %d bytes", name,
            LIMIT_TENANT_BYTES_MAX);
    }
    return name_check(name, text, &err) == OK ? OK
                                              : value_refuse(fault, "such as acme", "%s", err.text);
}

bool value_form_is_line(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c < ' ' || c == 127) {
            return false;
        }
    }
    return true;
}

static enum status check_message(
    const struct config_option *option, struct slice text, struct value_fault *fault)
{
    const char *name = option->path;
    if (!value_form_is_line(text)) {
        return value_refuse(fault, "", "%s must be a text of one line", name);
    }
    if (option->form == CONFIG_FORM_METHOD && !value_form_is_token(text)) {
        return value_refuse(fault, "such as POST", "%s: '%.*s' is not a method", name, SHOWN(text));
    }
    if (option->form == CONFIG_FORM_TARGET &&
        (text.data[0] != '/' || strpbrk(text.data, " #") != NULL)) {
        return value_refuse(
            fault, "such as /v1/payments?dry=1", "%s: '%.*s' is not a path", name, SHOWN(text));
    }
    return OK;
}

enum status value_form_check(
    const struct config_option *option, struct slice value, struct value_fault *fault)
{
    unsigned found = 0;
    struct slice path = SLICE_EMPTY;
    const char *name = option->path;
    if (value.len == 0 && option->form != CONFIG_FORM_LINE) {
        return value_refuse(fault, "", "%s: is empty", name);
    }
    switch (option->form) {
    case CONFIG_FORM_ANY: return OK;
    case CONFIG_FORM_ADDRESS: return check_address(option, value, fault);
    case CONFIG_FORM_URL: return check_url(name, value, fault);
    case CONFIG_FORM_MATCH: return value_form_match(name, value, &found, &path, fault);
    case CONFIG_FORM_TENANT: return check_tenant(name, value, fault);
    case CONFIG_FORM_PRINCIPAL: return check_principal(name, value, fault);
    case CONFIG_FORM_KEY: return check_key(name, value, fault);
    case CONFIG_FORM_POINTER: return check_pointer(name, value, fault);
    case CONFIG_FORM_ORIGIN: return check_origin(name, value, fault);
    case CONFIG_FORM_FIELD: return check_field(name, value, fault);
    case CONFIG_FORM_PATH: return check_path(name, value, fault);
    case CONFIG_FORM_TEMPLATE: return check_template(name, value, fault);
    case CONFIG_FORM_HANDLER: return check_handler(name, value, fault);
    case CONFIG_FORM_SHIELD: return check_shield(name, value, fault);
    case CONFIG_FORM_PROMPT: return check_prompt(name, value, fault);
    case CONFIG_FORM_NORMALISE: return check_normalise(name, value, fault);
    case CONFIG_FORM_DECIMAL: return check_decimal(name, value, fault);
    case CONFIG_FORM_LINE:
    case CONFIG_FORM_METHOD:
    case CONFIG_FORM_TARGET: return check_message(option, value, fault);
    }
    return OK;
}

#include "cli/remote.h"

#include <curl/curl.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/percent.h"
#include "base/rand.h"
#include "base/text.h"
#include "cli/backend.h"

enum { URL_BYTES_MAX = 8192, HEADER_BYTES_MAX = 8192, TOKEN_BYTES_MAX = 4096 };

struct remote {
    CURL *curl;
    struct curl_slist *headers;
    struct remote_options options;
    const char *base; /* what a path is appended to */
    size_t base_bytes;
    char request_id[REMOTE_REQUEST_ID_BYTES];
    char why[CURL_ERROR_SIZE]; /* what libcurl says of a failure */
};

/* ---- setting up -------------------------------------------------------------------------- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Visible ASCII: anything else could end the header field that it is put into. */
static bool is_plain(const char *text, size_t bytes_max)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f) {
            return false;
        }
    }
    return len > 0 && len <= bytes_max;
}

static int check_options(const struct remote_options *options)
{
    const char *url = options->url;
    if (!begins(url, "http://") && !begins(url, "https://") && !begins(url, "unix:")) {
        cli_say("'%s' is not a server address", url);
        cli_hint("--server http://127.0.0.1:7411, https://once.example, or unix:/run/once.sock");
        return CLI_USAGE;
    }
    if (!is_plain(url, URL_BYTES_MAX / 2) || strpbrk(url, "?#") != NULL) {
        cli_say("the address of the server is not an address alone");
        cli_hint("without spaces, '?' and '#'; a token goes into ONCE_TOKEN");
        return CLI_USAGE;
    }
    if (options->token != NULL && !is_plain(options->token, TOKEN_BYTES_MAX)) {
        cli_say("the token is not one: it is empty, too long, or has odd characters");
        cli_hint("once token new makes one; give it in ONCE_TOKEN");
        return CLI_USAGE;
    }
    if (options->tenant != NULL && !is_plain(options->tenant, HEADER_BYTES_MAX / 2)) {
        cli_say("the name of the tenant cannot be sent: it is empty, or has odd characters");
        return CLI_USAGE;
    }
    if (options->request_id != NULL &&
        !is_plain(options->request_id, REMOTE_REQUEST_ID_BYTES - 1)) {
        cli_say("the request id cannot be sent: it is empty, too long, or has odd characters");
        return CLI_USAGE;
    }
    return CLI_OK;
}

static int make_request_id(struct remote *remote)
{
    struct err err = {0};
    if (remote->options.request_id != NULL) {
        (void)snprintf(
            remote->request_id, sizeof remote->request_id, "%s", remote->options.request_id);
        return CLI_OK;
    }
    unsigned char random[15];
    char hex[2 * sizeof random + 1];
    if (rand_bytes(random, sizeof random, &err) != OK) {
        return cli_fail_err(&err);
    }
    (void)snprintf(remote->request_id, sizeof remote->request_id, "once-cli-%s",
        text_put_hex(hex, random, sizeof random));
    return CLI_OK;
}

/* False without memory. A field without a value is not sent. */
static bool add_header(struct remote *remote, const char *name, const char *value)
{
    char line[HEADER_BYTES_MAX];
    if (value == NULL) {
        return true;
    }
    (void)snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(remote->headers, line);
    mem_wipe(line, sizeof line);
    remote->headers = longer == NULL ? remote->headers : longer;
    return longer != NULL;
}

static bool add_token(struct remote *remote)
{
    char value[TOKEN_BYTES_MAX + 8];
    if (remote->options.token == NULL) {
        return true;
    }
    (void)snprintf(value, sizeof value, "Bearer %s", remote->options.token);
    bool added = add_header(remote, "Authorization", value);
    mem_wipe(value, sizeof value);
    return added;
}

static bool set_up(struct remote *remote)
{
    CURL *curl = remote->curl;
    bool ok = true;
    if (begins(remote->options.url, "unix:")) {
        remote->base = "http://localhost";
        ok = curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, remote->options.url + 5) == CURLE_OK;
        ok = ok &&
             curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK; /* there is none to a file */
    } else {
        remote->base = remote->options.url;
    }
    remote->base_bytes = strlen(remote->base);
    while (remote->base_bytes > 0 && remote->base[remote->base_bytes - 1] == '/') {
        remote->base_bytes--;
    }
    if (remote->options.cacert != NULL) {
        ok = ok && curl_easy_setopt(curl, CURLOPT_CAINFO, remote->options.cacert) == CURLE_OK;
    }
    ok = ok && add_header(remote, "Accept", "application/json, application/problem+json");
    ok = ok && add_header(remote, "Content-Type", "application/json");
    ok = ok && add_header(remote, "Expect", ""); /* no waiting for 100: bodies are small */
    ok = ok && add_header(remote, "Request-Id", remote->request_id);
    ok = ok && add_header(remote, "Once-Tenant", remote->options.tenant);
    ok = ok && add_token(remote);
    ok = ok && curl_easy_setopt(curl, CURLOPT_HTTPHEADER, remote->headers) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, remote->why) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_USERAGENT, "once/" ONCE_VERSION) == CURLE_OK;
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)REMOTE_CONNECT_MS_MAX);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)REMOTE_ANSWER_MS_MAX);
    return ok;
}

int remote_new(const struct remote_options *options, struct remote **ret_remote)
{
    int code = check_options(options);
    if (code != CLI_OK) {
        return code;
    }
    struct remote *remote = mem_zalloc(&mem_libc, 1, sizeof *remote);
    if (remote == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        mem_free(&mem_libc, remote);
        cli_say("cannot ask the server: out of memory");
        return CLI_UNAVAILABLE;
    }
    remote->options = *options;
    remote->curl = curl_easy_init();
    code = make_request_id(remote);
    if (code == CLI_OK && (remote->curl == NULL || !set_up(remote))) {
        cli_say("cannot ask the server: out of memory");
        code = CLI_UNAVAILABLE;
    }
    if (code != CLI_OK) {
        remote_free(remote);
        return code;
    }
    *ret_remote = remote;
    return CLI_OK;
}

void remote_free(struct remote *remote)
{
    if (remote == NULL) {
        return;
    }
    curl_easy_cleanup(remote->curl);
    curl_slist_free_all(remote->headers);
    curl_global_cleanup();
    mem_free(&mem_libc, remote);
}

const char *remote_request_id(const struct remote *remote)
{
    return remote->request_id;
}

const char *remote_url(const struct remote *remote)
{
    return remote->options.url;
}

const char *remote_escape(struct arena *arena, const char *text)
{
    size_t len = strlen(text);
    char *out = arena_alloc(arena, PERCENT_BYTES_MAX * len + 1);
    char *at = out;
    for (size_t i = 0; out != NULL && i < len; i++) {
        at = percent_put(at, text[i]);
    }
    if (out != NULL) {
        *at = '\0';
    }
    return out;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* For libcurl: anything but size * count stops the transfer. */
static size_t receive(char *data, size_t size, size_t count, void *context)
{
    struct buf *answer = context;
    buf_append(answer, data, size * count);
    return buf_status(answer) == OK ? size * count : 0;
}

/* No byte of the request can have reached the server. */
static bool never_left(CURLcode failed)
{
    return failed == CURLE_COULDNT_CONNECT || failed == CURLE_COULDNT_RESOLVE_HOST ||
           failed == CURLE_COULDNT_RESOLVE_PROXY || failed == CURLE_PEER_FAILED_VERIFICATION ||
           failed == CURLE_SSL_CONNECT_ERROR || failed == CURLE_SSL_CACERT_BADFILE ||
           failed == CURLE_URL_MALFORMAT || failed == CURLE_UNSUPPORTED_PROTOCOL;
}

static void hint_why(CURLcode failed, struct once_error *error)
{
    const char *hint = "";
    if (failed == CURLE_PEER_FAILED_VERIFICATION || failed == CURLE_SSL_CACERT_BADFILE) {
        hint = "--cacert FILE names the authority that signed the server's certificate";
    } else if (failed == CURLE_COULDNT_CONNECT || failed == CURLE_COULDNT_RESOLVE_HOST) {
        hint = "once serve starts one; --server or ONCE_SERVER says where it is";
    }
    (void)snprintf(error->hint, sizeof error->hint, "%s", hint);
}

/* There is no answer. */
static int unanswered(const struct remote *remote, CURLcode failed, bool is_change,
    const struct buf *answer, struct once_error *error)
{
    const char *why = remote->why[0] != '\0' ? remote->why : curl_easy_strerror(failed);
    int result = is_change ? ONCE_E_UNKNOWN : ONCE_E_UNAVAILABLE;
    if (buf_status(answer) != OK) {
        backend_error(error, result, "the answer of '%s' is longer than %d bytes",
            remote->options.url, REMOTE_ANSWER_BYTES_MAX);
    } else if (never_left(failed)) {
        result = ONCE_E_UNAVAILABLE;
        backend_error(error, result, "cannot reach the server '%s': %s", remote->options.url, why);
        hint_why(failed, error);
    } else {
        backend_error(
            error, result, "no answer from the server '%s': %s", remote->options.url, why);
    }
    if (result == ONCE_E_UNKNOWN) {
        (void)snprintf(error->hint, sizeof error->hint,
            "it was sent and may have taken effect: check before trying again");
    }
    return result;
}

static CURLcode perform(
    struct remote *remote, const char *path, struct slice body, struct buf *answer)
{
    char url[URL_BYTES_MAX];
    CURL *curl = remote->curl;
    int used = snprintf(url, sizeof url, "%.*s%s", (int)remote->base_bytes, remote->base, path);
    CURLcode failed = used < 0 || (size_t)used >= sizeof url
                          ? CURLE_URL_MALFORMAT
                          : curl_easy_setopt(curl, CURLOPT_URL, url);
    if (failed != CURLE_OK) {
        return failed;
    }
    remote->why[0] = '\0';
    if (body.len > 0) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
    } else {
        (void)curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    }
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    return curl_easy_perform(curl);
}

/* Something that is no JSON is told by the root that is missing. */
static int read_answer(struct remote *remote, struct slice text, struct arena *arena,
    struct remote_answer *ret, struct once_error *error)
{
    struct slice kept = SLICE_EMPTY;
    const struct json_value *root = NULL;
    struct err err = {0};
    long status = 0;
    (void)curl_easy_getinfo(remote->curl, CURLINFO_RESPONSE_CODE, &status);
    if (arena_copy(arena, text, &kept) != OK) {
        backend_error(error, ONCE_E_NOMEM, "cannot read the answer of the server: out of memory");
        return ONCE_E_NOMEM;
    }
    if (json_read(kept, arena, &root, &err) != OK && err.status != E_INVALID) {
        backend_error(error, (int)err.status, "cannot read the answer of the server: %s", err.text);
        return (int)err.status;
    }
    *ret = (struct remote_answer){.status = status, .text = kept, .root = root};
    ret->code = status < 300 ? SLICE_EMPTY : cli_member(root, SLICE_LIT("code"));
    return ONCE_OK;
}

int remote_try(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer, struct once_error *error)
{
    struct buf answer;
    buf_init(&answer, &mem_libc, REMOTE_ANSWER_BYTES_MAX);
    CURLcode failed = perform(remote, path, body, &answer);
    int result = failed != CURLE_OK
                     ? unanswered(remote, failed, body.len > 0, &answer, error)
                     : read_answer(remote, buf_view(&answer), arena, ret_answer, error);
    buf_release(&answer);
    return result;
}

int remote_ask(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer)
{
    struct once_error error = {0};
    int result = remote_try(remote, path, body, arena, ret_answer, &error);
    return result == ONCE_OK ? CLI_OK : cli_fail(&error);
}

int remote_get(
    struct remote *remote, const char *path, struct arena *arena, struct remote_answer *ret_answer)
{
    struct remote_answer answer;
    int code = remote_ask(remote, path, SLICE_EMPTY, arena, &answer);
    if (code != CLI_OK) {
        return code;
    }
    if (answer.status != 200 || !json_is(answer.root, JSON_OBJECT)) {
        return remote_refused(remote, &answer);
    }
    *ret_answer = answer;
    return CLI_OK;
}

/* ---- refusals ---------------------------------------------------------------------------- */

/* Text of a stranger, fit for a message: printable, one line, bounded. */
static const char *tame(struct slice text, char ret_text[ERR_TEXT_BYTES_MAX])
{
    size_t len = text.len < ERR_TEXT_BYTES_MAX - 1 ? text.len : ERR_TEXT_BYTES_MAX - 1;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        ret_text[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    ret_text[len] = '\0';
    return ret_text;
}

void remote_refusal(
    const struct remote *remote, const struct remote_answer *answer, struct once_error *error)
{
    char detail[ERR_TEXT_BYTES_MAX];
    struct slice said = cli_member(answer->root, SLICE_LIT("detail"));
    const char *hint = "";
    if (answer->code.len == 0) {
        backend_error(error, ONCE_E_UNAVAILABLE, "'%s' answered %ld, and not as Once does",
            remote->options.url, answer->status);
        hint = "is it a Once server? Its address ends where /v1 would begin";
    } else {
        said = said.len > 0 ? said : answer->code;
        backend_error(error, ONCE_E_UNAVAILABLE, "%s (%ld)", tame(said, detail), answer->status);
    }
    if (answer->code.len > 0 && answer->status == 401) {
        hint = "ONCE_TOKEN holds the token of the caller";
    } else if (answer->code.len > 0 && answer->status == 403) {
        hint = "the token lacks a right: once run needs execute, reading operate or audit, "
               "evidence audit, resolving operate";
    } else if (answer->code.len > 0 && (answer->status == 429 || answer->status == 503)) {
        hint = "nothing happened; try again in a moment";
    }
    (void)snprintf(error->hint, sizeof error->hint, "%s", hint);
}

int remote_exit(const struct remote_answer *answer)
{
    if (answer->code.len == 0) {
        return CLI_UNAVAILABLE;
    }
    if (slice_is(cli_member(answer->root, SLICE_LIT("effect")), "unknown")) {
        return CLI_AGAIN;
    }
    switch (answer->status) {
    case 401:
    case 403: return CLI_NOT_ALLOWED;
    case 404:
    case 409: return CLI_DATA;
    case 400:
    case 413:
    case 414:
    case 422:
    case 431: return CLI_USAGE;
    default: return CLI_UNAVAILABLE;
    }
}

int remote_refused(const struct remote *remote, const struct remote_answer *answer)
{
    struct once_error error = {0};
    remote_refusal(remote, answer, &error);
    (void)cli_fail(&error);
    return remote_exit(answer);
}

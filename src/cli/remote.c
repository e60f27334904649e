#include "cli/remote.h"

#include <stdio.h>

#include "base/check.h"
#include "base/percent.h"
#include "base/rand.h"
#include "base/text.h"
#include "cli/backend.h"
#include "client/attempt.h"

enum { URL_BYTES_MAX = 8192, HEADER_BYTES_MAX = 8192, TOKEN_BYTES_MAX = 4096 };

struct remote {
    struct once_client *client;
    struct client_response *response; /* of the last request */
    struct curl_slist *lines;         /* header fields of every request */
    struct remote_options options;
    const char *socket; /* NULL: the URL has a host */
    const char *base;   /* what a path is appended to */
    size_t base_bytes;
    char request_id[REMOTE_REQUEST_ID_BYTES];
};

/* ---- setting up -------------------------------------------------------------------------- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Visible ASCII: any other byte could end the header field. */
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

/* False: out of memory. A field without a value is not sent. */
static bool add_line(struct remote *remote, const char *name, const char *value)
{
    char line[HEADER_BYTES_MAX];
    if (value == NULL) {
        return true;
    }
    (void)snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(remote->lines, line);
    mem_wipe(line, sizeof line);
    remote->lines = longer == NULL ? remote->lines : longer;
    return longer != NULL;
}

static bool add_lines(struct remote *remote)
{
    char token[TOKEN_BYTES_MAX + 8];
    bool has_token = remote->options.token != NULL;
    (void)snprintf(token, sizeof token, "Bearer %s", has_token ? remote->options.token : "");
    bool added = add_line(remote, "Accept", "application/json, application/problem+json") &&
                 add_line(remote, "Content-Type", "application/json") &&
                 add_line(remote, "Expect", "") && /* send the body without waiting: bodies are
                                                      small */
                 add_line(remote, "Request-Id", remote->request_id) &&
                 add_line(remote, "Once-Tenant", remote->options.tenant) &&
                 add_line(remote, "Authorization", has_token ? token : NULL);
    mem_wipe(token, sizeof token);
    return added;
}

static void set_base(struct remote *remote)
{
    bool is_socket = begins(remote->options.url, "unix:");
    remote->socket = is_socket ? remote->options.url + 5 : NULL;
    remote->base = is_socket ? "http://localhost" : remote->options.url;
    remote->base_bytes = strlen(remote->base);
    while (remote->base_bytes > 0 && remote->base[remote->base_bytes - 1] == '/') {
        remote->base_bytes--;
    }
}

static int set_up(struct remote *remote)
{
    struct once_client_options options = {
        .ca_file = remote->options.cacert, .user_agent = "once/" ONCE_VERSION};
    struct once_error error = {0};
    static_assert((int)CLIENT_BODY_BYTES_MAX == (int)REMOTE_ANSWER_BYTES_MAX, "of an answer");
    static_assert((int)CLIENT_CONNECT_MS == (int)REMOTE_CONNECT_MS_MAX, "to connect");
    set_base(remote);
    int code = make_request_id(remote);
    if (code != CLI_OK) {
        return code;
    }
    if (once_client_new(&options, &remote->client, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    remote->response = client_response_new(remote->client);
    if (remote->response == NULL || !add_lines(remote)) {
        cli_say("cannot ask the server: out of memory");
        return CLI_UNAVAILABLE;
    }
    return CLI_OK;
}

int remote_new(const struct remote_options *options, struct remote **ret_remote)
{
    int code = check_options(options);
    if (code != CLI_OK) {
        return code;
    }
    struct remote *remote = mem_zalloc(&mem_libc, 1, sizeof *remote);
    if (remote == NULL) {
        cli_say("cannot ask the server: out of memory");
        return CLI_UNAVAILABLE;
    }
    remote->options = *options;
    code = set_up(remote);
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
    if (remote->response != NULL) {
        once_response_free(remote->client, &remote->response->shown);
    }
    once_client_free(remote->client);
    if (remote->lines != NULL) { /* else libcurl may be absent */
        curl_slist_free_all(remote->lines);
    }
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

/* Report that there is no answer. */
static int unanswered(
    const struct remote *remote, const struct attempt_facts *facts, struct once_error *error)
{
    const char *url = remote->options.url;
    const char *hint = "";
    int result = facts->was_sent && !facts->is_read ? ONCE_E_UNKNOWN : ONCE_E_UNAVAILABLE;
    if (facts->end == ATTEMPT_ANSWERED) {
        backend_error(error, result, "the answer of '%s' is longer than %d bytes", url,
            REMOTE_ANSWER_BYTES_MAX);
    } else {
        backend_error(error, result,
            facts->was_sent ? "no answer from the server '%s': %s"
                            : "cannot reach the server '%s': %s",
            url, remote->response->why);
    }
    if (facts->end == ATTEMPT_HOPELESS) {
        hint = "--cacert FILE names the authority that signed the server's certificate";
    } else if (facts->end == ATTEMPT_NOT_SENT) {
        hint = "once serve starts one; --server or ONCE_SERVER says where it is";
    } else if (result == ONCE_E_UNKNOWN) {
        hint = "it was sent and may have taken effect: check before trying again";
    }
    (void)snprintf(error->hint, sizeof error->hint, "%s", hint);
    return result;
}

/* A root of NULL means that the body is not JSON. */
static int read_answer(
    struct remote *remote, struct arena *arena, struct remote_answer *ret, struct once_error *error)
{
    const struct once_response *shown = &remote->response->shown;
    struct slice kept = SLICE_EMPTY;
    const struct json_value *root = NULL;
    struct err err = {0};
    if (arena_copy(arena, slice_of(shown->body.data, shown->body.size), &kept) != OK) {
        backend_error(error, ONCE_E_NOMEM, "cannot read the answer of the server: out of memory");
        return ONCE_E_NOMEM;
    }
    if (json_read(kept, arena, &root, &err) != OK && err.status != E_INVALID) {
        backend_error(error, (int)err.status, "cannot read the answer of the server: %s", err.text);
        return (int)err.status;
    }
    *ret = (struct remote_answer){.status = shown->status, .text = kept, .root = root};
    ret->code = shown->status < 300 ? SLICE_EMPTY : cli_member(root, SLICE_LIT("code"));
    return ONCE_OK;
}

int remote_try(struct remote *remote, const char *path, struct slice body, struct arena *arena,
    struct remote_answer *ret_answer, struct once_error *error)
{
    char url[URL_BYTES_MAX];
    struct attempt_facts facts;
    struct client_request request = {.method = body.len > 0 ? "POST" : "GET",
        .url = url,
        .body = {body.data, body.len},
        .is_read = body.len == 0,
        .has_body = body.len > 0,
        .socket = remote->socket,
        .lines = remote->lines};
    int used = snprintf(url, sizeof url, "%.*s%s", (int)remote->base_bytes, remote->base, path);
    if (used < 0 || (size_t)used >= sizeof url) {
        backend_error(error, ONCE_E_INVALID, "the path of the request is too long");
        return ONCE_E_INVALID;
    }
    client_response_clear(remote->response);
    client_attempt(remote->client, &request, REMOTE_ANSWER_MS_MAX, remote->response, &facts);
    return facts.end == ATTEMPT_ANSWERED && !remote->response->body_too_large
               ? read_answer(remote, arena, ret_answer, error)
               : unanswered(remote, &facts, error);
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

/* Text from outside, made fit for a message: printable, one line, bounded. */
static const char *printable(struct slice text, char ret_text[ERR_TEXT_BYTES_MAX])
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
    struct slice shown = cli_member(answer->root, SLICE_LIT("detail"));
    const char *hint = "";
    if (answer->code.len == 0) {
        backend_error(error, ONCE_E_UNAVAILABLE, "'%s' answered %d, and not as Once does",
            remote->options.url, answer->status);
        hint = "is it a Once server? Its address ends where /v1 would begin";
    } else {
        shown = shown.len > 0 ? shown : answer->code;
        backend_error(
            error, ONCE_E_UNAVAILABLE, "%s (%d)", printable(shown, detail), answer->status);
    }
    if (answer->code.len > 0 && answer->status == 401) {
        hint = "ONCE_TOKEN holds the token of the caller";
    } else if (slice_is(answer->code, "confirmation_refused")) {
        hint = "the token is wrong, used or expired, or someone else must confirm: once show says "
               "whether the command still waits";
    } else if (slice_is(answer->code, "forbidden")) {
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

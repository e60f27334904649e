#include "client/attempt.h"

#include <stdio.h>

/* ---- libcurl's callbacks ----------------------------------------------------------------- */

/* Called when the connection is made and the request is about to be written. A second call in one
 * attempt is libcurl's own retry, which is refused. */
static int before_sending(
    void *context, char *peer_ip, char *local_ip, int peer_port, int local_port)
{
    struct client_transfer *transfer = context;
    (void)peer_ip;
    (void)local_ip;
    (void)peer_port;
    (void)local_port;
    if (transfer->was_sent) {
        transfer->sent_again = true;
        return CURL_PREREQFUNC_ABORT;
    }
    transfer->was_sent = transfer->may_send == NULL || transfer->may_send(transfer->context);
    return transfer->was_sent ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* Anything but size * count stops the transfer. */
static size_t take_line(char *data, size_t size, size_t count, void *context)
{
    struct client_transfer *transfer = context;
    struct slice line = slice_of(data, size * count);
    return client_response_line(transfer->response, line) ? line.len : 0;
}

static size_t take_piece(char *data, size_t size, size_t count, void *context)
{
    struct client_transfer *transfer = context;
    struct slice piece = slice_of(data, size * count);
    if (transfer->take != NULL) {
        return transfer->take(transfer->context, piece);
    }
    return client_response_piece(transfer->response, piece) ? piece.len : 0;
}

/* ---- setting up -------------------------------------------------------------------------- */

static CURLcode set_method(CURL *curl, const struct client_request *request)
{
    if (request->has_body) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(
            curl, CURLOPT_POSTFIELDS, request->body.data == NULL ? "" : request->body.data);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.size);
    } else if (strcmp(request->method, "HEAD") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
        return CURLE_OK;
    } else {
        (void)curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    }
    return curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static void set_callbacks(CURL *curl, struct client_transfer *transfer)
{
    (void)curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, before_sending);
    (void)curl_easy_setopt(curl, CURLOPT_PREREQDATA, transfer);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_line);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_piece);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer->response->why);
}

/* How the server is reached, for the requests of our own program. */
static CURLcode set_way(CURL *curl, const struct client_request *request)
{
    CURLcode failed = CURLE_OK;
    (void)curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, request->is_raw ? 1L : 0L);
    (void)curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, request->is_raw ? 1L : 0L);
    (void)curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, request->is_raw ? 1L : 0L);
    if (request->socket != NULL) {
        failed = curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, request->socket);
    }
    if (failed == CURLE_OK && (request->is_raw || request->socket != NULL)) {
        failed = curl_easy_setopt(curl, CURLOPT_PROXY, "");
    }
    return failed;
}

/* Only what is copied can fail. */
static CURLcode set_up(CURL *curl, const struct once_client *client,
    const struct client_request *request, int64_t timeout_ms)
{
    const struct once_client_options *options = &client->options;
    int64_t connect_ms =
        options->connect_timeout_ms < timeout_ms ? options->connect_timeout_ms : timeout_ms;
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request->lines);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    CURLcode failed = curl_easy_setopt(curl, CURLOPT_URL, request->url);
    failed = failed == CURLE_OK ? set_method(curl, request) : failed;
    if (failed == CURLE_OK) {
        failed = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    }
    if (failed == CURLE_OK) {
        failed = curl_easy_setopt(curl, CURLOPT_USERAGENT, options->user_agent);
    }
    if (failed == CURLE_OK && options->ca_file != NULL) {
        failed = curl_easy_setopt(curl, CURLOPT_CAINFO, options->ca_file);
    }
    return failed == CURLE_OK ? set_way(curl, request) : failed;
}

/* ---- what came of it --------------------------------------------------------------------- */

/* No attempt will end differently: it is not the network's fault. */
static bool is_hopeless(CURLcode failed)
{
    return failed == CURLE_PEER_FAILED_VERIFICATION || failed == CURLE_SSL_CACERT_BADFILE ||
           failed == CURLE_SSL_ISSUER_ERROR || failed == CURLE_URL_MALFORMAT ||
           failed == CURLE_UNSUPPORTED_PROTOCOL || failed == CURLE_NOT_BUILT_IN;
}

static bool is_short_of_memory(const struct client_response *response)
{
    return buf_status(&response->head) == E_NOMEM || buf_status(&response->body) == E_NOMEM;
}

static enum attempt_end end_of(CURLcode failed, const struct client_transfer *transfer)
{
    const struct client_response *response = transfer->response;
    if (failed == CURLE_OK || response->body_too_large) {
        return ATTEMPT_ANSWERED;
    }
    if (failed == CURLE_OUT_OF_MEMORY || is_short_of_memory(response)) {
        return ATTEMPT_NO_MEMORY;
    }
    if (response->head_too_large) {
        return ATTEMPT_UNREADABLE;
    }
    if (transfer->was_sent) {
        return ATTEMPT_LOST;
    }
    return is_hopeless(failed) ? ATTEMPT_HOPELESS : ATTEMPT_NOT_SENT;
}

/* Texts for cases where libcurl's are missing or unclear. */
static void say_why(struct client_response *response, const struct attempt_facts *facts,
    const struct client_transfer *transfer, CURLcode failed)
{
    const char *why = NULL;
    if (facts->end == ATTEMPT_NO_MEMORY) {
        why = "out of memory";
    } else if (facts->end == ATTEMPT_UNREADABLE) {
        why = "the headers of the answer are more than headers_bytes_max, or too many";
    } else if (transfer->sent_again) {
        why = "the server closed the connection without an answer";
    } else if (response->why[0] == '\0') {
        why = curl_easy_strerror(failed);
    }
    if (why != NULL) {
        (void)snprintf(response->why, sizeof response->why, "%s", why);
    }
}

/* ---- all together ------------------------------------------------------------------------ */

CURLcode client_transfer_begin(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_transfer *transfer, CURL **ret_curl)
{
    CURL *curl = client_handle_take(client);
    if (curl == NULL) {
        return CURLE_OUT_OF_MEMORY;
    }
    set_callbacks(curl, transfer);
    CURLcode failed = set_up(curl, client, request, timeout_ms);
    if (failed != CURLE_OK) {
        client_handle_return(client, curl);
        return failed;
    }
    *ret_curl = curl;
    return CURLE_OK;
}

static void judge(const struct client_request *request, struct client_transfer *transfer,
    CURLcode failed, long status, struct attempt_facts *ret_facts)
{
    struct client_response *response = transfer->response;
    struct attempt_facts facts = {.is_read = request->is_read, .decision = ""};
    facts.end = end_of(failed, transfer);
    facts.was_sent = transfer->was_sent;
    if (facts.end == ATTEMPT_ANSWERED && !client_response_end(response, (int)status)) {
        facts.end = ATTEMPT_NO_MEMORY;
    }
    if (facts.end == ATTEMPT_ANSWERED) {
        response->why[0] = '\0';
        facts.status = (int)status;
        facts.is_replayed = response->shown.is_replayed != 0;
        facts.decision = response->shown.decision;
    } else {
        say_why(response, &facts, transfer, failed);
    }
    *ret_facts = facts;
}

void client_transfer_end(struct once_client *client, const struct client_request *request,
    struct client_transfer *transfer, CURL *curl, CURLcode failed, struct attempt_facts *ret_facts)
{
    long status = 0;
    if (curl != NULL) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        client_handle_return(client, curl);
    }
    judge(request, transfer, failed, status, ret_facts);
}

void client_attempt(struct once_client *client, const struct client_request *request,
    int64_t timeout_ms, struct client_response *response, struct attempt_facts *ret_facts)
{
    struct client_quiet quiet;
    struct client_transfer transfer = {.response = response};
    CURL *curl = NULL;
    client_quiet_begin(&quiet);
    CURLcode failed = client_transfer_begin(client, request, timeout_ms, &transfer, &curl);
    if (failed == CURLE_OK) {
        failed = curl_easy_perform(curl);
    }
    client_transfer_end(client, request, &transfer, curl, failed, ret_facts);
    client_quiet_end(&quiet); /* closing a connection writes, too */
}

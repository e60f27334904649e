#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/policy.h"

enum {
    ANSWER_MS_MAX = 120000, /* longer than a gateway ever waits for an upstream by default */
    HEAD_BYTES_MAX = 256 << 10,
    BODY_BYTES_MAX = 64 << 20,
    LINE_BYTES_MAX = 64 << 10,
};

static size_t take_head(char *bytes, size_t size, size_t count, void *context)
{
    struct policy_answer *answer = context;
    if (count >= 5 && memcmp(bytes, "HTTP/", 5) == 0) {
        buf_clear(&answer->head); /* what was before was interim */
    }
    buf_append(&answer->head, bytes, size * count);
    return buf_status(&answer->head) == OK ? size * count : 0;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct policy_answer *answer = context;
    buf_append(&answer->body, bytes, size * count);
    return buf_status(&answer->body) == OK ? size * count : 0;
}

static bool add_line(struct curl_slist **lines, const char *text)
{
    struct curl_slist *longer = curl_slist_append(*lines, text);
    *lines = longer == NULL ? *lines : longer;
    return longer != NULL;
}

/* The fields of the case, none of libcurl's own, and no wait. */
static bool add_fields(const struct case_request *request, struct curl_slist **lines)
{
    bool ok = add_line(lines, "Expect:");
    struct buf line;
    buf_init(&line, &mem_libc, LINE_BYTES_MAX);
    for (size_t i = 0; ok && i < request->content.headers.count; i++) {
        const struct case_header *header = &request->content.headers.items[i];
        buf_clear(&line);
        /* To libcurl "Name:" means to leave a field out, and "Name;" that it is empty. */
        buf_printf(&line, header->value[0] == '\0' ? "%s;" : "%s: %s", header->name, header->value);
        buf_char(&line, '\0');
        ok = buf_status(&line) == OK && add_line(lines, line.data);
    }
    buf_release(&line);
    if (ok && !case_headers_have(&request->content.headers, "Accept")) {
        ok = add_line(lines, "Accept:");
    }
    /* One request after another: what a duplicate would wait for comes at the end of the case. */
    if (ok && !case_headers_have(&request->content.headers, "Prefer")) {
        ok = add_line(lines, "Prefer: wait=0");
    }
    if (ok && !case_headers_have(&request->content.headers, "Content-Type")) {
        ok = add_line(
            lines, request->content.is_json ? "Content-Type: application/json" : "Content-Type:");
    }
    return ok;
}

static bool set_up(CURL *curl, const char *url, const struct case_request *request,
    struct curl_slist *lines, struct policy_answer *answer)
{
    bool ok = curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_HTTPHEADER, lines) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK;
    (void)curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS_MAX);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_head);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, answer);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    if (request->content.has_body) {
        (void)curl_easy_setopt(
            curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->content.body.len);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
            request->content.body.len == 0 ? "" : request->content.body.data);
    } else if (strcmp(request->method, "HEAD") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    }
    return ok;
}

static void perform(CURL *curl, struct policy_answer *answer)
{
    long status = 0;
    CURLcode failed = curl_easy_perform(curl);
    if (failed != CURLE_OK) {
        (void)snprintf(answer->why, sizeof answer->why, "%s", curl_easy_strerror(failed));
        return;
    }
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    answer->status = (unsigned)status;
}

void policy_ask(
    const char *address, const struct case_request *request, struct policy_answer *ret_answer)
{
    struct curl_slist *lines = NULL;
    struct buf url;
    CURL *curl = curl_easy_init();
    *ret_answer = (struct policy_answer){.status = 0};
    buf_init(&ret_answer->head, &mem_libc, HEAD_BYTES_MAX);
    buf_init(&ret_answer->body, &mem_libc, BODY_BYTES_MAX);
    buf_init(&url, &mem_libc, LINE_BYTES_MAX);
    buf_printf(&url, "http://%s%s", address, request->path);
    buf_char(&url, '\0');
    if (curl != NULL && buf_status(&url) == OK && add_fields(request, &lines) &&
        set_up(curl, url.data, request, lines, ret_answer)) {
        perform(curl, ret_answer);
    } else {
        (void)snprintf(ret_answer->why, sizeof ret_answer->why, "out of memory");
    }
    buf_release(&url);
    curl_slist_free_all(lines);
    curl_easy_cleanup(curl);
}

void policy_answer_release(struct policy_answer *answer)
{
    buf_release(&answer->head);
    buf_release(&answer->body);
}

bool policy_answer_field(
    const struct policy_answer *answer, const char *name, struct slice *ret_value)
{
    struct slice rest = buf_view(&answer->head);
    size_t len = strlen(name);
    while (rest.len > 0) {
        const char *end = memchr(rest.data, '\n', rest.len);
        size_t line = end == NULL ? rest.len : (size_t)(end - rest.data);
        if (line > len && rest.data[len] == ':' && strncasecmp(rest.data, name, len) == 0) {
            line -= rest.data[line - 1] == '\r';
            *ret_value = slice_trim(slice_of(rest.data + len + 1, line - len - 1));
            return true;
        }
        size_t used = line + (end != NULL);
        rest = slice_of(rest.data + used, rest.len - used);
    }
    return false;
}

#include <stdio.h>
#include <string.h>

#include "cli/policy.h"

enum {
    ANSWER_MS_MAX = 120000, /* longer than a gateway waits for an upstream by default */
    LINE_BYTES_MAX = 64 << 10,
};

static bool add_line(struct curl_slist **lines, const char *text)
{
    struct curl_slist *longer = curl_slist_append(*lines, text);
    *lines = longer == NULL ? *lines : longer;
    return longer != NULL;
}

/* Leave out a field that libcurl would add by itself, unless the case has it. */
static bool leave_out(
    const struct case_headers *headers, struct curl_slist **lines, const char *name)
{
    char line[32];
    (void)snprintf(line, sizeof line, "%s:", name);
    return case_headers_have(headers, name) || add_line(lines, line);
}

/* The fields of the case, none of libcurl's own, and no waiting: requests are sent one after
 * another, and what a duplicate would wait for comes only at the end of the case. */
static bool add_lines(const struct case_content *content, struct curl_slist **lines)
{
    const struct case_headers *headers = &content->headers;
    bool is_typed = content->is_json && !case_headers_have(headers, "Content-Type");
    bool ok = leave_out(headers, lines, "Expect") && leave_out(headers, lines, "Accept") &&
              leave_out(headers, lines, "User-Agent") &&
              (is_typed ? add_line(lines, "Content-Type: application/json")
                        : leave_out(headers, lines, "Content-Type")) &&
              (case_headers_have(headers, "Prefer") || add_line(lines, "Prefer: wait=0"));
    struct buf line;
    buf_init(&line, &mem_libc, LINE_BYTES_MAX);
    for (size_t i = 0; ok && i < headers->count; i++) {
        const struct case_header *header = &headers->items[i];
        buf_clear(&line);
        /* To libcurl "Name:" removes a field, and "Name;" sends it empty. */
        buf_printf(&line, header->value[0] == '\0' ? "%s;" : "%s: %s", header->name, header->value);
        buf_char(&line, '\0');
        ok = buf_status(&line) == OK && add_line(lines, line.data);
    }
    buf_release(&line);
    return ok;
}

struct client_response *policy_send(
    struct once_client *client, const char *address, const struct case_request *request)
{
    const struct case_content *content = &request->content;
    struct client_response *response = client_response_new(client);
    struct attempt_facts facts;
    struct curl_slist *lines = NULL;
    struct buf url;
    buf_init(&url, &mem_libc, LINE_BYTES_MAX);
    buf_printf(&url, "http://%s%s", address, request->path);
    buf_char(&url, '\0');
    if (response != NULL && buf_status(&url) == OK && add_lines(content, &lines)) {
        struct client_request sent = {.method = request->method,
            .url = url.data,
            .body = {content->body.data, content->body.len},
            .has_body = content->has_body,
            .is_raw = true,
            .lines = lines};
        client_attempt(client, &sent, ANSWER_MS_MAX, response, &facts);
    } else if (response != NULL) {
        (void)snprintf(response->why, sizeof response->why, "out of memory");
    }
    buf_release(&url);
    curl_slist_free_all(lines);
    return response;
}

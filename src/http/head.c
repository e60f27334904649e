#include "http/head.h"

#include "base/check.h"
#include "base/macros.h"
#include "http/chars.h"
#include "http/impl.h"

static const struct {
    struct slice text;
    enum http_method method;
} methods[] = {
    {{"GET", 3}, HTTP_METHOD_GET},
    {{"HEAD", 4}, HTTP_METHOD_HEAD},
    {{"POST", 4}, HTTP_METHOD_POST},
    {{"PUT", 3}, HTTP_METHOD_PUT},
    {{"DELETE", 6}, HTTP_METHOD_DELETE},
    {{"PATCH", 5}, HTTP_METHOD_PATCH},
    {{"OPTIONS", 7}, HTTP_METHOD_OPTIONS},
    {{"TRACE", 5}, HTTP_METHOD_TRACE},
    {{"ACL", 3}, HTTP_METHOD_OTHER},
    {{"BIND", 4}, HTTP_METHOD_OTHER},
    {{"CHECKOUT", 8}, HTTP_METHOD_OTHER},
    {{"COPY", 4}, HTTP_METHOD_OTHER},
    {{"LINK", 4}, HTTP_METHOD_OTHER},
    {{"LOCK", 4}, HTTP_METHOD_OTHER},
    {{"MERGE", 5}, HTTP_METHOD_OTHER},
    {{"MKACTIVITY", 10}, HTTP_METHOD_OTHER},
    {{"MKCALENDAR", 10}, HTTP_METHOD_OTHER},
    {{"MKCOL", 5}, HTTP_METHOD_OTHER},
    {{"MOVE", 4}, HTTP_METHOD_OTHER},
    {{"PROPFIND", 8}, HTTP_METHOD_OTHER},
    {{"PROPPATCH", 9}, HTTP_METHOD_OTHER},
    {{"PURGE", 5}, HTTP_METHOD_OTHER},
    {{"REBIND", 6}, HTTP_METHOD_OTHER},
    {{"REPORT", 6}, HTTP_METHOD_OTHER},
    {{"SEARCH", 6}, HTTP_METHOD_OTHER},
    {{"UNBIND", 6}, HTTP_METHOD_OTHER},
    {{"UNLINK", 6}, HTTP_METHOD_OTHER},
    {{"UNLOCK", 6}, HTTP_METHOD_OTHER},
};

void http_head_init(struct http_head *head)
{
    memset(head, 0, offsetof(struct http_head, fields));
}

/* Eight bytes with their capital letters as small ones. Neither sum carries into the next byte. */
static uint64_t lower_8(uint64_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t low = bytes & ones * 0x7f;
    uint64_t from_a = low + ones * (0x80 - 'A'); /* sets the top bit from 'A' on … */
    uint64_t past_z = low + ones * (0x7f - 'Z'); /* … and after 'Z' */
    uint64_t capital = (from_a ^ past_z) & ~bytes & ones * 0x80;
    return bytes | capital >> 2; /* 0x20 */
}

static bool same_8(const char *a, const char *b)
{
    return lower_8(scan_load(a)) == lower_8(scan_load(b));
}

bool http_same_letters(const char *a, const char *b, size_t len)
{
    if (len < 8) {
        size_t i = 0;
        while (i < len && http_lower(a[i]) == http_lower(b[i])) {
            i++;
        }
        return i == len;
    }
    for (size_t at = 0; at < len - 8; at += 8) {
        if (!same_8(a + at, b + at)) {
            return false;
        }
    }
    return same_8(a + len - 8, b + len - 8); /* some of them a second time */
}

uint32_t http_find(const struct http_head *head, struct slice name, uint32_t from)
{
    if ((head->name_lengths >> name.len % 64 & 1) == 0) {
        return head->field_count; /* as for most of the fields that a request may have */
    }
    for (uint32_t i = from; i < head->field_count; i++) {
        struct http_span at = head->fields[i].name;
        if (at.len == name.len && http_same_name(slice_of(head->base + at.at, at.len), name)) {
            return i;
        }
    }
    return head->field_count;
}

bool http_find_single(const struct http_head *head, struct slice name, struct slice *ret_value)
{
    uint32_t first = http_find(head, name, 0);
    if (first == head->field_count) {
        return true;
    }
    if (http_find(head, name, first + 1) != head->field_count) {
        return false;
    }
    *ret_value = http_text(head, head->fields[first].value);
    return true;
}

bool http_list_next(struct slice *list, struct slice *ret_element)
{
    while (list->len > 0) {
        const char *comma = memchr(list->data, ',', list->len);
        size_t len = comma == NULL ? list->len : (size_t)(comma - list->data);
        struct slice element = slice_trim(slice_of(list->data, len));
        size_t taken = comma == NULL ? len : len + 1;
        *list = slice_of(list->data + taken, list->len - taken);
        if (element.len > 0) { /* empty elements count for nothing, RFC 9110 section 5.6.1.2 */
            *ret_element = element;
            return true;
        }
    }
    return false;
}

struct slice http_path(const struct http_head *head)
{
    if (head->form == HTTP_FORM_ASTERISK) {
        return SLICE_LIT("*");
    }
    return head->path.len == 0 ? SLICE_LIT("/") : http_text(head, head->path);
}

static struct http_span span_of(const struct http_head *head, const char *data, size_t len)
{
    return (struct http_span){.at = (uint32_t)(data - head->base), .len = (uint32_t)len};
}

/* "HTTP/1.0" or "HTTP/1.1"; other digits may be an existing version, anything else is invalid. */
static enum http_verdict read_version(
    struct slice text, struct http_head *head, struct http_refusal *refusal)
{
    if (text.len != 8 || memcmp(text.data, "HTTP/", 5) != 0 || text.data[6] != '.' ||
        !http_is(text.data[5], HTTP_DIGIT) || !http_is(text.data[7], HTTP_DIGIT)) {
        return http_refuse(refusal, 400, "the version is not of the form HTTP/1.1");
    }
    if (text.data[5] != '1' || text.data[7] > '1') {
        return http_refuse(refusal, 505, "only HTTP/1.1 and HTTP/1.0 are supported");
    }
    head->minor = (unsigned)(text.data[7] - '0');
    return HTTP_DONE;
}

enum http_method http_method_named(struct slice text)
{
    for (size_t i = 0; i < COUNT(methods); i++) {
        if (slice_equal(text, methods[i].text)) {
            return methods[i].method;
        }
    }
    return HTTP_METHOD_NONE;
}

static enum http_verdict read_method(struct http_head *head, struct http_refusal *refusal)
{
    head->method = http_method_named(http_text(head, head->method_text));
    return head->method != HTTP_METHOD_NONE ? HTTP_DONE
                                            : http_refuse(refusal, 501, "the method is not known");
}

/* method SP request-target SP HTTP-version, with exactly those two spaces (section 3). */
static enum http_verdict read_request_line(struct slice line, const struct http_limits *limits,
    struct http_head *head, struct http_refusal *refusal)
{
    size_t method = http_run(line, HTTP_TOKEN);
    if (method == 0 || method == line.len || line.data[method] != ' ') {
        return http_refuse(refusal, 400, "the request does not begin with a method and a space");
    }
    struct slice rest = slice_of(line.data + method + 1, line.len - method - 1);
    const char *space = memchr(rest.data, ' ', rest.len);
    if (space == NULL || space == rest.data) {
        return http_refuse(refusal, 400, "the request line is not method, target, version");
    }
    size_t target = (size_t)(space - rest.data);
    head->method_text = span_of(head, line.data, method);
    head->target = span_of(head, rest.data, target);
    if (target > limits->target_bytes_max) {
        return http_refuse(refusal, 414, "the request target is longer than target_bytes_max");
    }
    enum http_verdict verdict =
        read_version(slice_of(space + 1, rest.len - target - 1), head, refusal);
    if (verdict == HTTP_DONE) {
        verdict = read_method(head, refusal);
    }
    return verdict == HTTP_DONE ? http_target(head, refusal) : verdict;
}

/* HTTP-version SP status-code [SP [reason]]; many servers leave out the second space. */
static enum http_verdict read_status_line(
    struct slice line, struct http_head *head, struct http_refusal *refusal)
{
    const char *bytes = line.data;
    if (line.len < 12 || bytes[8] != ' ' || (line.len > 12 && bytes[12] != ' ') ||
        http_run(slice_of(bytes + 9, 3), HTTP_DIGIT) != 3) {
        return http_refuse(refusal, 502, "the response does not begin with a status line");
    }
    head->status = (unsigned)(bytes[9] - '0') * 100 + (unsigned)(bytes[10] - '0') * 10 +
                   (unsigned)(bytes[11] - '0');
    if (head->status < 100 || head->status > 599) {
        return http_refuse(refusal, 502, "the status code is not in 100 to 599");
    }
    if (line.len > 13) {
        struct slice reason = slice_of(bytes + 13, line.len - 13);
        if (!http_all(reason, HTTP_VALUE)) {
            return http_refuse(refusal, 502, "the reason phrase has a control character");
        }
        head->reason = span_of(head, reason.data, reason.len);
    }
    return read_version(slice_of(bytes, 8), head, refusal);
}

/* field-name ":" OWS field-value OWS (section 5), on one line. */
static enum http_verdict read_field(struct slice line, const struct http_limits *limits,
    struct http_head *head, struct http_refusal *refusal)
{
    size_t name = http_run(line, HTTP_TOKEN);
    if (name == 0 || name == line.len || line.data[name] != ':') {
        bool is_space = name < line.len && (line.data[name] == ' ' || line.data[name] == '\t');
        return http_refuse(refusal, 400,
            !is_space   ? "a field name is not a token followed by a colon"
            : name == 0 ? "a field line begins with whitespace"
                        : "there is whitespace between a field name and its colon");
    }
    struct slice value = slice_trim(slice_of(line.data + name + 1, line.len - name - 1));
    if (!http_is_value(value)) {
        return http_refuse(refusal, 400, "a field value has a control character");
    }
    uint32_t count_max =
        limits->fields_max < HTTP_FIELDS_MAX ? limits->fields_max : HTTP_FIELDS_MAX;
    if (head->field_count >= count_max) {
        return http_refuse(refusal, 431, "there are more fields than fields_max");
    }
    head->name_lengths |= UINT64_C(1) << name % 64;
    head->fields[head->field_count++] = (struct http_field){
        .name = span_of(head, line.data, name), .value = span_of(head, value.data, value.len)};
    return HTTP_MORE;
}

/* One line without its CRLF. HTTP_DONE at the empty line after the fields. */
static enum http_verdict take_line(struct slice line, const struct http_limits *limits,
    struct http_head *head, struct http_refusal *refusal)
{
    if (head->is_started) {
        return line.len == 0 ? HTTP_DONE : read_field(line, limits, head, refusal);
    }
    if (line.len == 0) {
        /* Some clients send a CRLF after a body: one is skipped (section 2.2). check_start has made
         * sure that there is only one. */
        head->skipped = true;
        return HTTP_MORE;
    }
    head->is_started = true;
    enum http_verdict verdict = head->is_response ? read_status_line(line, head, refusal)
                                                  : read_request_line(line, limits, head, refusal);
    return verdict == HTTP_DONE ? HTTP_MORE : verdict;
}

/* Text that cannot become a message, whatever follows: it is too long, or not HTTP. */
static enum http_verdict check_start(struct slice bytes, const struct http_limits *limits,
    const struct http_head *head, uint32_t line_end, struct http_refusal *refusal)
{
    char first = bytes.data[head->line_at];
    if (!http_is(first, HTTP_TOKEN) && (first != '\r' || head->skipped || head->is_response)) {
        return http_refuse(refusal, 400,
            head->skipped && first == '\r' ? "there is an empty line before the message"
                                           : "the message does not begin as HTTP does");
    }
    if (line_end - head->line_at > limits->target_bytes_max + HTTP_LINE_EXTRA_BYTES) {
        return http_refuse(refusal, 414, "the request line is longer than target_bytes_max allows");
    }
    return HTTP_MORE;
}

/*
 * Splits off lines as they become complete. Only the first head_bytes_max bytes are read, and a
 * line is judged only when it is whole or can no longer become valid, so that the verdict is the
 * same for every split.
 */
static enum http_verdict read_lines(struct slice bytes, const struct http_limits *limits,
    struct http_head *head, struct http_refusal *refusal)
{
    uint32_t window =
        bytes.len < limits->head_bytes_max ? (uint32_t)bytes.len : limits->head_bytes_max;
    ASSERT(window >= head->scanned);
    head->base = bytes.data;
    while (head->line_at < window) {
        const char *feed = head->scanned == window
                               ? NULL
                               : memchr(bytes.data + head->scanned, '\n', window - head->scanned);
        uint32_t end = feed == NULL ? window : (uint32_t)(feed - bytes.data);
        enum http_verdict verdict =
            head->is_started ? HTTP_MORE : check_start(bytes, limits, head, end, refusal);
        if (verdict != HTTP_MORE) {
            return verdict;
        }
        head->scanned = end;
        if (feed == NULL) {
            break;
        }
        if (end == head->line_at || feed[-1] != '\r') {
            return http_refuse(refusal, 400, "a line ends in a bare line feed");
        }
        struct slice line = slice_of(bytes.data + head->line_at, end - 1 - head->line_at);
        head->line_at = head->scanned = end + 1;
        verdict = take_line(line, limits, head, refusal);
        if (verdict != HTTP_MORE) {
            head->bytes = head->line_at;
            return verdict;
        }
    }
    return window == limits->head_bytes_max
               ? http_refuse(refusal, 431, "the head is longer than head_bytes_max")
               : HTTP_MORE;
}

enum http_verdict http_request_head(struct slice bytes, const struct http_limits *limits,
    struct http_head *head, struct http_refusal *ret_refusal)
{
    enum http_verdict verdict = read_lines(bytes, limits, head, ret_refusal);
    return verdict == HTTP_DONE ? http_request_fields(head, ret_refusal) : verdict;
}

enum http_verdict http_response_head(struct slice bytes, const struct http_limits *limits,
    enum http_method method, struct http_head *head, struct http_refusal *ret_refusal)
{
    head->is_response = true;
    enum http_verdict verdict = read_lines(bytes, limits, head, ret_refusal);
    if (verdict == HTTP_DONE) {
        verdict = http_response_fields(head, method, ret_refusal);
    }
    if (verdict == HTTP_REFUSED) {
        ret_refusal->status = 502; /* whatever is wrong with it, the client is not to blame */
    }
    return verdict;
}

#include "http/write.h"

#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "http/chars.h"

/* RFC 9110 section 15, and 6585, 7725, 8297, 8470, 4918, 5842 for the others. */
static const struct {
    unsigned status;
    const char *phrase;
} phrases[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {102, "Processing"},
    {103, "Early Hints"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {203, "Non-Authoritative Information"},
    {204, "No Content"},
    {205, "Reset Content"},
    {206, "Partial Content"},
    {207, "Multi-Status"},
    {208, "Already Reported"},
    {226, "IM Used"},
    {300, "Multiple Choices"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {305, "Use Proxy"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {407, "Proxy Authentication Required"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {423, "Locked"},
    {424, "Failed Dependency"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {451, "Unavailable For Legal Reasons"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {506, "Variant Also Negotiates"},
    {507, "Insufficient Storage"},
    {508, "Loop Detected"},
    {511, "Network Authentication Required"},
};

const char *http_status_phrase(unsigned status)
{
    static const char *const classes[] = {
        "Informational", "Success", "Redirection", "Client Error", "Server Error"};
    for (size_t i = 0; i < COUNT(phrases); i++) {
        if (phrases[i].status == status) {
            return phrases[i].phrase;
        }
    }
    return status >= 100 && status <= 599 ? classes[status / 100 - 1] : "Unknown";
}

static void begin(struct http_put *put, struct buf *out)
{
    *put = (struct http_put){.out = out, .start = out->len, .status = OK};
}

static void fail(struct http_put *put)
{
    put->status = put->status == OK ? E_INVALID : put->status;
}

void http_put_response(struct http_put *put, struct buf *out, unsigned status)
{
    ASSERT(status >= 100);
    ASSERT(status <= 599);
    begin(put, out);
    buf_str(out, "HTTP/1.1 ");
    buf_u64(out, status);
    buf_char(out, ' ');
    buf_str(out, http_status_phrase(status));
    buf_str(out, "\r\n");
}

void http_put_request(
    struct http_put *put, struct buf *out, struct slice method, struct slice target)
{
    begin(put, out);
    if (!http_all(method, HTTP_TOKEN) || !http_all(target, HTTP_TARGET)) {
        fail(put);
        return;
    }
    buf_slice(out, method);
    buf_char(out, ' ');
    buf_slice(out, target);
    buf_str(out, " HTTP/1.1\r\n");
}

static void put_line(struct http_put *put, struct slice name, struct slice value)
{
    char *to = buf_extend(put->out, name.len + value.len + 4);
    if (to == NULL) {
        return; /* the buffer remembers it */
    }
    memcpy(to, name.data, name.len);
    memcpy(to + name.len, ": ", 2);
    if (value.len > 0) {
        memcpy(to + name.len + 2, value.data, value.len);
    }
    memcpy(to + name.len + 2 + value.len, "\r\n", 2);
}

/* Whether eight bytes are all letters or dashes. No sum carries into the next byte. */
static bool is_plain_8(uint64_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = ones * 0x80;
    uint64_t low = (bytes | ones * 0x20) & ones * 0x7f;
    uint64_t from_a = low + ones * (0x80 - 'a');
    uint64_t past_z = low + ones * (0x7f - 'z');
    uint64_t other = bytes ^ ones * '-'; /* zero where there is a dash */
    uint64_t dash = ~(((other & ones * 0x7f) + ones * 0x7f) | other);
    return ((((from_a ^ past_z) & ~bytes) | dash) & tops) == tops;
}

/* Whether it may be the name of a field; most are letters and dashes. */
static bool is_name(struct slice text)
{
    size_t at = 0;
    while (text.len - at >= 8 && is_plain_8(scan_load(text.data + at))) {
        at += 8;
    }
    size_t left = text.len - at;
    if (at > 0 && left < 8 && is_plain_8(scan_load(text.data + text.len - 8))) {
        return true; /* the last eight, of which some are known to be plain */
    }
    return text.len > 0 && http_run(slice_of(text.data + at, left), HTTP_TOKEN) == left;
}

void http_put_field(struct http_put *put, struct slice name, struct slice value)
{
    if (!is_name(name) || !http_is_value(value) ||
        http_same_name(name, SLICE_LIT("content-length")) ||
        http_same_name(name, SLICE_LIT("transfer-encoding"))) {
        fail(put);
    }
    if (put->status == OK) {
        put_line(put, name, value);
    }
}

static struct slice number_text(char text[24], uint64_t value)
{
    size_t at = 24;
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return slice_of(text + at, 24 - at);
}

void http_put_number(struct http_put *put, struct slice name, uint64_t value)
{
    char text[24];
    http_put_field(put, name, number_text(text, value));
}

void http_put_length(struct http_put *put, uint64_t bytes)
{
    ASSERT(!put->is_framed);
    put->is_framed = true;
    char text[24];
    if (put->status == OK) {
        put_line(put, SLICE_LIT("Content-Length"), number_text(text, bytes));
    }
}

void http_put_chunked(struct http_put *put)
{
    ASSERT(!put->is_framed);
    put->is_framed = true;
    if (put->status == OK) {
        put_line(put, SLICE_LIT("Transfer-Encoding"), SLICE_LIT("chunked"));
    }
}

enum status http_put_end(struct http_put *put)
{
    buf_str(put->out, "\r\n");
    enum status status = put->status != OK ? put->status : buf_status(put->out);
    if (status != OK) {
        put->out->len = put->start;
    }
    return status;
}

void http_put_chunk(struct buf *out, struct slice data)
{
    if (data.len == 0) {
        return;
    }
    buf_printf(out, "%zx\r\n", data.len);
    buf_slice(out, data);
    buf_str(out, "\r\n");
}

void http_put_last_chunk(struct buf *out)
{
    buf_str(out, "0\r\n\r\n");
}

char *http_put_date(char ret_text[HTTP_DATE_BYTES], int64_t ms)
{
    static const char days[] = "ThuFriSatSunMonTueWed"; /* 1970 began on a Thursday */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const int64_t ms_max = INT64_C(253402300799999); /* the last of the year 9999 */
    char text[TEXT_TIME_BYTES];
    ms = ms < 0 ? 0 : ms > ms_max ? ms_max : ms;
    (void)text_put_time(text, ms);
    int month = (text[5] - '0') * 10 + text[6] - '0';
    /* In every answer that is replayed, so without formatted printing. */
    memcpy(ret_text, "Thu, 01 Jan 1970 00:00:00 GMT", HTTP_DATE_BYTES);
    memcpy(ret_text, days + 3 * (ms / 86400000 % 7), 3);
    memcpy(ret_text + 5, text + 8, 2);
    memcpy(ret_text + 8, months + 3 * (month - 1), 3);
    memcpy(ret_text + 12, text, 4);
    memcpy(ret_text + 17, text + 11, 8);
    return ret_text;
}

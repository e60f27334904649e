#include "base/check.h"
#include "base/text.h"
#include "http/chars.h"
#include "http/impl.h"

static bool is_port(struct slice text)
{
    unsigned value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!http_is(text.data[i], HTTP_DIGIT) || i == 5) {
            return false;
        }
        value = value * 10 + (unsigned)(text.data[i] - '0');
    }
    return text.len > 0 && value <= UINT16_MAX;
}

/* Narrower than RFC 3986: names have no percent-encoding, commas or other delimiters. No host name
 * has them, and readers of lists and of user information would misread them. */
bool http_is_authority(struct slice text)
{
    size_t host;
    unsigned char address[16];
    if (text.len > 0 && text.data[0] == '[') {
        const char *end = memchr(text.data, ']', text.len);
        if (end == NULL ||
            !text_ipv6(slice_of(text.data + 1, (size_t)(end - text.data) - 1), address)) {
            return false;
        }
        host = (size_t)(end - text.data) + 1;
    } else {
        host = http_run(text, HTTP_HOST);
    }
    if (host == 0 || host == text.len) {
        return host != 0;
    }
    return text.data[host] == ':' && is_port(slice_of(text.data + host + 1, text.len - host - 1));
}

/* Every byte is allowed in a URI, and every '%' begins an encoded byte. */
static bool is_clean(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!http_is(text.data[i], HTTP_TARGET)) {
            return false;
        }
        if (text.data[i] == '%' && (text.len - i < 3 || !http_is(text.data[i + 1], HTTP_HEXDIG) ||
                                       !http_is(text.data[i + 2], HTTP_HEXDIG))) {
            return false;
        }
    }
    return true;
}

size_t http_scheme(struct slice text, bool *ret_is_tls)
{
    static const struct slice schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < 2; i++) {
        if (text.len >= schemes[i].len &&
            http_same_name(slice_of(text.data, schemes[i].len), schemes[i])) {
            *ret_is_tls = i == 1;
            return schemes[i].len;
        }
    }
    return 0;
}

static void split_query(struct http_head *head, struct http_span rest)
{
    struct slice text = http_text(head, rest);
    const char *mark = text.len == 0 ? NULL : memchr(text.data, '?', text.len);
    head->path = rest;
    if (mark != NULL) {
        head->path.len = (uint32_t)(mark - text.data);
        head->has_query = true;
        head->query.at = rest.at + head->path.len + 1;
        head->query.len = rest.len - head->path.len - 1;
    }
}

static enum http_verdict read_absolute(struct http_head *head, struct http_refusal *refusal)
{
    struct slice target = http_text(head, head->target);
    bool is_tls;
    size_t at = http_scheme(target, &is_tls);
    if (at == 0) {
        return http_refuse(refusal, 400, "the request target is neither a path nor an http URL");
    }
    size_t end = at;
    while (end < target.len && target.data[end] != '/' && target.data[end] != '?') {
        end++;
    }
    /* User information in a target is an error: RFC 9110 section 4.2.4. */
    if (!http_is_authority(slice_of(target.data + at, end - at))) {
        return http_refuse(refusal, 400, "the authority of the request target is not a host");
    }
    head->form = HTTP_FORM_ABSOLUTE;
    head->authority.at = head->target.at + (uint32_t)at;
    head->authority.len = (uint32_t)(end - at);
    split_query(head,
        (struct http_span){head->target.at + (uint32_t)end, head->target.len - (uint32_t)end});
    return HTTP_DONE;
}

enum http_verdict http_target(struct http_head *head, struct http_refusal *refusal)
{
    struct slice target = http_text(head, head->target);
    ASSERT(target.len > 0); /* the request line was checked */
    if (!is_clean(target)) {
        return http_refuse(refusal, 400, "the request target has a byte that no URL has");
    }
    if (target.data[0] == '/') {
        head->form = HTTP_FORM_ORIGIN;
        split_query(head, head->target);
        return HTTP_DONE;
    }
    if (!slice_is(target, "*")) {
        return read_absolute(head, refusal);
    }
    if (head->method != HTTP_METHOD_OPTIONS) {
        return http_refuse(refusal, 400, "only OPTIONS can be about '*'");
    }
    head->form = HTTP_FORM_ASTERISK;
    return HTTP_DONE;
}

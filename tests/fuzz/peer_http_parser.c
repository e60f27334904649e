#include <http_parser.h>

#include "peer.h"

static int on_url(http_parser *parser, const char *data, size_t len)
{
    struct peer *peer = parser->data;
    buf_append(&peer->start, data, len);
    return 0;
}

static int on_name(http_parser *parser, const char *data, size_t len)
{
    peer_name(parser->data, data, len);
    return 0;
}

static int on_value(http_parser *parser, const char *data, size_t len)
{
    peer_value(parser->data, data, len);
    return 0;
}

static int on_head(http_parser *parser)
{
    struct peer *peer = parser->data;
    parser->upgrade = 0; /* we never upgrade: what follows is HTTP */
    peer_head_over(peer);
    return peer->has_no_body ? 1 : 0;
}

static int on_body(http_parser *parser, const char *data, size_t len)
{
    struct peer *peer = parser->data;
    buf_append(&peer->body, data, len);
    return 0;
}

static int on_complete(http_parser *parser)
{
    struct peer *peer = parser->data;
    peer->keep_alive = http_should_keep_alive(parser) != 0;
    peer->completed++;
    return 0;
}

/* Zero bytes are the end of the connection. */
static void feed(struct peer *peer, http_parser *parser, const char *data, size_t len)
{
    static const http_parser_settings settings = {.on_url = on_url,
        .on_header_field = on_name,
        .on_header_value = on_value,
        .on_headers_complete = on_head,
        .on_body = on_body,
        .on_message_complete = on_complete};
    size_t taken = http_parser_execute(parser, &settings, data, len);
    if (HTTP_PARSER_ERRNO(parser) != HPE_OK) {
        peer->error = http_errno_name(HTTP_PARSER_ERRNO(parser));
    } else if (taken != len) {
        peer->error = "bytes left over";
    }
}

void peer_http_parser(struct peer *peer, const struct peer_input *input)
{
    http_parser parser;
    http_parser_init(&parser, input->is_response ? HTTP_RESPONSE : HTTP_REQUEST);
    parser.data = peer;
    peer->has_no_body = input->has_no_body;
    if (input->bytes.len > 1) {
        feed(peer, &parser, input->bytes.data, input->bytes.len - 1);
    }
    peer->is_early = peer->completed > 0;
    if (peer->error == NULL) {
        feed(peer, &parser, input->bytes.data + input->bytes.len - 1, 1);
    }
    if (peer->error == NULL && input->is_closed) {
        peer->is_early = peer->is_early || peer->completed > 0;
        feed(peer, &parser, "", 0);
    }
    struct buf target = peer->start;
    buf_init(&peer->start, &mem_libc, 1 << 20);
    if (input->is_response) {
        buf_u64(&peer->start, parser.status_code);
    } else {
        buf_str(&peer->start, http_method_str((enum http_method)parser.method));
        buf_char(&peer->start, ' ');
        buf_slice(&peer->start, buf_view(&target));
    }
    buf_release(&target);
}

#include <llhttp/llhttp.h>

#include "peer.h"

static int on_url(llhttp_t *parser, const char *data, size_t len)
{
    struct peer *peer = parser->data;
    buf_append(&peer->start, data, len);
    return 0;
}

static int on_name(llhttp_t *parser, const char *data, size_t len)
{
    peer_name(parser->data, data, len);
    return 0;
}

static int on_value(llhttp_t *parser, const char *data, size_t len)
{
    peer_value(parser->data, data, len);
    return 0;
}

static int on_head(llhttp_t *parser)
{
    struct peer *peer = parser->data;
    parser->upgrade = 0; /* we never upgrade: what follows is HTTP */
    peer_head_over(peer);
    return peer->has_no_body ? 1 : 0;
}

static int on_body(llhttp_t *parser, const char *data, size_t len)
{
    struct peer *peer = parser->data;
    buf_append(&peer->body, data, len);
    return 0;
}

static int on_complete(llhttp_t *parser)
{
    struct peer *peer = parser->data;
    peer->keep_alive = llhttp_should_keep_alive(parser) != 0;
    peer->completed++;
    return 0;
}

static void feed(struct peer *peer, llhttp_t *parser, const char *data, size_t len)
{
    llhttp_errno_t error = llhttp_execute(parser, data, len);
    if (error != HPE_OK) {
        peer->error = llhttp_errno_name(error);
    }
}

void peer_llhttp(struct peer *peer, const struct peer_input *input)
{
    llhttp_t parser;
    llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_url = on_url;
    settings.on_header_field = on_name;
    settings.on_header_value = on_value;
    settings.on_headers_complete = on_head;
    settings.on_body = on_body;
    settings.on_message_complete = on_complete;
    llhttp_init(&parser, input->is_response ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
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
        llhttp_errno_t error = llhttp_finish(&parser);
        peer->error = error == HPE_OK ? NULL : llhttp_errno_name(error);
    }
    struct buf target = peer->start;
    buf_init(&peer->start, &mem_libc, 1 << 20);
    if (input->is_response) {
        buf_u64(&peer->start, parser.status_code);
    } else {
        buf_str(&peer->start, llhttp_method_name((llhttp_method_t)parser.method));
        buf_char(&peer->start, ' ');
        buf_slice(&peer->start, buf_view(&target));
    }
    buf_release(&target);
}

#include <llhttp/llhttp.h>

#define PEER_PARSER             llhttp_t
#define PEER_KEEP_ALIVE(parser) llhttp_should_keep_alive(parser)
#include "peer_callbacks.inc"

static void feed(struct peer *peer, void *parser, const char *data, size_t len)
{
    llhttp_errno_t error = llhttp_execute(parser, data, len);
    if (error != HPE_OK) {
        peer->error = llhttp_errno_name(error);
    }
}

static void end(struct peer *peer, void *parser)
{
    llhttp_errno_t error = llhttp_finish(parser);
    peer->error = error == HPE_OK ? NULL : llhttp_errno_name(error);
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
    peer_feed(peer, input, &(struct peer_parser){&parser, feed, end});
    peer_start(peer, input, parser.status_code,
        input->is_response ? NULL : llhttp_method_name((llhttp_method_t)parser.method));
}

#include <http_parser.h>

#define PEER_PARSER             http_parser
#define PEER_KEEP_ALIVE(parser) http_should_keep_alive(parser)
#include "peer_callbacks.inc"

/* Zero bytes are the end of the connection. */
static void feed(struct peer *peer, void *parser, const char *data, size_t len)
{
    static const http_parser_settings settings = {.on_url = on_url,
        .on_header_field = on_name,
        .on_header_value = on_value,
        .on_headers_complete = on_head,
        .on_body = on_body,
        .on_message_complete = on_complete};
    http_parser *self = parser;
    size_t taken = http_parser_execute(self, &settings, data, len);
    if (HTTP_PARSER_ERRNO(self) != HPE_OK) {
        peer->error = http_errno_name(HTTP_PARSER_ERRNO(self));
    } else if (taken != len) {
        peer->error = "bytes left over";
    }
}

static void end(struct peer *peer, void *parser)
{
    feed(peer, parser, "", 0);
}

void peer_http_parser(struct peer *peer, const struct peer_input *input)
{
    http_parser parser;
    http_parser_init(&parser, input->is_response ? HTTP_RESPONSE : HTTP_REQUEST);
    parser.data = peer;
    peer_feed(peer, input, &(struct peer_parser){&parser, feed, end});
    peer_start(peer, input, parser.status_code,
        input->is_response ? NULL : http_method_str((enum http_method)parser.method));
}

#include "peer.h"

/* Whitespace behind a value is not part of it; the peers leave that to their user. */
static void end_field(struct peer *peer)
{
    if (!peer->is_value) {
        return;
    }
    struct buf *fields = &peer->fields;
    while (fields->len > 0 &&
           (fields->data[fields->len - 1] == ' ' || fields->data[fields->len - 1] == '\t')) {
        fields->len--;
    }
    buf_char(fields, '\n');
    peer->is_value = false;
}

void peer_name(struct peer *peer, const char *data, size_t len)
{
    if (!peer->is_head_over) {
        end_field(peer);
        buf_append(&peer->fields, data, len);
    }
}

void peer_value(struct peer *peer, const char *data, size_t len)
{
    if (!peer->is_head_over) {
        if (!peer->is_value) {
            buf_char(&peer->fields, ':');
            peer->is_value = true;
        }
        buf_append(&peer->fields, data, len);
    }
}

void peer_head_over(struct peer *peer)
{
    end_field(peer);
    peer->is_head_over = true;
}

void peer_feed(struct peer *peer, const struct peer_input *input, const struct peer_parser *parser)
{
    struct slice bytes = input->bytes;
    peer->has_no_body = input->has_no_body;
    if (bytes.len > 1) {
        parser->feed(peer, parser->self, bytes.data, bytes.len - 1);
    }
    peer->is_early = peer->completed > 0;
    if (peer->error == NULL) {
        parser->feed(peer, parser->self, bytes.data + bytes.len - 1, 1);
    }
    if (peer->error == NULL && input->is_closed) {
        peer->is_early = peer->is_early || peer->completed > 0;
        parser->end(peer, parser->self);
    }
}

void peer_start(
    struct peer *peer, const struct peer_input *input, unsigned status, const char *method)
{
    struct buf target = peer->start;
    buf_init(&peer->start, &mem_libc, 1 << 20);
    if (input->is_response) {
        buf_u64(&peer->start, status);
    } else {
        buf_str(&peer->start, method);
        buf_char(&peer->start, ' ');
        buf_slice(&peer->start, buf_view(&target));
    }
    buf_release(&target);
}

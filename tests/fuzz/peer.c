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

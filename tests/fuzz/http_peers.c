#include "http_peers.h"

#include <stdio.h>

#include "base/check.h"
#include "peer.h"

enum { PEER_BYTES_MAX = 16 << 20 };

static void peer_init(struct peer *peer)
{
    *peer = (struct peer){.error = NULL};
    buf_init(&peer->start, &mem_libc, PEER_BYTES_MAX);
    buf_init(&peer->fields, &mem_libc, PEER_BYTES_MAX);
    buf_init(&peer->body, &mem_libc, PEER_BYTES_MAX);
}

static void peer_release(struct peer *peer)
{
    buf_release(&peer->start);
    buf_release(&peer->fields);
    buf_release(&peer->body);
}

/* Ours, in the words of a peer. */
static void ours_put(struct peer *ours, const struct drive *drive)
{
    const struct http_head *head = &drive->head;
    if (head->is_response) {
        buf_u64(&ours->start, head->status);
    } else {
        buf_slice(&ours->start, http_text(head, head->method_text));
        buf_char(&ours->start, ' ');
        buf_slice(&ours->start, http_text(head, head->target));
    }
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct slice value = http_text(head, head->fields[i].value);
        buf_slice(&ours->fields, http_text(head, head->fields[i].name));
        buf_char(&ours->fields, ':');
        buf_slice(&ours->fields, value);
        buf_char(&ours->fields, '\n');
    }
    buf_slice(&ours->body, buf_view(&drive->body));
    /* The peers obey Proxy-Connection, which RFC 9112 appendix C.2.2 says to leave alone, and do
     * not find keep-alive in every list, which matters only to HTTP/1.0. */
    bool is_odd =
        head->minor == 0 || http_find(head, SLICE_LIT("proxy-connection"), 0) < head->field_count;
    ours->keep_alive = head->keep_alive && !is_odd;
}

static void differ(const char *name, const char *what, const struct peer *a, const struct peer *b)
{
    (void)fprintf(stderr, "%s: %s (%s)\nours:  %.*s\n%.*s\n(%zu)\ntheirs: %.*s\n%.*s\n(%zu)\n",
        name, what, b->error == NULL ? "no error" : b->error, SLICE_ARGS(buf_view(&a->start)),
        SLICE_ARGS(buf_view(&a->fields)), a->body.len, SLICE_ARGS(buf_view(&b->start)),
        SLICE_ARGS(buf_view(&b->fields)), b->body.len);
    ASSERT(!"the peers agree");
}

static void compare(
    const char *name, struct slice bytes, const struct peer *ours, const struct peer *peer)
{
    const char *what = NULL;
    if (peer->error != NULL) {
        what = "refuses what we take";
    } else if (peer->completed != 1 || peer->is_early) {
        what = "sees the message end elsewhere";
    } else if (!slice_equal(buf_view(&ours->start), buf_view(&peer->start))) {
        what = "reads another start line";
    } else if (!slice_equal(buf_view(&ours->fields), buf_view(&peer->fields))) {
        what = "reads other fields";
    } else if (!slice_equal(buf_view(&ours->body), buf_view(&peer->body))) {
        what = "reads another body";
    } else if (ours->keep_alive && !peer->keep_alive) {
        what = "closes a connection that we keep";
    }
    if (what != NULL) {
        (void)fprintf(stderr, "%.*s\n---\n", SLICE_ARGS(bytes));
        differ(name, what, ours, peer);
    }
}

void http_peers_check(const struct drive *drive, const struct drive_input *input)
{
    const struct http_head *head = &drive->head;
    struct peer_input same = {.bytes = slice_of(input->bytes.data, drive->used),
        .is_response = head->is_response,
        .has_no_body = head->is_response && head->framing == HTTP_BODY_NONE,
        .is_closed = head->framing == HTTP_BODY_CLOSE};
    struct peer ours;
    struct peer theirs;
    peer_init(&ours);
    ours_put(&ours, drive);
    peer_init(&theirs);
    peer_http_parser(&theirs, &same);
    compare("http-parser", same.bytes, &ours, &theirs);
    peer_release(&theirs);
    peer_init(&theirs);
    peer_llhttp(&theirs, &same);
    compare("llhttp", same.bytes, &ours, &theirs);
    peer_release(&theirs);
    peer_release(&ours);
}

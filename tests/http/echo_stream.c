/*
 * echo_stream: bodies in pieces and streamed answers, for test_stream.py. Paths, with "hook 1":
 *
 *   /refuse         begin answers 403
 *   /refuse-late?N  begin streams N bytes and reads nothing of the body
 *   /pieces         the body in pieces; answers how many bytes, and their sum
 *   /slow?MS        the same, with a pause of MS after each piece, from another thread
 *   /stuck          the same, with one pause that never ends
 *   /echo-pieces    each piece is sent back as it comes, and pauses while the client does not read
 *   /early?N        answers when N bytes have come
 *   /early-stream?N streams an answer of N bytes when the first piece has come
 *   /half           begins an answer with the first piece and ends it when the body is whole
 *   /limit?N        /pieces, with its own limit of the body
 *   /limit-whole?N  the same with the body in memory; answers it
 * and without a hook as well:
 *   /stream?N       200 with N bytes, of known length; /chunked?N without; /small?N in small pieces
 *   /flood?N        /chunked that goes on though it is told to wait
 *   /trickle?N      N pieces, one each 10 ms
 *   /break?N        breaks off after N bytes, of known length; /break-chunked?N without
 *   /short?N        gives fewer bytes than it said
 *   /absent?S       status S without a body
 *   /dated          has a Date of its own
 *   /bad-field      streams behind a field that cannot be sent
 *   /held           answers when the client is gone
 */
#include <stdio.h>

#include "base/check.h"
#include "echo.h"

enum { PIECE_BYTES = 10000, SMALL_BYTES = 100, TRICKLE_MS = 10 };

/* What an exchange is about; in its arena. */
struct stream_job {
    struct echo *echo;
    uint64_t left;  /* bytes of the answer still to be given */
    uint64_t given; /* and given */
    uint64_t bytes; /* of the body so far */
    uint64_t sum;   /* of them */
    uint64_t number;
    size_t piece_bytes;
    bool is_paused;
    bool is_stuck;     /* the pause never ends */
    bool is_broken;    /* the answer is not to be whole */
    bool ignores_room; /* false does not stop it */
    bool is_waiting;   /* for drained */
};

static struct stream_job *job_new(struct echo *echo, struct http_exchange *exchange)
{
    struct stream_job *job = arena_zalloc(exchange->arena, sizeof *job);
    ASSERT(job != NULL);
    job->echo = echo;
    job->number = echo_number(exchange);
    job->piece_bytes = PIECE_BYTES;
    exchange->state = job;
    atomic_fetch_add(&echo->jobs, 1);
    return job;
}

static void job_over(struct stream_job *job)
{
    uint64_t before = atomic_fetch_sub(&job->echo->jobs, 1);
    ASSERT(before > 0);
}

static bool path_is(const struct http_exchange *exchange, const char *path)
{
    return slice_is(http_path(exchange->head), path);
}

static void on_gone(void *context, struct http_exchange *exchange)
{
    struct echo *echo = context;
    ASSERT(exchange->is_gone);
    atomic_fetch_add(&echo->gones, 1);
}

static void on_cut(void *context, struct http_exchange *exchange)
{
    struct echo *echo = context;
    echo_forget(echo, exchange);
    atomic_fetch_add(&echo->cuts, 1);
    job_over(exchange->state);
    exchange->state = NULL;
}

static void answer(struct http_exchange *exchange, unsigned status, struct slice body)
{
    job_over(exchange->state);
    http_answer_begin(exchange, status);
    http_answer_end(exchange, SLICE_LIT("text/plain"), body, false);
}

static void answer_sum(struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    char text[64];
    int len = snprintf(text, sizeof text, "%llu %llu", (unsigned long long)job->bytes,
        (unsigned long long)job->sum);
    ASSERT(len > 0);
    answer(exchange, 200, slice_of(text, (size_t)len));
}

/* -------------------------------------------------------------------------- streamed answers -- */

static void finish(struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    bool is_whole = !job->is_broken;
    job_over(job);
    http_answer_finish(exchange, is_whole);
}

/* The letters from a place on, as those of /big. They repeat, so most are copied: to compute them
 * all took longer than to send them. */
static void put_letters(char *piece, size_t len, uint64_t from)
{
    const size_t period = 23;
    for (size_t i = 0; i < len && i < period; i++) {
        piece[i] = (char)('a' + (from + i) % period);
    }
    for (size_t made = period; made < len;) {
        size_t more = made < len - made ? made : len - made;
        memcpy(piece + made, piece, more);
        made += more;
    }
}

/* As much as is wanted. */
static void give(struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    char piece[PIECE_BYTES];
    bool has_room = true;
    while (job->left > 0 && (has_room || job->ignores_room)) {
        size_t len = job->left < job->piece_bytes ? (size_t)job->left : job->piece_bytes;
        put_letters(piece, len, job->given);
        job->left -= len;
        job->given += len;
        has_room = http_answer_piece(exchange, slice_of(piece, len));
    }
    job->is_waiting = job->left > 0;
    if (job->left == 0) {
        finish(exchange);
    }
}

static void on_drained(void *context, struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    (void)context;
    ASSERT(!exchange->is_gone);
    ASSERT(job->is_waiting); /* it comes when it is owed, and once */
    job->is_waiting = false;
    give(exchange);
}

/* Without a client nobody says drained. */
static void on_gone_streaming(void *context, struct http_exchange *exchange)
{
    on_gone(context, exchange);
    give(exchange);
}

static void stream(struct http_exchange *exchange, uint64_t bytes, int64_t length)
{
    struct stream_job *job = exchange->state;
    job->left = bytes;
    exchange->drained = on_drained;
    exchange->gone = on_gone_streaming;
    http_answer_begin(exchange, 200);
    http_answer_field(exchange, SLICE_LIT("Content-Type"), SLICE_LIT("text/plain"));
    http_answer_stream(exchange, length);
    give(exchange);
}

static void on_trickle(void *context, struct http_exchange *exchange)
{
    struct echo *echo = context;
    struct stream_job *job = exchange->state;
    if (job->left == 0) {
        finish(exchange);
        return;
    }
    job->left--;
    (void)http_answer_piece(exchange, SLICE_LIT("drop ")); /* few; they need no room */
    echo_later(echo, exchange, TRICKLE_MS);
}

static void trickle(struct echo *echo, struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    job->left = job->number;
    exchange->gone = on_gone;
    exchange->resume = on_trickle;
    http_answer_begin(exchange, 200);
    http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    echo_later(echo, exchange, TRICKLE_MS);
}

static void on_gone_held(void *context, struct http_exchange *exchange)
{
    on_gone(context, exchange);
    answer(exchange, 200, SLICE_LIT("nobody"));
}

static void absent(struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    http_answer_begin(exchange, (unsigned)job->number);
    http_answer_stream(exchange, HTTP_LENGTH_ABSENT);
    finish(exchange);
}

static void bad_field(struct http_exchange *exchange)
{
    http_answer_begin(exchange, 200);
    http_answer_field(exchange, SLICE_LIT("Split"), SLICE_LIT("a\r\nSet-Cookie: b"));
    http_answer_stream(exchange, HTTP_LENGTH_CHUNKED);
    (void)http_answer_piece(exchange, SLICE_LIT("never")); /* dropped */
    finish(exchange);
}

static void dated(struct http_exchange *exchange)
{
    exchange->has_date = true;
    http_answer_begin(exchange, 200);
    http_answer_field(exchange, SLICE_LIT("Date"), SLICE_LIT("Sun, 06 Nov 1994 08:49:37 GMT"));
    http_answer_stream(exchange, 5);
    (void)http_answer_piece(exchange, SLICE_LIT("dated")); /* it is short */
    finish(exchange);
}

/* -------------------------------------------------------------------------- bodies in pieces -- */

static void count(struct http_exchange *exchange, struct slice piece)
{
    struct stream_job *job = exchange->state;
    ASSERT(!job->is_paused);
    ASSERT(piece.len > 0);
    ASSERT(exchange->request_id.len > 0);
    job->bytes += piece.len;
    for (size_t i = 0; i < piece.len; i++) {
        job->sum += (unsigned char)piece.data[i];
    }
}

static void on_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    (void)context;
    count(exchange, piece);
}

static void on_awake(void *context, struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    (void)context;
    job->is_paused = false;
    http_body_go_on(exchange);
}

static void on_slow_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    struct stream_job *job = exchange->state;
    count(exchange, piece);
    job->is_paused = true;
    http_body_pause(exchange);
    if (!job->is_stuck) {
        echo_later(context, exchange, job->number);
    }
}

static void on_echo_drained(void *context, struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    (void)context;
    ASSERT(job->is_paused);
    job->is_paused = false;
    http_body_go_on(exchange);
}

static void on_echo_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    struct stream_job *job = exchange->state;
    (void)context;
    count(exchange, piece);
    if (!http_answer_piece(exchange, piece)) {
        job->is_paused = true;
        http_body_pause(exchange);
    }
}

static void on_early_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    struct stream_job *job = exchange->state;
    (void)context;
    count(exchange, piece);
    if (job->bytes >= job->number) {
        answer(exchange, 200, SLICE_LIT("early"));
    }
}

static void on_early_stream_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    struct stream_job *job = exchange->state;
    (void)context;
    count(exchange, piece);
    if (job->given == 0) {
        stream(exchange, job->number, (int64_t)job->number);
    }
}

static void on_half_piece(void *context, struct http_exchange *exchange, struct slice piece)
{
    struct stream_job *job = exchange->state;
    (void)context;
    bool is_first = job->bytes == 0;
    count(exchange, piece);
    if (is_first) {
        http_answer_begin(exchange, 200);
        http_answer_field(exchange, SLICE_LIT("Half"), SLICE_LIT("an answer"));
    }
}

static void echo_back(struct http_exchange *exchange)
{
    bool is_long = exchange->head->framing == HTTP_BODY_LENGTH;
    exchange->drained = on_echo_drained;
    http_answer_begin(exchange, 200);
    http_answer_stream(exchange, is_long ? (int64_t)exchange->head->length : HTTP_LENGTH_CHUNKED);
}

void stream_begin(void *context, struct http_exchange *exchange)
{
    static const struct {
        const char *path;
        http_piece piece;
    } known[] = {{"/pieces", on_piece}, {"/slow", on_slow_piece}, {"/stuck", on_slow_piece},
        {"/echo-pieces", on_echo_piece}, {"/early", on_early_piece}, {"/limit", on_piece},
        {"/early-stream", on_early_stream_piece}, {"/half", on_half_piece}};
    ASSERT(exchange->request_id.len > 0);
    ASSERT(exchange->body_bytes_max > 0);
    if (path_is(exchange, "/refuse")) {
        (void)job_new(context, exchange);
        answer(exchange, 403, SLICE_LIT("no"));
    } else if (path_is(exchange, "/refuse-late")) {
        uint64_t bytes = job_new(context, exchange)->number;
        stream(exchange, bytes, (int64_t)bytes);
    } else if (path_is(exchange, "/limit-whole")) {
        exchange->body_bytes_max = echo_number(exchange);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (path_is(exchange, known[i].path)) {
            struct stream_job *job = job_new(context, exchange);
            exchange->piece = known[i].piece;
            exchange->cut = on_cut;
            exchange->gone = on_gone;
            exchange->resume = on_awake;
            job->is_stuck = path_is(exchange, "/stuck");
            exchange->body_bytes_max =
                path_is(exchange, "/limit") ? job->number : UINT64_C(1) << 40;
        }
    }
    if (path_is(exchange, "/echo-pieces")) {
        echo_back(exchange);
    }
}

/* The body is whole. */
static void handle_pieces(struct echo *echo, struct http_exchange *exchange)
{
    struct stream_job *job = exchange->state;
    ASSERT(!job->is_paused);
    ASSERT(exchange->body.len == 0);
    atomic_fetch_add(&echo->wholes, 1);
    if (exchange->piece == on_echo_piece) {
        finish(exchange);
    } else if (exchange->piece == on_half_piece && job->bytes > 0) {
        job_over(job);
        http_answer_end(exchange, SLICE_LIT("text/plain"), SLICE_LIT("half"), true);
    } else if (exchange->piece != on_early_stream_piece) {
        answer_sum(exchange);
    } /* else it is being streamed, and goes on */
}

static bool handle_streams(struct http_exchange *exchange, struct stream_job *job)
{
    uint64_t number = job->number;
    job->piece_bytes = path_is(exchange, "/small") ? SMALL_BYTES : PIECE_BYTES;
    job->ignores_room = path_is(exchange, "/flood");
    job->is_broken = path_is(exchange, "/break") || path_is(exchange, "/break-chunked");
    if (path_is(exchange, "/stream") || path_is(exchange, "/small")) {
        stream(exchange, number, (int64_t)number);
    } else if (path_is(exchange, "/chunked") || path_is(exchange, "/flood") ||
               path_is(exchange, "/break-chunked")) {
        stream(exchange, number, HTTP_LENGTH_CHUNKED);
    } else if (path_is(exchange, "/break") || path_is(exchange, "/short")) {
        stream(exchange, number, (int64_t)number + 5);
    } else {
        return false;
    }
    return true;
}

bool stream_handle(struct echo *echo, struct http_exchange *exchange)
{
    if (exchange->piece != NULL) {
        handle_pieces(echo, exchange);
        return true;
    }
    struct stream_job *job = job_new(echo, exchange);
    if (handle_streams(exchange, job)) {
        return true;
    }
    if (path_is(exchange, "/limit-whole")) {
        answer(exchange, 200, exchange->body);
    } else if (path_is(exchange, "/trickle")) {
        trickle(echo, exchange);
    } else if (path_is(exchange, "/absent")) {
        absent(exchange);
    } else if (path_is(exchange, "/bad-field")) {
        bad_field(exchange);
    } else if (path_is(exchange, "/dated")) {
        dated(exchange);
    } else if (path_is(exchange, "/held")) {
        exchange->gone = on_gone_held;
    } else {
        job_over(job);
        exchange->state = NULL;
        return false;
    }
    return true;
}

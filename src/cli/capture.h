/*
 * capture: what a command wrote, in the order it wrote it, bounded.
 *
 * Promises:  keeps the first bytes_max bytes of both streams together and counts the rest. Playing
 *            a capture gives each stream exactly the bytes it got, in the order they were seen.
 *
 * The stored form is the body of an outcome: pieces of one byte for the stream ('1', '2'), four for
 * the length (little-endian), and the bytes. The outcome's meta is a JSON object that names the
 * form, CAPTURE_FORMAT, and counts what was kept and dropped of each stream.
 */
#ifndef ONCE_CLI_CAPTURE_H
#define ONCE_CLI_CAPTURE_H

#include <once/once.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define CAPTURE_FORMAT "once-run/1"

enum { CAPTURE_STREAMS = 2, CAPTURE_STDOUT = 0, CAPTURE_STDERR = 1 };
/* Leaves room for the heads of pieces within LIMIT_OUTCOME_BYTES_MAX. */
enum { CAPTURE_BYTES_MAX = 15 << 20 };

struct capture {
    struct buf pieces;                 /* the stored form */
    uint64_t bytes_max;                /* of both streams together */
    uint64_t kept[CAPTURE_STREAMS];    /* bytes in pieces */
    uint64_t dropped[CAPTURE_STREAMS]; /* bytes that came after the bound was reached */
    int last_stream;                   /* of the last piece; -1 for none */
    size_t last_head;                  /* where that piece's head is */
};

void capture_init(struct capture *capture, uint64_t bytes_max);
void capture_release(struct capture *capture);
void capture_add(struct capture *capture, int stream, struct slice bytes);
/* The meta of the outcome, appended to out. */
void capture_meta(const struct capture *capture, struct buf *out);

/* A stored capture, read back. Slices point into what was read. */
struct recording {
    bool framed;                       /* false: body is not of our form; all of it is stdout */
    bool gone;                         /* the body is no longer kept */
    struct slice body;                 /* the pieces */
    uint64_t kept[CAPTURE_STREAMS];    /* as capture */
    uint64_t dropped[CAPTURE_STREAMS]; /* as capture */
};

/* Copies into the arena. E_CORRUPT when it calls itself a capture and is none; E_NOMEM. */
enum status recording_read(const struct once_operation *operation, struct arena *arena,
    struct recording *ret_recording, struct err *err) MUST_CHECK;
struct recording recording_of(const struct capture *capture);

/* Called for each piece in order; false stops. */
typedef bool (*recording_visit)(void *context, int stream, struct slice bytes);
void recording_each(const struct recording *recording, recording_visit visit, void *context);
/* All bytes of one stream, appended to out. */
void recording_stream(const struct recording *recording, int stream, struct buf *out);

#endif

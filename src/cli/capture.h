/*
 * capture: the output of a command, in the order it was written, bounded; and its stored form.
 *
 * Promises:  keeps the first bytes_max bytes of both streams together and counts the rest. Playing
 *            a recording writes exactly the same bytes to each stream, in the order they were read.
 *
 * The stored form is an outcome that is JSON, so that every door shows it as it is (docs/run.md):
 *
 *     {"format":"once-run/2","exit_code":0,"output":[{"stdout":"…"},{"stderr_base64":"…"}],
 *      "stdout_dropped":0,"stderr_dropped":0}
 *
 * An older, framed form is still read, and is written for output that is too large as JSON: pieces
 * of one byte for the stream ('1', '2'), four for the length (little-endian), and the bytes; the
 * outcome's meta is a JSON object that names it, once-run/1, and counts what was kept and dropped
 * of each stream.
 */
#ifndef ONCE_CLI_CAPTURE_H
#define ONCE_CLI_CAPTURE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "cli/operation.h"

#define CAPTURE_FORMAT_FRAMED "once-run/1"
#define CAPTURE_FORMAT_JSON   "once-run/2"

enum { CAPTURE_STREAMS = 2, CAPTURE_STDOUT = 0, CAPTURE_STDERR = 1 };
/* Leaves room for the heads of pieces within LIMIT_OUTCOME_BYTES_MAX. */
enum { CAPTURE_BYTES_MAX = 15 << 20 };

struct capture {
    struct buf pieces;                 /* the framed form */
    uint64_t bytes_max;                /* limit of both streams together */
    uint64_t kept[CAPTURE_STREAMS];    /* bytes in pieces */
    uint64_t dropped[CAPTURE_STREAMS]; /* bytes that came after the limit was reached */
    int last_stream;                   /* of the last piece; -1: no piece yet */
    size_t last_head;                  /* the position of that piece's head */
};

void capture_init(struct capture *capture, uint64_t bytes_max);
void capture_release(struct capture *capture);
void capture_add(struct capture *capture, int stream, struct slice bytes);
/* Append the outcome as JSON to out, which may be too small for it: check its status. keeps_output
 * false: all output is counted as dropped. */
void capture_json(const struct capture *capture, int exit_code, bool keeps_output, struct buf *out);
/* Append the meta of the framed form to out; its body is the pieces. */
void capture_meta(const struct capture *capture, struct buf *out);

/* A stored capture, read back. */
struct recording {
    bool is_run;                       /* false: not written by once run; whatever there is counts
                                          as standard output */
    bool gone;                         /* the bytes are no longer kept */
    bool has_code;                     /* the exit code is known */
    int exit_code;                     /* of the command */
    struct slice body;                 /* the framed pieces, in the arena */
    uint64_t kept[CAPTURE_STREAMS];    /* as in capture */
    uint64_t dropped[CAPTURE_STREAMS]; /* as in capture */
};

/* Read a sealed operation's outcome as a recording. In the arena. E_CORRUPT: it claims to be a
 * capture but is not; E_NOMEM. */
enum status recording_read(const struct operation *operation, struct arena *arena,
    struct recording *ret_recording, struct err *err) MUST_CHECK;
struct recording recording_of(const struct capture *capture);

/* Called for each piece in order; false stops. */
typedef bool (*recording_visit)(void *context, int stream, struct slice bytes);
void recording_each(const struct recording *recording, recording_visit visit, void *context);
/* Append all bytes of one stream to out. */
void recording_stream(const struct recording *recording, int stream, struct buf *out);

#endif

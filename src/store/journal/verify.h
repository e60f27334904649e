/*
 * verify: checks the bytes of a journal and passes them on as a stream (store/replay.h).
 *
 * It checks what only a journal has: the identity file, segments, batches, frames, checksums, and
 * that a record's bodies are where it says. The reader checks the content of the frames.
 */
#ifndef ONCE_STORE_JOURNAL_VERIFY_H
#define ONCE_STORE_JOURNAL_VERIFY_H

#include "store/replay.h"

/* Like store_replay; path_and_options is the URL without its "journal:". */
enum status journal_verify(const char *path_and_options, const struct store_options *options,
    replay_visit visit, void *context, struct err *err) MUST_CHECK;

#endif

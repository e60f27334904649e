/*
 * The mark of store_soon: a file that is there while the mark is set.
 */
#include <errno.h>
#include <fcntl.h>

#include "base/check.h"
#include "store/journal/impl.h"

static struct path soon_path(const struct journal *journal)
{
    return journal_path(journal, "replays-soon");
}

static bool soon_is_marked(struct store *store)
{
    return journal_of(store)->replays_soon;
}

bool soon_read(const struct journal *journal)
{
    const struct io *io = journal->io;
    struct path path = soon_path(journal);
    int fd = io->open(io->context, path.text, O_RDONLY, 0);
    if (fd >= 0) {
        (void)io->close(io->context, fd);
    }
    return fd != -ENOENT;
}

static enum status soon_mark(struct store *store, bool on, struct err *err)
{
    struct journal *journal = journal_of(store);
    const struct io *io = journal->io;
    struct path path = soon_path(journal);
    ASSERT(!journal->read_only);
    if (on) {
        enum status status = file_replace(journal, path.text,
            SLICE_LIT("replays are answered before their evidence is on disk\n"), err);
        journal->replays_soon = journal->replays_soon || status == OK;
        return status;
    }
    int failed = io->unlink(io->context, path.text);
    failed = failed == 0 ? io_sync_dir(io, journal->options.path) : failed;
    if (failed != 0 && failed != -ENOENT) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot remove '%s'", path.text);
    }
    journal->replays_soon = false;
    return OK;
}

const struct store_soon journal_soon = {.is_marked = soon_is_marked, .mark = soon_mark};

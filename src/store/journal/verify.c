#include "store/journal/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "store/journal/impl.h"

enum { PATH_BYTES_MAX = 4096 };

struct journal_verifier {
    char path[PATH_BYTES_MAX]; /* of the directory */
    const struct io *io;
    replay_visit visit;
    void *context;
    bool stopped;            /* the visitor stopped */
    struct replay_item item; /* what the visitor is shown */
    unsigned char chain_id[16];
    uint64_t request_place; /* of the request body in the current change; 0: absent */
    uint64_t outcome_place; /* of the outcome body; 0: absent */

    struct mark reached; /* the end when it was last closed; all zeros: not known */
    uint64_t batch_next; /* after the last batch that was read */
    uint64_t seq;        /* of the last entry that was read, or that came before all of them */
    bool has_started;    /* the header of the first segment was read */
    bool differs;        /* the entry that `reached` names has a different hash */
};

/* Shows the item. False: the visitor stopped. */
static bool show(struct journal_verifier *self, enum replay_kind kind)
{
    ASSERT(!self->stopped);
    self->item.kind = kind;
    self->stopped = !self->visit(self->context, &self->item);
    return !self->stopped;
}

static bool show_damage(struct journal_verifier *self, const char *text, bool lost)
{
    self->item.text = text;
    self->item.lost = lost;
    return show(self, REPLAY_DAMAGE);
}

static void change_clear(struct journal_verifier *self)
{
    self->request_place = 0;
    self->outcome_place = 0;
}

/* ---- frames ------------------------------------------------------------------------------- */

static bool show_body(struct journal_verifier *self, const struct journal_walk *walk,
    enum replay_kind kind, uint64_t *ret_place)
{
    struct slice payload = walk->frame->payload;
    size_t digest_bytes = sizeof self->item.digest.bytes;
    if (payload.len < digest_bytes) {
        return show_damage(self, "a body without its digest, or one too many", false);
    }
    *ret_place = place_make(walk->segment, walk->frame->offset);
    memcpy(self->item.digest.bytes, payload.data, digest_bytes);
    self->item.body = slice_of(payload.data + digest_bytes, payload.len - digest_bytes);
    self->item.erased = walk->frame->kind == FRAME_ERASED;
    if (self->item.erased && !bytes_zero(self->item.body.data, self->item.body.len)) {
        return show_damage(self, "a body that was erased is still there", false);
    }
    return show(self, kind);
}

/* A body that came with the change must be where the record says; any other body is older. */
static bool check_place(struct journal_verifier *self, const char *name, uint64_t seen,
    const struct body_ref *body, uint64_t here)
{
    char text[96];
    if (seen != 0 && body->retained && body->place != seen) {
        (void)snprintf(
            text, sizeof text, "the %s stored with the record is not the one it names", name);
        return show_damage(self, text, false);
    }
    if (seen == 0 && body->retained && body->bytes > 0 && body->place >= here) {
        (void)snprintf(text, sizeof text, "the record's %s is not where it says", name);
        return show_damage(self, text, false);
    }
    return true;
}

static bool show_record(
    struct journal_verifier *self, const struct journal_walk *walk, enum replay_kind kind)
{
    struct record record;
    struct err err = {0};
    uint64_t here = place_make(walk->segment, walk->frame->offset);
    if (record_decode(walk->frame->payload, &record, &err) != OK) {
        return show_damage(self, err.text, false);
    }
    self->item.record = &record;
    return check_place(self, "request", self->request_place, &record.request, here) &&
           check_place(self, "outcome", self->outcome_place, &record.outcome.body, here) &&
           show(self, kind);
}

static bool show_touch(struct journal_verifier *self, const struct journal_walk *walk)
{
    struct slice payload = walk->frame->payload;
    if (payload.len != sizeof self->item.digest.bytes) {
        return show_damage(self, "a duplicate is counted without a key, or twice", false);
    }
    memcpy(self->item.digest.bytes, payload.data, sizeof self->item.digest.bytes);
    return show(self, REPLAY_TOUCH);
}

static bool show_entry(struct journal_verifier *self, const struct journal_walk *walk)
{
    struct entry entry;
    const char *wrong = entry_decode(walk->frame->payload, &entry);
    change_clear(self);
    if (wrong != NULL) {
        return show_damage(self, wrong, true);
    }
    if (entry.kind == ENTRY_EVIDENCE) {
        self->seq = entry.seq;
        self->differs = self->differs || (entry.seq == self->reached.seq &&
                                             !digest_equal(&entry.hash, &self->reached.hash));
    }
    memcpy(entry.chain_id, self->chain_id, sizeof entry.chain_id);
    self->item.entry = &entry;
    self->item.tenant_known = entry_has_tenant(walk->frame->payload);
    return show(self, REPLAY_ENTRY);
}

static bool show_frame(struct journal_verifier *self, const struct journal_walk *walk)
{
    self->item.offset = walk->frame->offset;
    switch (walk->frame->kind) {
    case FRAME_RECORD: return show_record(self, walk, REPLAY_RECORD);
    case FRAME_TOUCH: return show_touch(self, walk);
    case FRAME_ENTRY: return show_entry(self, walk);
    case FRAME_REQUEST:
    case FRAME_ERASED: return show_body(self, walk, REPLAY_REQUEST, &self->request_place);
    case FRAME_OUTCOME: return show_body(self, walk, REPLAY_OUTCOME, &self->outcome_place);
    case FRAME_MOVED: break;
    }
    bool more = show_record(self, walk, REPLAY_MOVED);
    change_clear(self);
    return more;
}

/* ---- segments and batches ----------------------------------------------------------------- */

static bool show_segment(struct journal_verifier *self, const struct journal_walk *walk)
{
    self->item.part_known = walk->header != NULL;
    if (walk->header != NULL) {
        self->item.squeezed = walk->header->squeezed;
        self->item.seq_before = walk->header->mark.seq;
        self->item.hash_before = walk->header->mark.hash;
        self->item.batch = walk->header->mark.batch;
    }
    if (walk->header != NULL && !self->has_started) {
        self->has_started = true;
        self->seq = walk->header->mark.seq;
        self->batch_next = walk->header->mark.batch;
    }
    return show(self, REPLAY_PART);
}

static bool show_batch(struct journal_verifier *self, const struct journal_walk *walk)
{
    change_clear(self);
    self->batch_next = walk->batch->number + 1;
    self->item.batch = walk->batch->number;
    self->item.time_ms = walk->batch->moment.time_ms;
    self->item.fence = walk->batch->fence;
    return show(self, REPLAY_BATCH);
}

static bool on_walk(void *context, const struct journal_walk *walk)
{
    struct journal_verifier *self = context;
    self->item = (struct replay_item){.part = walk->segment,
        .offset = walk->offset,
        .bytes_done = walk->bytes_done,
        .bytes_total = walk->bytes_total};
    switch (walk->event) {
    case JOURNAL_WALK_SEGMENT: return show_segment(self, walk);
    case JOURNAL_WALK_BATCH: return show_batch(self, walk);
    case JOURNAL_WALK_FRAME: return show_frame(self, walk);
    case JOURNAL_WALK_TAIL: return show(self, REPLAY_TAIL);
    case JOURNAL_WALK_DAMAGE: break;
    }
    change_clear(self);
    return show_damage(self, walk->text, true);
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Reads `reached`, before the batches: later ones may be written meanwhile. */
static void read_reached(struct journal_verifier *self, const unsigned char chain_id[16])
{
    char path[PATH_BYTES_MAX + 16];
    char text[128];
    (void)snprintf(path, sizeof path, "%s/reached", self->path);
    const char *wrong = witness_load(self->io, path, chain_id, &self->reached);
    if (wrong != NULL) {
        (void)snprintf(text, sizeof text, "the file 'reached' is damaged: %s", wrong);
        (void)show_damage(self, text, false);
    }
}

/* Only this shows that a whole last batch is gone. */
static void check_reached(struct journal_verifier *self)
{
    char text[160];
    const struct mark *mark = &self->reached;
    self->item = (struct replay_item){.part = 0};
    if (self->batch_next < mark->batch || self->seq < mark->seq) {
        (void)snprintf(text, sizeof text,
            "the journal ends before batch %" PRIu64 ", entry %" PRIu64
            ", where it ended when it was closed",
            mark->batch, mark->seq);
        (void)show_damage(self, text, true);
    } else if (self->differs) {
        (void)snprintf(text, sizeof text,
            "entry %" PRIu64 " is not the one that was there when it was closed", mark->seq);
        (void)show_damage(self, text, false);
    }
}

/* ---- the identity ------------------------------------------------------------------------- */

static enum status read_path(
    struct journal_verifier *self, const char *path_and_options, struct err *err)
{
    size_t length = strcspn(path_and_options, "?");
    if (length == 0 || length >= sizeof self->path - 64) {
        return err_set(err, E_INVALID, "'%s' does not name a journal", path_and_options);
    }
    memcpy(self->path, path_and_options, length);
    return OK;
}

static enum status show_identity(struct journal_verifier *self, struct err *err)
{
    struct identity identity = {0};
    const char *wrong = NULL;
    struct path path;
    char text[128];
    int fd = identity_open(self->io, self->path, &path);
    if (fd < 0) {
        return err_errno(err, E_UNAVAILABLE, -fd, "cannot open store '%s'", self->path);
    }
    int failed = identity_read(self->io, fd, &identity, &wrong);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot read '%s'", path.text);
    }
    if (wrong != NULL) {
        (void)snprintf(text, sizeof text, "the identity file is damaged: %s", wrong);
        (void)show_damage(self, text, false);
    }
    if (!self->stopped) {
        self->item.identity = wrong == NULL ? &identity.keys : NULL;
        self->item.inherits = wrong == NULL && !bytes_zero(&identity.origin, DIGEST_BYTES);
        (void)show(self, REPLAY_IDENTITY);
    }
    if (wrong == NULL && !self->stopped) {
        memcpy(self->chain_id, identity.keys.chain_id, sizeof self->chain_id);
        read_reached(self, identity.keys.chain_id);
    }
    mem_wipe(&identity, sizeof identity);
    return OK;
}

enum status journal_verify(const char *path_and_options, const struct store_options *options,
    replay_visit visit, void *context, struct err *err)
{
    struct journal_verifier self = {
        .io = options->io == NULL ? &io_system : options->io, .visit = visit, .context = context};
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    enum status status = read_path(&self, path_and_options, err);
    if (status == OK) {
        status = show_identity(&self, err);
    }
    if (status == OK && !self.stopped) {
        status = journal_walk(self.path, self.io, mem, on_walk, &self, err);
    }
    if (status == OK && !self.stopped) {
        check_reached(&self);
    }
    return status;
}

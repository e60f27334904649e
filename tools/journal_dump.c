/*
 * journal-dump: the frames of a data directory in readable form.
 *
 *   journal-dump PATH
 *
 * One line a segment, batch and frame, with its place; what does not check out is a line that
 * begins with DAMAGE. Takes no lock and changes nothing. Shows keys and entries, never bodies. Exit
 * 0: all fine; 1: damage was found; 2: could not look; 64: usage.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "store/journal/journal.h"

struct dump {
    unsigned damages;
};

static void dump_record(const struct frame *frame, const char *what)
{
    struct record record;
    struct err err = {0};
    char id[OP_ID_TEXT_BYTES];
    char time[TEXT_TIME_BYTES];
    if (record_decode(frame->payload, &record, &err) != OK) {
        return; /* the walk reports that as damage */
    }
    (void)printf("    %8" PRIu64 "  %s %s %s version %" PRIu64 " fence %" PRIu64
                 " attempt %u key %.*s/%.*s/%.*s/%.*s updated %s\n",
        frame->offset, what, op_id_put(id, &record.operation_id), record_status_name(record.status),
        record.version, record.fence, record.attempt, SLICE_ARGS(record.key.tenant),
        SLICE_ARGS(record.key.scope), SLICE_ARGS(record.key.principal), SLICE_ARGS(record.key.key),
        text_put_time(time, record.updated_ms));
}

static void dump_entry(const struct frame *frame)
{
    struct entry entry;
    char hash[65];
    if (entry_decode(frame->payload, &entry) == NULL) {
        (void)printf("    %8" PRIu64 "  %s %" PRIu64 " %s %.*s\n", frame->offset,
            entry.kind == ENTRY_EVIDENCE ? "entry" : "note", entry.seq,
            text_put_hex(hash, entry.hash.bytes, sizeof entry.hash.bytes), SLICE_ARGS(entry.bytes));
    }
}

static void dump_frame(const struct frame *frame)
{
    char hex[65];
    switch (frame->kind) {
    case FRAME_RECORD: dump_record(frame, "record"); break;
    case FRAME_MOVED: dump_record(frame, "moved"); break;
    case FRAME_ENTRY: dump_entry(frame); break;
    case FRAME_TOUCH:
        (void)printf("    %8" PRIu64 "  touch %s\n", frame->offset,
            text_put_hex(hex, frame->payload.data, sizeof(struct digest)));
        break;
    case FRAME_REQUEST:
    case FRAME_OUTCOME:
    case FRAME_ERASED:
        (void)printf("    %8" PRIu64 "  %s body %s of %zu bytes\n", frame->offset,
            frame->kind == FRAME_ERASED    ? "erased"
            : frame->kind == FRAME_REQUEST ? "request"
                                           : "outcome",
            text_put_hex(hex, frame->payload.data, sizeof(struct digest)),
            frame->payload.len - sizeof(struct digest));
        break;
    }
}

static bool dump_visit(void *context, const struct journal_walk *walk)
{
    struct dump *dump = context;
    char time[TEXT_TIME_BYTES];
    switch (walk->event) {
    case JOURNAL_WALK_SEGMENT:
        (void)printf("segment %" PRIu64, walk->segment);
        if (walk->header != NULL) {
            (void)printf(" of %" PRIu64 " bytes%s, batches from %" PRIu64
                         ", entries behind %" PRIu64,
                walk->header->size, walk->header->squeezed ? ", squeezed" : "",
                walk->header->mark.batch, walk->header->mark.seq);
        }
        (void)putchar('\n');
        break;
    case JOURNAL_WALK_BATCH:
        (void)printf("  %8" PRIu64 "  batch %" PRIu64 ": %u frames, %u of %u bytes, fence %" PRIu64
                     ", %s\n",
            walk->offset, walk->batch->number, walk->batch->frames, walk->batch->content,
            walk->batch->length, walk->batch->fence,
            text_put_time(time, walk->batch->moment.time_ms));
        break;
    case JOURNAL_WALK_FRAME: dump_frame(walk->frame); break;
    case JOURNAL_WALK_DAMAGE:
        (void)printf("DAMAGE segment %" PRIu64 " offset %" PRIu64 ": %s\n", walk->segment,
            walk->offset, walk->text);
        dump->damages++;
        break;
    case JOURNAL_WALK_TAIL:
        (void)printf("torn tail, never acknowledged: segment %" PRIu64 " offset %" PRIu64 ": %s\n",
            walk->segment, walk->offset, walk->text);
        break;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: journal-dump PATH\n");
        return 64;
    }
    struct dump dump = {0};
    struct err err = {0};
    if (journal_walk(argv[1], NULL, NULL, dump_visit, &dump, &err) != OK) {
        (void)fprintf(stderr, "journal-dump: %s\n", err.text);
        return 2;
    }
    return dump.damages > 0 ? 1 : 0;
}

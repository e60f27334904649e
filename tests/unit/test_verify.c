/*
 * Verifying a journal: what is fine is found fine, and whatever was done to it is found. Frames are
 * changed with right checksums (forge.h), so that each check is met by something only it can see.
 *
 * It is past 800 lines because each way to damage a journal is a test of its own.
 */
#include <stdlib.h>
#include <unistd.h>

#include "check_c.h"
#include "evidence/verify.h"
#include "forge.h"
#include "sanitized.h"
#include "workload.h"

struct world {
    char directory[64]; /* of the journal, inside of a temporary one */
    char url[128];
    struct store_identity identity;
    struct chain chain; /* where it ends */
    struct buf note;    /* a copy of the last checkpoint, as kept elsewhere */
    struct forge forge; /* the first segment */
    struct verify_result result;
    struct err err;
};

static void open_store(struct world *world, const char *options, struct store **ret_store)
{
    char url[160];
    (void)snprintf(url, sizeof url, "%s?background=off%s", world->url, options);
    struct store_options store_options = {.clock = &workload_clock};
    if (store_open(url, &store_options, ret_store, &world->err) != OK) {
        print_error("%s\n", world->err.text);
        fail();
    }
}

static void build(struct world *world, const char *options, int steps)
{
    struct store *store;
    struct workload *workload = calloc(1, sizeof *workload);
    assert_non_null(workload);
    open_store(world, options, &store);
    workload_init(workload, store, 11);
    world->identity = workload->identity;
    for (int i = 0; i < steps; i++) {
        workload_step(workload);
        if (i % 8 == 7) {
            buf_clear(&world->note);
            workload_checkpoint(workload, &world->note);
        }
    }
    world->chain = workload->cycle.chain;
    workload_release(workload);
    free(workload);
    assert_int_equal(store->ops->close(store, &world->err), OK);
}

static int start(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    (void)snprintf(world->directory, sizeof world->directory, "/tmp/once-verify-XXXXXX");
    assert_non_null(mkdtemp(world->directory));
    (void)snprintf(world->directory + strlen(world->directory), 8, "/data");
    (void)snprintf(world->url, sizeof world->url, "journal:%s", world->directory);
    buf_init(&world->note, &mem_libc, 4096);
    *state = world;
    return 0;
}

/* Made once and copied for every test: its flushes are what takes the time. */
static struct world *original;

static int make_original(void **state)
{
    (void)start(state);
    original = *state;
    build(original, "", 64);
    return 0;
}

static void reached_put(const struct world *world)
{
    char command[256];
    (void)snprintf(
        command, sizeof command, "cp %s/reached %s/", original->directory, world->directory);
    assert_int_equal(system(command), 0);
}

/* Without `reached`: who forges a journal removes it. */
static int set_up(void **state)
{
    char command[256];
    (void)start(state);
    struct world *world = *state;
    (void)snprintf(command, sizeof command, "cp -r %s %s && rm %s/reached", original->directory,
        world->directory, world->directory);
    assert_int_equal(system(command), 0);
    world->identity = original->identity;
    world->chain = original->chain;
    buf_slice(&world->note, buf_view(&original->note));
    forge_load(&world->forge, world->directory, 1);
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];
    (void)snprintf(
        command, sizeof command, "rm -r %.*s", (int)strlen(world->directory) - 5, world->directory);
    assert_int_equal(system(command), 0);
    if (world->forge.arena.mem != NULL) {
        forge_release(&world->forge);
    }
    buf_release(&world->note);
    free(world);
    return 0;
}

static uint64_t damages(struct world *world, bool redecide, struct slice checkpoint)
{
    struct verify_options options = {
        .url = world->url, .redecide = redecide, .checkpoint = checkpoint};
    enum status status = verify_run(&options, &world->result, &world->err);
    if (status != OK) {
        print_error("%s\n", world->err.text);
    }
    assert_int_equal(status, OK);
    return world->result.damage_count;
}

/* Whether one of the damages found says this. */
static bool says(const struct world *world, const char *text)
{
    for (size_t i = 0; i < world->result.damage_count && i < VERIFY_DAMAGES_MAX; i++) {
        if (strstr(world->result.damages[i].what, text) != NULL) {
            return true;
        }
    }
    for (size_t i = 0; i < world->result.damage_count && i < 4; i++) {
        print_error("found: %s\n", world->result.damages[i].what);
    }
    return false;
}

static void print_damages(const struct world *world)
{
    for (size_t i = 0; i < world->result.damage_count && i < 8; i++) {
        const struct verify_damage *damage = &world->result.damages[i];
        print_error("segment %llu offset %llu entry %llu: %s\n",
            (unsigned long long)damage->segment, (unsigned long long)damage->offset,
            (unsigned long long)damage->seq, damage->what);
    }
}

static void assert_fine(struct world *world, bool redecide)
{
    if (damages(world, redecide, SLICE_EMPTY) != 0) {
        print_damages(world);
    }
    assert_int_equal(world->result.damage_count, 0);
}

static void what_the_engine_wrote_is_fine(void **state)
{
    struct world *world = *state;
    const struct verify_result *result = &world->result;
    assert_fine(world, true);
    assert_int_equal(damages(world, true, buf_view(&world->note)), 0);
    assert_true(result->outside_compared);
    assert_int_equal(result->entries, world->chain.seq);
    assert_int_equal(result->first_seq, 1);
    assert_int_equal(result->last_seq, world->chain.seq);
    assert_int_equal(result->good_seq, world->chain.seq);
    assert_memory_equal(result->last_hash.bytes, world->chain.hash.bytes, 32);
    assert_string_equal(result->chain_id, world->chain.chain_id);
    assert_int_equal(result->checkpoints, 8);
    assert_int_equal(result->last_checkpoint_seq, world->chain.seq);
    assert_int_equal(result->redecided, world->chain.seq);
    assert_int_equal(result->not_redecidable, 0);
    assert_int_equal(result->good_batch, result->batches);
    assert_true(result->records > 30 && result->bodies > 10 && result->bytes > 0);
    assert_false(result->torn_tail);
}

static void flip(const char *path, uint64_t at, int bit)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte = (unsigned char)(byte ^ (1 << bit));
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(close(fd), 0);
}

static void a_flipped_bit_anywhere_in_a_segment_is_found(void **state)
{
    struct world *world = *state;
    /* All of them would take hours under sanitizers. The uneven step meets every bit of a byte. */
    uint64_t wanted = getenv("ONCE_TEST_LONG") != NULL ? 30000 : IS_SANITIZED ? 250 : 700;
    uint64_t bits = world->forge.end * 8;
    uint64_t step = bits / wanted + 1;
    for (uint64_t bit = 0; bit < bits; bit += step + bit % 7) {
        flip(world->forge.path, bit / 8, (int)(bit % 8));
        if (damages(world, false, SLICE_EMPTY) == 0) {
            print_error(
                "byte %llu, bit %llu\n", (unsigned long long)bit / 8, (unsigned long long)bit % 8);
        }
        assert_true(world->result.damage_count > 0);
        assert_true(world->result.good_batch < world->forge.batch_count);
        flip(world->forge.path, bit / 8, (int)(bit % 8));
    }
    assert_fine(world, false);
}

static void every_flipped_bit_of_the_identity_is_found(void **state)
{
    struct world *world = *state;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/identity", world->directory);
    for (uint64_t at = 0; at < IDENTITY_BYTES; at++) {
        flip(path, at, (int)(at % 8));
        assert_true(damages(world, false, SLICE_EMPTY) > 0);
        flip(path, at, (int)(at % 8));
    }
    assert_fine(world, false);
}

static void a_dropped_entry_is_found(void **state)
{
    struct world *world = *state;
    size_t at = forge_find(&world->forge, FRAME_ENTRY, 20);
    forge_drop(&world->forge, at);
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "entry 22 stands where 21 belongs"));
    assert_int_equal(world->result.good_seq, 20);
    assert_true(world->result.damages[0].segment == 1 && world->result.damages[0].offset > 0);
}

static void a_doubled_entry_is_found(void **state)
{
    struct world *world = *state;
    forge_double(&world->forge, forge_find(&world->forge, FRAME_ENTRY, 20));
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "entry 21 stands where 22 belongs"));
}

static void swapped_entries_are_found(void **state)
{
    struct world *world = *state;
    forge_swap(&world->forge, forge_find(&world->forge, FRAME_ENTRY, 20),
        forge_find(&world->forge, FRAME_ENTRY, 21));
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "entry 22 stands where 21 belongs"));
}

static void an_inserted_entry_is_found(void **state)
{
    struct world *world = *state;
    size_t from = forge_find(&world->forge, FRAME_ENTRY, 3);
    size_t at = forge_find(&world->forge, FRAME_ENTRY, 30);
    struct forge_frame copy = world->forge.frames[from];
    copy.batch = world->forge.frames[at].batch;
    forge_double(&world->forge, at);
    world->forge.frames[at + 1] = copy;
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "entry 4 stands where 32 belongs"));
}

static void a_changed_entry_breaks_the_chain(void **state)
{
    struct world *world = *state;
    assert_true(forge_replace(&world->forge, "\"actor\":\"alice\"", "\"actor\":\"malic\""));
    forge_save(&world->forge);
    assert_int_equal(damages(world, true, SLICE_EMPTY), 1);
    assert_true(says(world, "the chain is broken"));
}

static void a_changed_entry_chained_anew_is_found_by_the_checkpoint(void **state)
{
    struct world *world = *state;
    assert_true(forge_replace(&world->forge, "\"actor\":\"alice\"", "\"actor\":\"malic\""));
    forge_rechain(&world->forge, NULL);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, "is not about the chain"));
}

static void a_history_signed_anew_is_found_by_the_checkpoint_kept_elsewhere(void **state)
{
    struct world *world = *state;
    assert_true(forge_replace(&world->forge, "\"actor\":\"alice\"", "\"actor\":\"malic\""));
    forge_rechain(&world->forge, &world->identity);
    forge_save(&world->forge);
    assert_fine(world, true);
    assert_int_equal(damages(world, false, buf_view(&world->note)), 1);
    assert_true(says(world, "the external checkpoint has a different hash"));
    assert_int_equal(world->result.good_seq, 0);
}

/* Changes that leave every entry readable, with right hashes and signatures. */
static const struct {
    const char *from;
    const char *to;
} wrong_decisions[] = {
    {"\"request\":\"begin\",\"rule\":\"B8\"", "\"request\":\"begin\",\"rule\":\"B3\""},
    {"\"rule\":\"H2\"", "\"rule\":\"H1\""},
    {"\"lease_ms\":100,", "\"lease_ms\":99,"},
    {"\"executed\":false", "\"executed\":true"},
    {"\"type\":\"observation.emitted\"", "\"type\":\"execution.executed\""},
    {"\"retry_failed\":true,\"rule\":\"B7\"", "\"rule\":\"B7\""},
    {"\"decision\":\"stale_fence\"", "\"decision\":\"not_found\""},
};

static void a_wrong_decision_with_right_hashes_is_found_by_redecide_only(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < sizeof wrong_decisions / sizeof *wrong_decisions; i++) {
        forge_release(&world->forge);
        forge_load(&world->forge, world->directory, 1);
        const char *from = wrong_decisions[i].from;
        const char *to = wrong_decisions[i].to;
        if (!forge_replace(&world->forge, from, to)) {
            print_error("no entry has %s\n", from);
            fail();
        }
        forge_rechain(&world->forge, &world->identity);
        struct buf before = world->forge.file;
        forge_save(&world->forge);
        assert_fine(world, false);
        if (damages(world, true, SLICE_EMPTY) == 0) {
            print_error("not found: %s\n", from);
        }
        assert_true(world->result.damage_count > 0);
        assert_true(world->result.damages[0].seq > 0);
        forge_write(world->forge.path, buf_view(&before));
    }
}

static void a_journal_that_was_cut_is_older_than_its_checkpoint(void **state)
{
    struct world *world = *state;
    world->forge.batch_count -= 20;
    while (world->forge.count > 0 &&
           world->forge.frames[world->forge.count - 1].batch >= world->forge.batch_count) {
        world->forge.count--;
    }
    forge_save(&world->forge);
    assert_fine(world, true);
    assert_true(world->result.last_seq < world->chain.seq);
    uint64_t last = world->result.last_seq;
    assert_int_equal(damages(world, false, buf_view(&world->note)), 1);
    assert_true(says(world, "older than the checkpoint"));
    assert_int_equal(world->result.good_seq, last);
}

/* The forger of the tests above knew nothing of `reached`, or the end was lost by the disk. */
static void a_journal_that_was_cut_is_shorter_than_it_was_when_closed(void **state)
{
    struct world *world = *state;
    reached_put(world);
    assert_fine(world, true);
    world->forge.batch_count--;
    while (world->forge.frames[world->forge.count - 1].batch >= world->forge.batch_count) {
        world->forge.count--;
    }
    forge_save(&world->forge);
    assert_int_equal(damages(world, false, SLICE_EMPTY), 1);
    assert_true(says(world, "ends before"));
}

static void a_history_chained_anew_is_not_the_one_that_was_closed(void **state)
{
    struct world *world = *state;
    reached_put(world);
    assert_true(forge_replace(&world->forge, "\"actor\":\"alice\"", "\"actor\":\"malic\""));
    forge_rechain(&world->forge, &world->identity);
    forge_save(&world->forge);
    assert_int_equal(damages(world, false, SLICE_EMPTY), 1);
    assert_true(says(world, "when it was closed"));
}

static void every_flipped_bit_of_reached_is_found(void **state)
{
    struct world *world = *state;
    enum { REACHED_BYTES = 128 };
    char path[128];
    reached_put(world);
    (void)snprintf(path, sizeof path, "%s/reached", world->directory);
    for (uint64_t at = 0; at < REACHED_BYTES; at++) {
        flip(path, at, (int)(at % 8));
        assert_true(damages(world, false, SLICE_EMPTY) > 0);
        flip(path, at, (int)(at % 8));
    }
    assert_fine(world, false);
}

static void a_dropped_batch_is_found(void **state)
{
    struct world *world = *state;
    struct forge *forge = &world->forge;
    for (size_t i = 0; i < forge->count;) {
        if (forge->frames[i].batch == 10) {
            forge_drop(forge, i);
        } else {
            forge->frames[i].batch -= forge->frames[i].batch > 10;
            i++;
        }
    }
    forge->batch_count--;
    memmove(forge->batches + 10, forge->batches + 11,
        (forge->batch_count - 10) * sizeof *forge->batches);
    forge_save(forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(world->result.good_batch == 10);
}

static void a_dropped_record_is_found(void **state)
{
    struct world *world = *state;
    size_t at = forge_find(&world->forge, FRAME_RECORD, 5);
    struct forge_frame record = world->forge.frames[at];
    forge_drop(&world->forge, at);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    forge_double(&world->forge, at);
    world->forge.frames[at] = record;
    forge_drop(&world->forge, forge_find(&world->forge, FRAME_RECORD, 0)); /* the first begin's */
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "the record of a grant is missing"));
}

static void a_dropped_or_swapped_body_is_found(void **state)
{
    struct world *world = *state;
    forge_drop(&world->forge, forge_find(&world->forge, FRAME_OUTCOME, 5));
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "the outcome's bytes are missing"));
    forge_write(world->forge.path, buf_view(&world->forge.file));
    forge_release(&world->forge);
    forge_load(&world->forge, world->directory, 1);
    size_t first = forge_find(&world->forge, FRAME_REQUEST, 0);
    size_t other = first;
    for (size_t i = 1;
         slice_equal(world->forge.frames[first].payload, world->forge.frames[other].payload); i++) {
        other = forge_find(&world->forge, FRAME_REQUEST, i);
    }
    forge_swap(&world->forge, first, other);
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "is not the one it names"));
}

static void a_changed_body_is_found(void **state)
{
    struct world *world = *state;
    size_t at = forge_find(&world->forge, FRAME_OUTCOME, 2);
    struct slice payload = world->forge.frames[at].payload;
    char *copy = arena_alloc(&world->forge.arena, payload.len);
    assert_non_null(copy);
    memcpy(copy, payload.data, payload.len);
    copy[payload.len - 1] ^= 1;
    world->forge.frames[at].payload = slice_of(copy, payload.len);
    forge_save(&world->forge);
    assert_int_equal(damages(world, true, SLICE_EMPTY), 1);
    assert_true(says(world, "does not have its digest"));
}

/* Change one record frame and leave everything else right. */
static void change_record(
    struct world *world, size_t nth, void (*change)(struct record *record), const char *text)
{
    size_t at = forge_find(&world->forge, FRAME_RECORD, nth);
    struct slice before = world->forge.frames[at].payload;
    struct record record;
    struct buf out;
    assert_int_equal(record_decode(before, &record, &world->err), OK);
    change(&record);
    buf_init(&out, &mem_libc, 1 << 20);
    record_encode(&record, &out);
    world->forge.frames[at].payload = buf_view(&out);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, text));
    world->forge.frames[at].payload = before;
    buf_release(&out);
}

static void another_fence(struct record *record)
{
    record->fence++;
}

static void another_operation(struct record *record)
{
    record->operation_id.bytes[3] ^= 1;
}

static void another_fingerprint(struct record *record)
{
    record->fingerprint.bytes[3] ^= 1;
}

static void another_key(struct record *record)
{
    record->key.key = SLICE_LIT("another");
}

static void another_version(struct record *record)
{
    record->version += 3;
}

static void a_longer_lease(struct record *record)
{
    record->lease_expires_ms += 1;
}

static void a_longer_window(struct record *record)
{
    record->window_ms += 1;
}

static void a_huge_fence(struct record *record)
{
    record->fence = UINT64_MAX;
}

static void another_place(struct record *record)
{
    record->request.place++;
}

static void a_changed_record_is_found(void **state)
{
    struct world *world = *state;
    /* Record 0 is that of the first begin: granted, in progress. */
    change_record(world, 0, another_fence, "does not match the entry");
    change_record(world, 0, another_operation, "to a different operation");
    change_record(world, 0, another_fingerprint, "fingerprint");
    change_record(world, 0, another_key, "does not have its hash");
    change_record(world, 0, a_longer_lease, "lease_expires_at");
    change_record(world, 0, a_longer_window, "the window");
    change_record(world, 0, a_huge_fence, "is the highest given out");
    /* A later one of the same key, whose version goes on from what was before. */
    size_t nth = 1;
    struct record record;
    for (;; nth++) {
        size_t at = forge_find(&world->forge, FRAME_RECORD, nth);
        assert_int_equal(record_decode(world->forge.frames[at].payload, &record, &world->err), OK);
        if (record.version > 1 && record.status != RECORD_IN_PROGRESS) {
            break;
        }
    }
    change_record(world, nth, another_version, "version");
    for (nth = 0;; nth++) {
        size_t at = forge_find(&world->forge, FRAME_RECORD, nth);
        assert_int_equal(record_decode(world->forge.frames[at].payload, &record, &world->err), OK);
        if (record.version == 1 && record.request.bytes > 0) {
            break;
        }
    }
    change_record(world, nth, another_place, "is not the one it names");
}

static void a_fence_that_is_granted_twice_is_found(void **state)
{
    struct world *world = *state;
    struct record record;
    char from[64];
    size_t at;
    size_t nth = 1;
    do {
        at = forge_find(&world->forge, FRAME_RECORD, nth++);
        assert_int_equal(record_decode(world->forge.frames[at].payload, &record, &world->err), OK);
    } while (record.version != 1 || record.fence == 1);
    (void)snprintf(from, sizeof from, "\"fence\":%llu,\"fence_next\":%llu,",
        (unsigned long long)record.fence, (unsigned long long)record.fence);
    assert_true(forge_replace(&world->forge, from, "\"fence\":1,\"fence_next\":1,"));
    struct buf out;
    buf_init(&out, &mem_libc, 1 << 20);
    record.fence = 1;
    record_encode(&record, &out);
    world->forge.frames[at].payload = buf_view(&out);
    forge_rechain(&world->forge, &world->identity);
    forge_save(&world->forge);
    buf_release(&out);
    assert_int_equal(damages(world, false, SLICE_EMPTY), 1);
    assert_true(says(world, "fence 1 is granted after"));
    assert_true(damages(world, true, SLICE_EMPTY) > 1);
    assert_true(says(world, "is not greater than"));
}

static void a_changed_count_of_duplicates_is_found(void **state)
{
    struct world *world = *state;
    size_t at = forge_find(&world->forge, FRAME_TOUCH, 0);
    char other[32] = "not the hash of any key, really";
    world->forge.frames[at].payload = slice_of(other, 32);
    forge_save(&world->forge);
    assert_true(damages(world, false, SLICE_EMPTY) > 0);
    assert_true(says(world, "for a key other than"));
    forge_drop(&world->forge, at);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, "was not counted"));
}

static void frames_that_say_otherwise_than_their_entry_are_found(void **state)
{
    struct world *world = *state;
    size_t at = forge_find(&world->forge, FRAME_ENTRY, 12);
    struct slice before = world->forge.frames[at].payload;
    struct entry entry;
    assert_null(entry_decode(before, &entry));
    struct entry other = entry;
    other.operation_id.bytes[0] ^= 1;
    forge_entry(&world->forge, at, &other);
    forge_save(&world->forge);
    assert_int_equal(damages(world, true, SLICE_EMPTY), 1);
    assert_true(says(world, "its frame name different operations"));
    other = entry;
    other.tenant = SLICE_LIT("other");
    forge_entry(&world->forge, at, &other);
    forge_save(&world->forge);
    assert_int_equal(damages(world, true, SLICE_EMPTY), 1);
    assert_true(says(world, "of a different tenant than its frame"));
    other = entry;
    other.time_ms--;
    forge_entry(&world->forge, at, &other);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, "not the one its frame says"));
    char from[64], to[64];
    (void)snprintf(from, sizeof from, "\"entry_id\":\"ent_%.8s_13\"", world->chain.chain_id);
    (void)snprintf(to, sizeof to, "\"entry_id\":\"ent_%.8s_14\"", world->chain.chain_id);
    forge_entry(&world->forge, at, &entry);
    assert_true(forge_replace(&world->forge, from, to));
    assert_true(forge_replace(&world->forge, "\"seq\":13,", "\"seq\":14,"));
    forge_rechain(&world->forge, &world->identity);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, "the entry says seq 14, its frame 13"));
    other = entry;
    other.hash.bytes[31] ^= 1;
    forge_entry(&world->forge, at, &other);
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, "the chain is broken at entry 13"));
}

/* As the first releases wrote it: the tenant is in the entry's own bytes alone. */
static void forge_old_entry(struct forge *forge, size_t at)
{
    struct slice *payload = &forge->frames[at].payload;
    struct buf out;
    size_t tenant_bytes = (unsigned char)payload->data[2];
    buf_init(&out, &mem_libc, 1 << 20);
    buf_append(&out, payload->data, ENTRY_HEADER_BYTES);
    memset(out.data + 1, 0, 7);
    buf_append(&out, payload->data + ENTRY_HEADER_BYTES + tenant_bytes,
        payload->len - ENTRY_HEADER_BYTES - tenant_bytes);
    assert_int_equal(arena_copy(&forge->arena, buf_view(&out), payload), OK);
    buf_release(&out);
}

struct tenants {
    uint64_t acme;
    uint64_t others;
};

static bool count_tenants(void *context, const struct entry *entry)
{
    struct tenants *tenants = context;
    bool acme = slice_is(entry->tenant, "acme");
    assert_true(acme || slice_is(entry->tenant, "other") || entry->tenant.len == 0);
    tenants->acme += acme;
    tenants->others += !acme;
    return true;
}

static struct tenants tenants_of(struct world *world, struct slice tenant)
{
    struct store *store;
    struct entry_range range = {.tenant = tenant};
    struct tenants tenants = {0};
    open_store(world, "", &store);
    assert_int_equal(store->ops->entries(store, &range, count_tenants, &tenants, &world->err), OK);
    assert_int_equal(store->ops->close(store, &world->err), OK);
    return tenants;
}

static void entries_without_a_tenant_in_their_frames_are_read_and_fine(void **state)
{
    struct world *world = *state;
    struct tenants before = tenants_of(world, SLICE_EMPTY);
    assert_true(before.acme > 0 && before.others > 0);
    for (size_t i = 0, at; (at = forge_find(&world->forge, FRAME_ENTRY, i)) != SIZE_MAX; i++) {
        forge_old_entry(&world->forge, at);
    }
    forge_save(&world->forge);
    assert_fine(world, true);
    struct tenants after = tenants_of(world, SLICE_EMPTY);
    assert_int_equal(after.acme, before.acme);
    struct tenants only = tenants_of(world, SLICE_LIT("acme"));
    assert_int_equal(only.acme, before.acme);
    assert_int_equal(only.others, 0); /* P9 */
}

static void an_entry_that_is_not_canonical_is_found(void **state)
{
    struct world *world = *state;
    static const char *const changes[][2] = {
        {"{\"actor\":", "{ \"actor\":"},
        {"\"attempt\":1,", "\"attempt\":1.0,"},
        {"\"scope\":\"charge\"", "\"scope\":\"\\u0063harge\""},
        {"\"principal\":\"p1\",\"scope\":\"charge\"", "\"scope\":\"charge\",\"principal\":\"p1\""},
        {"\"entry_id\":\"ent_", "\"entry_id\":\"ant_"},
        {"\"occurred_at\":\"2026", "\"occurred_at\":\"2025"},
        {"\"rule\":\"B1\"", "\"rule\":7"},
        {"\"chain_id\":\"", "\"chain_id\":\"0"},
        {"\"fence_next\":1,", "\"fence_next\":9007199254740993,"},
        {"\"request\":\"begin\"", "\"request\":\"start\""},
        {"\"status\":\"executed\"}", "\"status\":\"in_progress\"}"},
        {"\"v\":2}", "\"v\":2}}"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        forge_release(&world->forge);
        forge_load(&world->forge, world->directory, 1);
        assert_true(forge_replace(&world->forge, changes[i][0], changes[i][1]));
        forge_rechain(&world->forge, &world->identity);
        struct buf before = world->forge.file;
        forge_save(&world->forge);
        if (damages(world, false, SLICE_EMPTY) == 0) {
            print_error("not found: %s\n", changes[i][1]);
        }
        assert_true(world->result.damage_count > 0);
        forge_write(world->forge.path, buf_view(&before));
    }
}

static void an_outside_checkpoint_that_is_none_cannot_be_checked(void **state)
{
    struct world *world = *state;
    struct verify_options options = {.url = world->url, .checkpoint = SLICE_LIT("hello\n")};
    assert_int_equal(verify_run(&options, &world->result, &world->err), E_INVALID);
    /* One that is signed by somebody else is damage: a journal was put in the place of another. */
    struct store_identity other = world->identity;
    struct buf note;
    struct entry entry;
    other.signing_seed[5] ^= 1;
    buf_init(&note, &mem_libc, 4096);
    assert_int_equal(
        checkpoint_compose(&world->chain, &other, 1794770607000, &note, &entry, NULL), OK);
    assert_int_equal(damages(world, false, buf_view(&note)), 1);
    assert_true(says(world, "a different key"));
    assert_int_equal(world->result.good_seq, world->chain.seq);
    buf_release(&note);
}

static void a_key_from_outside_is_believed_instead_of_the_journals_own(void **state)
{
    struct world *world = *state;
    struct checkpoint_key key;
    struct store_identity other = world->identity;
    char text[CHECKPOINT_KEY_BYTES_MAX];
    other.signing_seed[5] ^= 1;
    assert_int_equal(checkpoint_key_of(&other, &key, NULL), OK);
    struct verify_options options = {
        .url = world->url, .public_key = slice_str(checkpoint_key_put(text, &key))};
    assert_int_equal(verify_run(&options, &world->result, &world->err), OK);
    assert_int_equal(world->result.damage_count, 8);
    assert_true(says(world, "a different key"));
    options.public_key = SLICE_LIT("not a key");
    assert_int_equal(verify_run(&options, &world->result, &world->err), E_INVALID);
}

static void a_journal_that_is_not_there_cannot_be_checked(void **state)
{
    struct world *world = *state;
    struct verify_options options = {.url = "journal:/nowhere/at/all"};
    world->result.entries = 77;
    assert_int_equal(verify_run(&options, &world->result, &world->err), E_UNAVAILABLE);
    options.url = "journal:";
    assert_int_equal(verify_run(&options, &world->result, &world->err), E_INVALID);
    options.url = NULL;
    assert_int_equal(verify_run(&options, &world->result, &world->err), E_INVALID);
    assert_int_equal(world->result.entries, 77);
}

struct progress_seen {
    int calls;
    int stop_at; /* the call that says stop; 0: none */
    uint64_t bytes;
    uint64_t entries;
};

static bool on_progress(void *context, const struct verify_progress *progress)
{
    struct progress_seen *seen = context;
    assert_true(progress->bytes_done <= progress->bytes_total);
    assert_true(progress->bytes_done >= seen->bytes && progress->entries >= seen->entries);
    seen->bytes = progress->bytes_done;
    seen->entries = progress->entries;
    return ++seen->calls != seen->stop_at;
}

static void progress_is_told_and_can_stop_it(void **state)
{
    struct world *world = *state;
    struct progress_seen seen = {0};
    struct verify_options options = {.url = world->url, .progress = on_progress, .context = &seen};
    assert_int_equal(verify_run(&options, &world->result, &world->err), OK);
    assert_true(seen.calls > 3);
    assert_int_equal(seen.entries, world->chain.seq);
    assert_int_equal(seen.bytes, world->result.bytes);
    seen = (struct progress_seen){.stop_at = 2};
    assert_int_equal(verify_run(&options, &world->result, &world->err), E_UNAVAILABLE);
    assert_int_equal(seen.calls, 2);
}

/* Bytes in frames changed at random, checksums right: whatever it says, it must not fall over. */
static void hostile_frames_are_survived(void **state)
{
    struct world *world = *state;
    int rounds = getenv("ONCE_TEST_LONG") != NULL ? 800 : IS_SANITIZED ? 75 : 150;
    struct workload dice = {.random = 99};
    for (int round = 0; round < rounds; round++) {
        size_t at = (size_t)workload_random(&dice, world->forge.count);
        struct slice before = world->forge.frames[at].payload;
        char *copy = malloc(before.len + 1);
        assert_non_null(copy);
        memcpy(copy, before.data, before.len);
        size_t len = before.len - (size_t)(workload_random(&dice, 8) == 0);
        for (uint64_t n = workload_random(&dice, 4); n > 0 && len > 0; n--) {
            copy[workload_random(&dice, len)] = (char)workload_random(&dice, 256);
        }
        world->forge.frames[at].payload = slice_of(copy, len);
        if (workload_random(&dice, 2) == 0) {
            forge_rechain(&world->forge, &world->identity);
        }
        forge_save(&world->forge);
        (void)damages(world, true, buf_view(&world->note));
        world->forge.frames[at].payload = before;
        free(copy);
    }
}

/* An allocator that fails the nth call. */
struct failing {
    struct mem mem;
    long left;
};

static void *failing_resize(void *context, void *pointer, size_t size)
{
    struct failing *failing = context;
    if (size > 0 && failing->left-- == 0) {
        return NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

static void every_failed_allocation_is_out_of_memory_and_nothing_worse(void **state)
{
    struct world *world = *state;
    struct failing failing;
    enum status status = E_NOMEM;
    for (long nth = 0; status == E_NOMEM; nth++) {
        failing = (struct failing){.mem = {failing_resize, &failing}, .left = nth};
        struct verify_options options = {.url = world->url, .redecide = true, .mem = &failing.mem};
        status = verify_run(&options, &world->result, &world->err);
        assert_true(nth < 10000);
    }
    assert_int_equal(status, OK);
    assert_int_equal(world->result.damage_count, 0);
}

static void a_journal_of_many_segments_is_checked_across_them(void **state)
{
    struct world *world = *state;
    char path[128];
    build(world, "&segment=64KiB", 120);
    assert_fine(world, true);
    assert_true(world->result.segments > 3);
    assert_int_equal(world->result.entries, world->chain.seq);
    /* One in the middle goes. */
    (void)snprintf(path, sizeof path, "%s/segment-%016x", world->directory, 3);
    assert_int_equal(unlink(path), 0);
    assert_true(damages(world, true, SLICE_EMPTY) > 0);
    assert_true(says(world, "missing"));
}

/* What squeezing does on purpose is no damage; a segment that is simply gone is (test_retention has
 * one that was archived as it should be). */
static void squeezed_segments_are_fine_and_a_missing_one_is_not(void **state)
{
    struct world *world = *state;
    char path[128];
    build(world, "&segment=64KiB", 120);
    assert_fine(world, true);
    uint64_t redecided = world->result.redecided;
    uint64_t bodies = world->result.bodies;
    for (uint64_t number = 1; number <= 2; number++) {
        forge_load(&world->forge, world->directory, number);
        for (size_t i = 0; i < world->forge.count;) {
            if (world->forge.frames[i].kind == FRAME_ENTRY) {
                i++;
            } else {
                forge_drop(&world->forge, i);
            }
        }
        world->forge.header.squeezed = true;
        forge_save(&world->forge);
        forge_release(&world->forge);
    }
    assert_fine(world, true);
    assert_int_equal(world->result.squeezed, 2);
    assert_true(world->result.bodies < bodies);
    assert_int_equal(world->result.redecided, redecided);
    (void)snprintf(path, sizeof path, "%s/segment-%016x", world->directory, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(damages(world, true, SLICE_EMPTY), 1);
    assert_non_null(strstr(world->result.damages[0].what, "no entry says that they were archived"));
    assert_true(world->result.first_seq > 1);
    assert_true(world->result.not_redecidable > 0);
    assert_int_equal(world->result.redecided + world->result.not_redecidable,
        world->chain.seq - world->result.first_seq + 1);
    /* A record in a segment that is not squeezed must be there. */
    forge_load(&world->forge, world->directory, 3);
    forge_drop(&world->forge, forge_find(&world->forge, FRAME_RECORD, 0));
    forge_save(&world->forge);
    assert_true(damages(world, true, SLICE_EMPTY) > 1);
}

#define VERIFY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERIFY_TEST(what_the_engine_wrote_is_fine),
        VERIFY_TEST(a_flipped_bit_anywhere_in_a_segment_is_found),
        VERIFY_TEST(every_flipped_bit_of_the_identity_is_found),
        VERIFY_TEST(a_dropped_entry_is_found),
        VERIFY_TEST(a_doubled_entry_is_found),
        VERIFY_TEST(swapped_entries_are_found),
        VERIFY_TEST(an_inserted_entry_is_found),
        VERIFY_TEST(a_changed_entry_breaks_the_chain),
        VERIFY_TEST(a_changed_entry_chained_anew_is_found_by_the_checkpoint),
        VERIFY_TEST(a_history_signed_anew_is_found_by_the_checkpoint_kept_elsewhere),
        VERIFY_TEST(a_wrong_decision_with_right_hashes_is_found_by_redecide_only),
        VERIFY_TEST(a_journal_that_was_cut_is_older_than_its_checkpoint),
        VERIFY_TEST(a_journal_that_was_cut_is_shorter_than_it_was_when_closed),
        VERIFY_TEST(a_history_chained_anew_is_not_the_one_that_was_closed),
        VERIFY_TEST(every_flipped_bit_of_reached_is_found),
        VERIFY_TEST(a_dropped_batch_is_found),
        VERIFY_TEST(a_dropped_record_is_found),
        VERIFY_TEST(a_dropped_or_swapped_body_is_found),
        VERIFY_TEST(a_changed_body_is_found),
        VERIFY_TEST(a_changed_record_is_found),
        VERIFY_TEST(a_fence_that_is_granted_twice_is_found),
        VERIFY_TEST(a_changed_count_of_duplicates_is_found),
        VERIFY_TEST(frames_that_say_otherwise_than_their_entry_are_found),
        VERIFY_TEST(entries_without_a_tenant_in_their_frames_are_read_and_fine),
        VERIFY_TEST(an_entry_that_is_not_canonical_is_found),
        VERIFY_TEST(an_outside_checkpoint_that_is_none_cannot_be_checked),
        VERIFY_TEST(a_key_from_outside_is_believed_instead_of_the_journals_own),
        VERIFY_TEST(a_journal_that_is_not_there_cannot_be_checked),
        VERIFY_TEST(progress_is_told_and_can_stop_it),
        VERIFY_TEST(hostile_frames_are_survived),
        VERIFY_TEST(every_failed_allocation_is_out_of_memory_and_nothing_worse),
        cmocka_unit_test_setup_teardown(
            a_journal_of_many_segments_is_checked_across_them, start, tear_down),
        cmocka_unit_test_setup_teardown(
            squeezed_segments_are_fine_and_a_missing_one_is_not, start, tear_down),
    };
    return cmocka_run_group_tests_name("verify", tests, make_original, tear_down);
}

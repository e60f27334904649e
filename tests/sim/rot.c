#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "evidence/verify.h"
#include "sim.h"
#include "store/journal/journal.h"

enum { SEGMENT_BYTES = 64 << 10, ROT_ROUNDS = 2, ROT_TRIES = 200 };

/* One bit that changed, and how it was. */
struct rot {
    const char *path;
    uint64_t offset;
    unsigned char before;
};

static void put_byte(const char *path, uint64_t offset, unsigned char byte)
{
    int fd = io_system.open(io_system.context, path, O_WRONLY, 0);
    ASSERT(fd >= 0);
    ASSERT(io_system.pwrite(io_system.context, fd, &byte, 1, offset) == 1);
    (void)io_system.close(io_system.context, fd);
}

/* How many bytes of the segment there are; 0 when it is not a segment that is still there. */
static size_t read_segment(const struct shaky_file *file, unsigned char ret_bytes[SEGMENT_BYTES])
{
    if (strstr(file->path, "/segment-") == NULL) {
        return 0;
    }
    int fd = io_system.open(io_system.context, file->path, O_RDONLY, 0);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = io_system.pread(io_system.context, fd, ret_bytes, SEGMENT_BYTES, 0);
    (void)io_system.close(io_system.context, fd);
    return got < 0 ? 0 : (size_t)got;
}

/* Anywhere in a segment, or near the end of what is written in it: there the last batch is, which
 * must not be taken for a torn one. */
static bool rot_some(struct sim *sim, struct rot *ret_rot)
{
    static unsigned char bytes[SEGMENT_BYTES];
    for (int tries = 0; tries < ROT_TRIES; tries++) {
        const struct shaky_file *file =
            &sim->shaky.files[prng_below(&sim->prng, sim->shaky.file_count)];
        size_t size = read_segment(file, bytes);
        size_t used = size;
        while (used > 0 && bytes[used - 1] == 0) {
            used--;
        }
        if (used == 0) {
            continue;
        }
        size_t near = prng_once_in(&sim->prng, 2) ? used : used < 600 ? used : 600;
        size_t offset = used - 1 - (size_t)prng_below(&sim->prng, near);
        if (bytes[offset] == 0) {
            continue;
        }
        *ret_rot = (struct rot){file->path, offset, bytes[offset]};
        put_byte(
            file->path, offset, (unsigned char)(bytes[offset] ^ 1 << prng_below(&sim->prng, 8)));
        sim_say(sim, "a bit rots in %s at %zu", file->path, offset);
        return true;
    }
    return false;
}

/* What `once verify --redecide` says of the journal: how much damage there is. */
static uint64_t verified(struct sim *sim, char ret_what[VERIFY_WHAT_BYTES_MAX])
{
    struct verify_result *result = mem_zalloc(&mem_libc, 1, sizeof *result);
    struct err err = {0};
    const struct verify_options options = {
        .url = sim->path, .redecide = true, .io = &sim->shaky.io};
    ASSERT(result != NULL);
    if (verify_run(&options, result, &err) != OK) {
        sim_violate(sim, "P10: the journal cannot be verified: %s", err.text);
    }
    uint64_t damage = result->damage_count;
    (void)snprintf(ret_what, VERIFY_WHAT_BYTES_MAX, "%s", result->damages[0].what);
    mem_free(&mem_libc, result);
    return damage;
}

/* P11: what is damaged is an error, and never just absent or cut off. */
static void rot_round(struct sim *sim)
{
    struct err err = {0};
    struct store *inner = NULL;
    struct rot rot;
    const struct store_options options = {.io = &sim->shaky.io, .clock = &sim->clock};
    char what[VERIFY_WHAT_BYTES_MAX];
    if (!rot_some(sim, &rot)) {
        return;
    }
    if (verified(sim, what) == 0) {
        sim_violate(sim, "P10: verify did not find a flipped bit at %" PRIu64, rot.offset);
    }
    enum status status = journal_open(sim->path, &options, &inner, &err);
    if (status == OK) {
        sim->store = inner;
        status = oracle_audit(sim);
        sim->shaky.dead = true;
        (void)inner->ops->close(inner, NULL);
        sim->shaky.dead = false;
    }
    if (status == E_CORRUPT) {
        sim_note(sim, SOMETIMES_ROT_FOUND);
    } else if (status != OK) {
        sim_violate(sim, "P11: rot is called %s: %s", status_name(status), err.text);
    }
    put_byte(rot.path, rot.offset, rot.before);
}

void rot_check(struct sim *sim)
{
    char what[VERIFY_WHAT_BYTES_MAX];
    (void)shaky_revive(&sim->shaky, &sim->prng, false);
    if (verified(sim, what) > 0) {
        sim_violate(sim, "P10: verify found damage where there is none: %s", what);
    }
    for (int i = 0; i < ROT_ROUNDS && sim->violation[0] == '\0'; i++) {
        rot_round(sim);
    }
}

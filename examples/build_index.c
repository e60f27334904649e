/*
 * build_index: build a search index once per INDEX_HASH, and let an alias point to it.
 *
 *     build_index DIRECTORY ALIAS REVISION INDEX_HASH TEXT [STORE]
 *
 * INDEX_HASH names everything that the index depends on: documents, model, settings. Many machines
 * may ask for the same hash; one of them builds, the others get its index. The swap reads the
 * sealed effect and nothing else, so the alias never points to an index that is half built or was
 * built by a process that lost its grant. REVISION orders the swaps: a late swap to an older
 * revision is refused.
 *
 * A crash during the build leaves a file that nothing refers to. A crash between the swap and its
 * seal leaves the alias as it should be. Both may run again, so both begin with ONCE_TAKEOVER.
 *
 * Only one process at a time has a journal open, so two swaps cannot overlap here. Over a shared
 * store they can: then whatever holds the alias must refuse a fence smaller than the last it saw.
 */
#define _POSIX_C_SOURCE 200809L /* fileno, fsync, symlink */
#include <once/once.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 256, PATH_BYTES = 1024 };

struct index_job {
    const char *directory;
    const char *alias;
    const char *revision;
    const char *index_hash;
    const char *text;
};

/* Write the index under a name that no other grant uses. A real one would take an hour. */
static int build(const struct index_job *job, uint64_t fence, char name[NAME_BYTES])
{
    char path[PATH_BYTES];
    snprintf(name, NAME_BYTES, "index-%s-%llu", job->index_hash, (unsigned long long)fence);
    snprintf(path, sizeof path, "%s/%s", job->directory, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -1;
    }
    int written = fputs(job->text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    return fclose(file) == 0 && written ? 0 : -1;
}

/* Let the alias point to the index: the new link takes the place of the old one at once. */
static int swap(const struct index_job *job, const char *index)
{
    char link[PATH_BYTES];
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", job->directory, job->alias);
    snprintf(link, sizeof link, "%s/%s.%s", job->directory, job->alias, job->revision);
    (void)unlink(link); /* left by a crash */
    return symlink(index, link) == 0 && rename(link, path) == 0 ? 0 : -1;
}

static int seal(struct once *once, const struct once_answer *grant, const char *effect_id,
    struct once_error *error)
{
    struct once_seal seal = {.operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .effect_id = effect_id,
        .ttl_ms = 30LL * 24 * 3600 * 1000};
    return once_seal(once, &seal, NULL, error);
}

/* Nothing refers to what was made so far: the next one may begin. */
static int give_up(struct once *once, const struct once_answer *grant, const char *reason,
    struct once_error *error)
{
    struct once_hold hold = {
        .operation_id = grant->operation_id, .fence = grant->fence, .reason = reason};
    fprintf(stderr, "%s\n", reason);
    int result = once_release(once, &hold, NULL, error);
    return result == ONCE_OK ? 74 : result;
}

static int build_once(struct once *once, const struct index_job *job, struct once_error *error)
{
    struct once_answer *answer;
    char name[NAME_BYTES];
    struct once_begin begin = {.scope = "index",
        .key = job->index_hash,
        .payload = {job->text, strlen(job->text)},
        .on_unknown = ONCE_TAKEOVER,
        .wait_ms = 10000}; /* if somebody else builds it, wait for that index */
    int result = once_begin(once, &begin, &answer, error);
    if (result != ONCE_OK) {
        return result;
    }
    printf("build %s: %s\n", job->index_hash, once_decision_name(answer->decision));
    if (answer->decision == ONCE_FIRST_SEEN) {
        result = build(job, answer->fence, name) == 0
                     ? seal(once, answer, name, error)
                     : give_up(once, answer, "cannot write the index", error);
    } else if (answer->decision != ONCE_DUPLICATE_REPLAYED) {
        result = answer->decision == ONCE_CONFLICT_REJECTED ? 65 : 75;
    }
    once_answer_free(once, answer);
    return result;
}

static int swap_granted(struct once *once, const struct index_job *job,
    const struct once_answer *grant, struct once_error *error)
{
    struct once_operation *built;
    int result = once_lookup(once, "index", "", job->index_hash, &built, error);
    if (result != ONCE_OK) {
        return result;
    }
    if (built == NULL || built->status != ONCE_EXECUTED) {
        result = give_up(once, grant, "the index is not sealed", error);
    } else if (swap(job, built->effect_id) != 0) {
        result = give_up(once, grant, "cannot replace the alias", error);
    } else {
        result = seal(once, grant, built->effect_id, error);
    }
    once_operation_free(once, built);
    return result;
}

static int swap_once(struct once *once, const struct index_job *job, struct once_error *error)
{
    struct once_answer *answer;
    char key[2 * NAME_BYTES];
    snprintf(key, sizeof key, "%s@%s", job->alias, job->revision);
    struct once_begin begin = {.scope = "alias",
        .key = key,
        .payload = {job->index_hash, strlen(job->index_hash)},
        .source = {.type = "alias", .id = job->alias, .version = job->revision},
        .on_unknown = ONCE_TAKEOVER};
    int result = once_begin(once, &begin, &answer, error);
    if (result != ONCE_OK) {
        return result;
    }
    printf("swap %s: %s\n", key, once_decision_name(answer->decision));
    if (answer->decision == ONCE_FIRST_SEEN) {
        result = swap_granted(once, job, answer, error);
    } else if (answer->decision != ONCE_DUPLICATE_REPLAYED) {
        result = answer->decision == ONCE_CONFLICT_REJECTED ? 65 : 75;
    }
    once_answer_free(once, answer);
    return result;
}

int main(int argc, char **argv)
{
    struct once *once;
    struct once_error error = {.text = ""};
    if (argc < 6) {
        fprintf(stderr, "usage: build_index DIRECTORY ALIAS REVISION INDEX_HASH TEXT [STORE]\n");
        return 64;
    }
    struct index_job job = {argv[1], argv[2], argv[3], argv[4], argv[5]};
    struct once_options options = {.store = argc > 6 ? argv[6] : NULL, .lock_wait_ms = 10000};
    int result = once_open(&options, &once, &error);
    if (result == ONCE_OK) {
        result = build_once(once, &job, &error);
        result = result == ONCE_OK ? swap_once(once, &job, &error) : result;
        int closed = once_close(once, &error);
        result = result == ONCE_OK ? closed : result;
    }
    if (result < 0) {
        fprintf(stderr, "%s\n", error.text);
        return 69;
    }
    return result;
}

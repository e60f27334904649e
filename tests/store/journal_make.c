/*
 * Writes a journal that holds everything a journal can: every rule, squeezed segments and, with a
 * retention, archived ones.   journal_make URL SEED STEPS JUMP_MS RETAIN_MS
 */
#include <stdio.h>
#include <stdlib.h>

#include "check_c.h"
#include "workload.h"

/* What the janitor does: housekeeping, and evidence past its retention leaves. */
static void housekeep(struct workload *workload)
{
    struct store *store = workload->store;
    const struct store_housekeeping *house = store->ops->housekeeping;
    struct store_removable removable = {0};
    for (int i = 0; i < 20; i++) {
        ASSERT(house->maintain(store, NULL) == OK);
    }
    ASSERT(house->removable(store, &removable, NULL) == OK);
    if (removable.place != 0) {
        ASSERT(cycle_archive(&workload->cycle, &removable, NULL) == OK);
        ASSERT(store->ops->flush(store, NULL) == OK);
        ASSERT(house->remove(store, removable.place, NULL) == OK);
    }
}

int main(int argc, char **argv)
{
    static struct workload workload;
    struct store *store;
    struct buf note;
    ASSERT(argc == 6);
    struct store_options options = {.clock = &workload_clock, .retain_ms = atoll(argv[5])};
    ASSERT(store_open(argv[1], &options, &store, NULL) == OK);
    workload_init(&workload, store, strtoull(argv[2], NULL, 10));
    buf_init(&note, &mem_libc, 4096);
    for (int i = 1; i <= atoi(argv[3]); i++) {
        workload_step(&workload);
        if (i % 16 == 0) {
            buf_clear(&note);
            workload_checkpoint(&workload, &note);
            workload_now_ms += atoll(argv[4]);
            housekeep(&workload);
        }
    }
    buf_release(&note);
    workload_release(&workload);
    ASSERT(store->ops->close(store, NULL) == OK);
    return 0;
}

/*
 * ram_store: a store for the simulation, as plain as a store can be.
 *
 * A disk is a list of commits and a mark behind the last one that was flushed. The state is a fold
 * over the list. A crash forgets some of what was not flushed, never what was; opening folds again.
 * It keeps every promise of store.h and checks what it is told: evidence out of order, a fence that
 * does not grow or a lost version is a fault of the engine and is remembered as such.
 */
#ifndef ONCE_TESTS_SIM_RAM_STORE_H
#define ONCE_TESTS_SIM_RAM_STORE_H

#include "store/store.h"

struct ram_item;

struct ram_disk {
    struct arena arena;     /* owns everything below */
    struct ram_item *items; /* what was committed, oldest first */
    size_t count;
    size_t room;
    size_t flushed;                 /* items that survive any crash */
    struct store_identity identity; /* made from a seed, so that runs repeat */
    char fault[128];                /* what the engine did wrong; empty: nothing */
};

void ram_disk_init(struct ram_disk *disk, uint64_t seed);
void ram_disk_release(struct ram_disk *disk);

/* The state as the disk has it. Close it before opening again. */
enum status ram_store_open(
    struct ram_disk *disk, struct store **ret_store, struct err *err) MUST_CHECK;

/* How many commits a crash could take away. */
size_t ram_disk_unflushed(const struct ram_disk *disk);
/* The power goes: of what was not flushed, only the first `kept` commits are there afterwards. */
void ram_disk_crash(struct ram_disk *disk, size_t kept);
/* The sequence number of the last evidence entry that survives any crash. */
uint64_t ram_disk_durable_seq(const struct ram_disk *disk);

#endif

/*
 * due: the records that need somebody to act, in the order of their dues.
 *
 * A record is in one group, chosen by its kind and its next step (slot_group). A sealed record is
 * in none: its window is housekeeping (maintain.c). Each group is a binary heap by the due second.
 * A table of cells finds a key's entry, so that the entry moves and is removed together with its
 * record. The cost of finding due records grows with their number alone. A second set of groups has
 * the unknown records of each kind by the time of their last change.
 *
 * Invariants (dues_check asserts them):
 *   JD1 a slot has an entry in the group that slot_group names, with the slot's due second, and in
 *       no other group; an unknown record also has an entry among the unknown ones of its kind.
 *   JD2 no entry is earlier than its parent in the heap.
 *   JD3 each entry's cell holds its position, and is at the key's home or after it, with no empty
 *       cell between.
 * So there are exactly as many entries as waiting records: renewals and short operations leave
 * nothing behind. An entry takes 32 bytes and two to four cells of 4 bytes. A full group doubles: a
 * million entries are copied in about 10 ms. It never shrinks.
 *
 * Threads:   one.
 */
#ifndef ONCE_STORE_JOURNAL_DUE_H
#define ONCE_STORE_JOURNAL_DUE_H

#include "store/journal/index.h"

enum due_group {
    DUE_LEASE,        /* in_progress, not held by an incarnation of ours */
    DUE_LEASE_HELD,   /* in_progress, held by a process incarnation of ours */
    DUE_NEXT_ATTEMPT, /* pending */
    DUE_CONFIRMATION, /* waiting, with a due */
    DUE_RECONCILE,    /* unknown, with a due */
    DUE_GROUPS,
    DUE_NOT = DUE_GROUPS, /* the slot is in no group */
};

enum {
    DUE_KINDS = 8,           /* more than there are */
    DUE_CHANGED_UNKNOWN = 0, /* for an unknown record: it must be read to find out */
};

struct due_entry {
    uint64_t key_high; /* as in the slot */
    uint64_t key_low;
    uint64_t order; /* the due second; for unknown records: milliseconds of the last change */
    uint32_t cell;  /* JD3 */
    uint32_t unused;
};

struct due_heap {
    struct due_entry *entries; /* a binary heap from 0 on */
    uint32_t *cells;           /* position + 1 of the entry; 0: empty */
    uint32_t count;            /* entries */
    uint32_t room;             /* entries that fit */
    uint32_t cells_count;      /* a power of two, at least twice room; 0: nothing allocated */
};

struct dues {
    const struct mem *mem;
    struct due_heap groups[DUE_KINDS][DUE_GROUPS];
    struct due_heap unknown[DUE_KINDS]; /* by the time of their last change */
};

void dues_init(struct dues *dues, const struct mem *mem);
void dues_release(struct dues *dues);

/* The group that the slot belongs to; DUE_NOT: none. */
static inline enum due_group slot_group(const struct slot *slot)
{
    if (slot->due_s == (uint32_t)INDEX_DUE_NEVER && slot->status != RECORD_IN_PROGRESS) {
        return DUE_NOT;
    }
    switch ((enum record_status)slot->status) {
    case RECORD_IN_PROGRESS: return slot->held ? DUE_LEASE_HELD : DUE_LEASE;
    case RECORD_PENDING: return DUE_NEXT_ATTEMPT;
    case RECORD_WAITING:
    case RECORD_COMPENSATING: return DUE_CONFIRMATION;
    case RECORD_UNKNOWN: return DUE_RECONCILE;
    case RECORD_DEAD:
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: break;
    }
    return DUE_NOT;
}

/* Makes sure that dues_change to this slot cannot fail. E_NOMEM: nothing changed. */
enum status dues_reserve(struct dues *dues, const struct slot *slot) MUST_CHECK;
/*
 * Replaces a slot by a different one of the same key; NULL: absent before, or from now on.
 * changed_ms is the time of the record's last change, kept for an unknown record. Undoing changes
 * made since a reservation needs no new reservation, because groups do not shrink.
 */
void dues_change(
    struct dues *dues, const struct slot *from, const struct slot *to, int64_t changed_ms);

/* Called for each entry. Return false to stop. It must not change the heap. */
typedef bool (*due_visit)(void *context, const struct due_entry *entry);
/* Visits every entry with at most this order, in no particular sequence. It reads later entries
 * too, but at most one more than it visits. The visitor may lower *until: later entries are left
 * out from then on, most of them unread. */
void due_heap_visit(
    const struct due_heap *heap, const uint64_t *until, due_visit visit, void *context);
/* The earliest entry; NULL: the heap is empty. */
const struct due_entry *due_heap_first(const struct due_heap *heap);
/* Gives the earliest entry this order and moves it to its place. */
void due_heap_correct_first(struct due_heap *heap, uint64_t order);

/* Compares everything with the index. */
void dues_check(const struct dues *dues, struct index *index);

#endif

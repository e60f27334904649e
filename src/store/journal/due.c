#include "store/journal/due.h"

#include <string.h>

#include "base/check.h"

static_assert(sizeof(struct due_entry) == 32, "no padding: there may be millions");

enum { HEAP_ROOM_FIRST = 16, HEAP_ROOM_MAX = 1 << 30 };

void dues_init(struct dues *dues, const struct mem *mem)
{
    memset(dues, 0, sizeof *dues);
    dues->mem = mem;
}

static void heap_release(struct due_heap *heap, const struct mem *mem)
{
    mem_free(mem, heap->entries);
    mem_free(mem, heap->cells);
    *heap = (struct due_heap){0};
}

void dues_release(struct dues *dues)
{
    for (unsigned kind = 0; dues->mem != NULL && kind < DUE_KINDS; kind++) {
        for (unsigned group = 0; group < DUE_GROUPS; group++) {
            heap_release(&dues->groups[kind][group], dues->mem);
        }
        heap_release(&dues->unknown[kind], dues->mem);
    }
}

/* The table of cells ----------------------------------------------------------------------- */

static uint32_t home_of(const struct due_heap *heap, uint64_t key_low)
{
    return (uint32_t)key_low & (heap->cells_count - 1);
}

/* The cell of the key, or the empty cell where it would go. */
static uint32_t cell_find(const struct due_heap *heap, uint64_t key_high, uint64_t key_low)
{
    ASSERT(heap->cells_count > heap->count); /* there is an empty cell to stop at */
    uint32_t at = home_of(heap, key_low);
    while (heap->cells[at] != 0) {
        const struct due_entry *entry = &heap->entries[heap->cells[at] - 1];
        if (entry->key_high == key_high && entry->key_low == key_low) {
            break;
        }
        at = (at + 1) & (heap->cells_count - 1);
    }
    return at;
}

static void cell_set(struct due_heap *heap, uint32_t cell, uint32_t position)
{
    heap->cells[cell] = position + 1;
    heap->entries[position].cell = cell;
}

/* Empties a cell, and closes the gap with cells that may move there (JD3). */
static void cell_clear(struct due_heap *heap, uint32_t cell)
{
    uint32_t mask = heap->cells_count - 1;
    uint32_t gap = cell;
    heap->cells[gap] = 0;
    for (uint32_t at = (gap + 1) & mask; heap->cells[at] != 0; at = (at + 1) & mask) {
        uint32_t position = heap->cells[at] - 1;
        uint32_t home = home_of(heap, heap->entries[position].key_low);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            cell_set(heap, gap, position);
            heap->cells[at] = 0;
            gap = at;
        }
    }
}

/* The heap --------------------------------------------------------------------------------- */

static void entry_place(struct due_heap *heap, uint32_t position, const struct due_entry *entry)
{
    heap->entries[position] = *entry;
    heap->cells[entry->cell] = position + 1;
}

/* Moves an entry from a free position to its place (JD2). */
static void entry_sift(struct due_heap *heap, uint32_t at, struct due_entry entry)
{
    while (at > 0 && heap->entries[(at - 1) / 2].order > entry.order) {
        entry_place(heap, at, &heap->entries[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count &&
            heap->entries[child + 1].order < heap->entries[child].order) {
            child++;
        }
        if (heap->entries[child].order >= entry.order) {
            break;
        }
        entry_place(heap, at, &heap->entries[child]);
        at = child;
    }
    entry_place(heap, at, &entry);
}

/* Allocates both arrays before either is changed, so that a failure changes nothing. */
static enum status heap_grow(struct due_heap *heap, const struct mem *mem)
{
    if (heap->room >= HEAP_ROOM_MAX) {
        return E_NOMEM;
    }
    uint32_t room = heap->room == 0 ? HEAP_ROOM_FIRST : heap->room * 2;
    struct due_heap grown = {.count = heap->count, .room = room, .cells_count = room * 2};
    grown.cells = mem_zalloc(mem, grown.cells_count, sizeof *grown.cells);
    if (grown.cells == NULL) {
        return E_NOMEM;
    }
    grown.entries = mem_resize(mem, heap->entries, (size_t)room * sizeof *grown.entries);
    if (grown.entries == NULL) {
        mem_free(mem, grown.cells);
        return E_NOMEM;
    }
    for (uint32_t i = 0; i < grown.count; i++) {
        const struct due_entry *entry = &grown.entries[i];
        uint32_t at = home_of(&grown, entry->key_low);
        while (grown.cells[at] != 0) {
            at = (at + 1) & (grown.cells_count - 1);
        }
        cell_set(&grown, at, i);
    }
    mem_free(mem, heap->cells);
    *heap = grown;
    return OK;
}

static enum status heap_reserve(struct due_heap *heap, const struct mem *mem)
{
    return heap->count < heap->room ? OK : heap_grow(heap, mem);
}

static void heap_put(struct due_heap *heap, const struct slot *slot, uint64_t order)
{
    ASSERT(heap->count < heap->room); /* dues_reserve */
    uint32_t cell = cell_find(heap, slot->key_high, slot->key_low);
    ASSERT(heap->cells[cell] == 0); /* JD1 */
    heap->count++;
    entry_sift(heap, heap->count - 1,
        (struct due_entry){
            .key_high = slot->key_high, .key_low = slot->key_low, .order = order, .cell = cell});
}

static void heap_remove(struct due_heap *heap, const struct slot *slot)
{
    ASSERT(heap->count > 0); /* JD1 */
    uint32_t cell = cell_find(heap, slot->key_high, slot->key_low);
    ASSERT(heap->cells[cell] != 0); /* JD1 */
    uint32_t at = heap->cells[cell] - 1;
    cell_clear(heap, cell);
    heap->count--;
    if (at < heap->count) {
        entry_sift(heap, at, heap->entries[heap->count]);
    }
}

static void heap_move(struct due_heap *heap, const struct slot *slot, uint64_t order)
{
    uint32_t cell = cell_find(heap, slot->key_high, slot->key_low);
    ASSERT(heap->cells[cell] != 0); /* JD1 */
    uint32_t at = heap->cells[cell] - 1;
    struct due_entry entry = heap->entries[at];
    entry.order = order;
    entry_sift(heap, at, entry);
}

static struct due_heap *group_of(struct dues *dues, const struct slot *slot)
{
    ASSERT(slot->kind < DUE_KINDS);
    enum due_group group = slot_group(slot);
    return group == DUE_NOT ? NULL : &dues->groups[slot->kind][group];
}

static struct due_heap *unknown_of(struct dues *dues, const struct slot *slot)
{
    ASSERT(slot->kind < DUE_KINDS);
    return slot->status == RECORD_UNKNOWN ? &dues->unknown[slot->kind] : NULL;
}

enum status dues_reserve(struct dues *dues, const struct slot *slot)
{
    struct due_heap *group = group_of(dues, slot);
    struct due_heap *unknown = unknown_of(dues, slot);
    enum status status = group == NULL ? OK : heap_reserve(group, dues->mem);
    return status == OK && unknown != NULL ? heap_reserve(unknown, dues->mem) : status;
}

void dues_change(
    struct dues *dues, const struct slot *from, const struct slot *to, int64_t changed_ms)
{
    ASSERT(changed_ms >= 0);
    struct due_heap *group_from = from == NULL ? NULL : group_of(dues, from);
    struct due_heap *group_to = to == NULL ? NULL : group_of(dues, to);
    struct due_heap *unknown_from = from == NULL ? NULL : unknown_of(dues, from);
    struct due_heap *unknown_to = to == NULL ? NULL : unknown_of(dues, to);
    if (group_from != NULL && group_from == group_to) {
        if (from->due_s != to->due_s) {
            heap_move(group_to, to, to->due_s);
        }
    } else {
        if (group_from != NULL) {
            heap_remove(group_from, from);
        }
        if (group_to != NULL) {
            heap_put(group_to, to, to->due_s);
        }
    }
    if (unknown_from != NULL && unknown_from != unknown_to) {
        heap_remove(unknown_from, from);
    }
    if (unknown_to != NULL && unknown_from != unknown_to) {
        heap_put(unknown_to, to, (uint64_t)changed_ms);
    } else if (unknown_to != NULL && from->version != to->version) {
        heap_move(unknown_to, to, (uint64_t)changed_ms);
    }
}

/* Reading ---------------------------------------------------------------------------------- */

void due_heap_visit(
    const struct due_heap *heap, const uint64_t *until, due_visit visit, void *context)
{
    /* In preorder: down to the left while it is due, else up until there is a right sibling. */
    uint32_t at = 0;
    while (at < heap->count) {
        if (heap->entries[at].order <= *until) {
            if (!visit(context, &heap->entries[at])) {
                return;
            }
            if (2 * at + 1 < heap->count) {
                at = 2 * at + 1;
                continue;
            }
        }
        while (at > 0 && (at % 2 == 0 || at + 1 >= heap->count)) {
            at = (at - 1) / 2;
        }
        if (at == 0) {
            return;
        }
        at++;
    }
}

const struct due_entry *due_heap_first(const struct due_heap *heap)
{
    return heap->count == 0 ? NULL : &heap->entries[0];
}

void due_heap_correct_first(struct due_heap *heap, uint64_t order)
{
    ASSERT(heap->count > 0);
    struct due_entry entry = heap->entries[0];
    entry.order = order;
    entry_sift(heap, 0, entry);
}

/* Checking --------------------------------------------------------------------------------- */

static void heap_check(const struct due_heap *heap)
{
    uint32_t cells = 0;
    for (uint32_t i = 0; i < heap->count; i++) {
        const struct due_entry *entry = &heap->entries[i];
        ASSERT(i == 0 || heap->entries[(i - 1) / 2].order <= entry->order);           /* JD2 */
        ASSERT(entry->cell < heap->cells_count && heap->cells[entry->cell] == i + 1); /* JD3 */
        ASSERT(cell_find(heap, entry->key_high, entry->key_low) == entry->cell);      /* JD3 */
    }
    for (uint32_t i = 0; i < heap->cells_count; i++) {
        cells += heap->cells[i] != 0;
    }
    ASSERT(cells == heap->count); /* JD3 */
    ASSERT(heap->count <= heap->room);
}

/* The entry of a slot; NULL: there is none. */
static const struct due_entry *heap_entry(const struct due_heap *heap, const struct slot *slot)
{
    if (heap->count == 0) {
        return NULL;
    }
    uint32_t cell = cell_find(heap, slot->key_high, slot->key_low);
    return heap->cells[cell] == 0 ? NULL : &heap->entries[heap->cells[cell] - 1];
}

void dues_check(const struct dues *dues, struct index *index)
{
    uint64_t entries = 0;
    uint64_t wanted = 0;
    for (unsigned kind = 0; kind < DUE_KINDS; kind++) {
        for (unsigned group = 0; group < DUE_GROUPS; group++) {
            heap_check(&dues->groups[kind][group]);
            entries += dues->groups[kind][group].count;
        }
        heap_check(&dues->unknown[kind]);
        entries += dues->unknown[kind].count;
    }
    for (unsigned part = 0; part < INDEX_PARTS; part++) {
        struct slot *slot = index_next(index, part, NULL);
        for (; slot != NULL; slot = index_next(index, part, slot)) {
            enum due_group group = slot_group(slot);
            if (group != DUE_NOT) {
                const struct due_entry *entry = heap_entry(&dues->groups[slot->kind][group], slot);
                ASSERT(entry != NULL);               /* JD1 */
                ASSERT(entry->order == slot->due_s); /* JD1 */
                wanted++;
            }
            if (slot->status == RECORD_UNKNOWN) {
                ASSERT(heap_entry(&dues->unknown[slot->kind], slot) != NULL); /* JD1 */
                wanted++;
            }
        }
    }
    ASSERT(entries == wanted); /* JD1: and in no other */
}

#include "store/journal/index.h"

#include <endian.h>
#include <string.h>

#include "base/check.h"

static_assert(sizeof(struct slot) == 40, "memory per key is a promise (B8)");

enum { PART_HOMES_FIRST = 8 };

void index_init(struct index *index, const struct mem *mem)
{
    memset(index, 0, sizeof *index);
    index->mem = mem;
    for (unsigned i = 0; i < INDEX_PARTS; i++) {
        index->parts[i].window_min = UINT32_MAX;
    }
}

void index_release(struct index *index)
{
    for (unsigned i = 0; index->mem != NULL && i < INDEX_PARTS; i++) {
        mem_free(index->mem, index->parts[i].slots);
        index->parts[i].slots = NULL;
    }
    index->count = 0;
}

static uint64_t be64_get(const unsigned char *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return be64toh(value);
}

/* Rounded up, so that nothing is ever due early (P8). */
static uint32_t due_second(int64_t due_ms)
{
    if (due_ms <= 0) {
        return 0;
    }
    int64_t second = due_ms / 1000 + (due_ms % 1000 != 0);
    return second >= UINT32_MAX ? UINT32_MAX : (uint32_t)second;
}

struct slot slot_of(const struct record *record, uint64_t place)
{
    return (struct slot){
        .key_high = be64_get(record->key.hash.bytes),
        .key_low = be64_get(record->key.hash.bytes + 8),
        .place = place,
        .due_s = due_second(record_due_ms(record)),
        .version = (uint32_t)record->version,
        .status = (uint8_t)record->status,
        .kind = (uint8_t)record->kind,
        .held = record->holder != 0,
    };
}

bool slot_is(const struct slot *slot, const struct digest *hash)
{
    return slot->key_high == be64_get(hash->bytes) && slot->key_low == be64_get(hash->bytes + 8);
}

unsigned slot_part(const struct slot *slot)
{
    return (unsigned)(slot->key_high >> (64 - INDEX_PART_BITS));
}

static uint32_t home_of(uint64_t key_high, uint32_t homes)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint32_t)((wide)(key_high << INDEX_PART_BITS) * homes >> 64);
}

static bool key_less(const struct slot *slot, uint64_t high, uint64_t low)
{
    return slot->key_high < high || (slot->key_high == high && slot->key_low < low);
}

/* The position of the first slot not less than the key, or where it would go (IX2). */
static uint32_t part_search(const struct part *part, uint64_t high, uint64_t low)
{
    uint32_t at = home_of(high, part->homes);
    while (at < part->end && part->slots[at].place != 0 && key_less(&part->slots[at], high, low)) {
        at++;
    }
    return at;
}

struct slot *index_find(struct index *index, const struct digest *hash)
{
    uint64_t high = be64_get(hash->bytes);
    struct part *part = &index->parts[high >> (64 - INDEX_PART_BITS)];
    if (part->count == 0) {
        return NULL;
    }
    uint32_t at = part_search(part, high, be64_get(hash->bytes + 8));
    struct slot *slot = at < part->end ? &part->slots[at] : NULL;
    return slot != NULL && slot->place != 0 && slot_is(slot, hash) ? slot : NULL;
}

void index_prefetch(const struct index *index, const struct digest *hash)
{
    uint64_t high = be64_get(hash->bytes);
    const struct part *part = &index->parts[high >> (64 - INDEX_PART_BITS)];
    if (part->count > 0) {
        __builtin_prefetch(&part->slots[home_of(high, part->homes)]);
    }
}

/* Lays out the slots of `from` over homes. With `to` NULL, only returns where they would end. */
static uint32_t part_lay(const struct part *from, uint32_t homes, struct slot *to)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < from->end; i++) {
        if (from->slots[i].place != 0) {
            uint32_t home = home_of(from->slots[i].key_high, homes);
            at = at < home ? home : at;
            if (to != NULL) {
                to[at] = from->slots[i];
            }
            at++;
        }
    }
    return at;
}

static enum status part_resize(struct index *index, struct part *part, uint32_t homes)
{
    uint32_t end = part_lay(part, homes, NULL);
    /* Room after the homes for runs that extend past the end. */
    uint32_t room = (end > homes ? end : homes) + 8 + homes / 64;
    struct slot *slots = mem_zalloc(index->mem, room, sizeof *slots);
    if (slots == NULL) {
        return E_NOMEM;
    }
    (void)part_lay(part, homes, slots);
    mem_free(index->mem, part->slots);
    part->slots = slots;
    part->homes = homes;
    part->room = room;
    part->end = end;
    return OK;
}

static enum status part_make_room(struct index *index, struct part *part)
{
    if (part->homes == 0) {
        return part_resize(index, part, PART_HOMES_FIRST);
    }
    bool full = part->count >= part->homes / 4 * 3 + part->homes % 4;
    return full || part->end == part->room
               ? part_resize(index, part, part->homes + part->homes / 4 + 1)
               : OK;
}

static void part_note_window(struct part *part, const struct slot *slot)
{
    if (slot_expires(slot) && slot->due_s < part->window_min) {
        part->window_min = slot->due_s;
    }
}

enum status index_put(struct index *index, const struct slot *slot)
{
    ASSERT(slot->place != 0);
    struct part *part = &index->parts[slot_part(slot)];
    enum status status = part_make_room(index, part);
    if (status != OK) {
        return status;
    }
    uint32_t at = part_search(part, slot->key_high, slot->key_low);
    struct slot *found = &part->slots[at];
    bool there = at < part->end && found->place != 0 && found->key_high == slot->key_high &&
                 found->key_low == slot->key_low;
    if (!there) {
        uint32_t gap = at;
        while (gap < part->end && part->slots[gap].place != 0) {
            gap++;
        }
        ASSERT(gap < part->room); /* part_make_room */
        memmove(found + 1, found, (gap - at) * sizeof *found);
        part->end = gap >= part->end ? gap + 1 : part->end;
        part->count++;
        index->count++;
    }
    *found = *slot;
    part_note_window(part, slot);
    return OK;
}

void index_replace(struct index *index, struct slot *found, const struct slot *slot)
{
    ASSERT(found->place != 0 && slot->place != 0);
    ASSERT(found->key_high == slot->key_high && found->key_low == slot->key_low);
    *found = *slot;
    part_note_window(&index->parts[slot_part(slot)], slot);
}

void index_remove(struct index *index, struct slot *slot)
{
    struct part *part = &index->parts[slot_part(slot)];
    uint32_t at = (uint32_t)(slot - part->slots);
    ASSERT(at < part->end && slot->place != 0);
    while (at + 1 < part->end && part->slots[at + 1].place != 0 &&
           home_of(part->slots[at + 1].key_high, part->homes) <= at) {
        part->slots[at] = part->slots[at + 1];
        at++;
    }
    memset(&part->slots[at], 0, sizeof part->slots[at]);
    if (at + 1 == part->end) {
        part->end = at;
    }
    part->count--;
    index->count--;
}

enum status index_part_reserve(struct index *index, unsigned number, uint32_t count)
{
    struct part *part = &index->parts[number];
    ASSERT(part->count == 0);
    if (count == 0) {
        return OK;
    }
    /* Filled to 15/16 of the limit, so that the first insert does not grow it at once. */
    uint32_t homes = count + count / 5 * 2 + count / 45 + PART_HOMES_FIRST;
    uint32_t room = homes + 64 + homes / 16; /* runs are not known yet */
    struct slot *slots = mem_zalloc(index->mem, room, sizeof *slots);
    if (slots == NULL) {
        return E_NOMEM;
    }
    mem_free(index->mem, part->slots);
    *part = (struct part){.slots = slots, .homes = homes, .room = room, .window_min = UINT32_MAX};
    return OK;
}

bool index_part_append(struct index *index, unsigned number, const struct slot *slot)
{
    struct part *part = &index->parts[number];
    if (slot->place == 0 || slot_part(slot) != number || part->homes == 0) {
        return false;
    }
    const struct slot *last = part->end == 0 ? NULL : &part->slots[part->end - 1];
    if (last != NULL && !key_less(last, slot->key_high, slot->key_low)) {
        return false;
    }
    uint32_t home = home_of(slot->key_high, part->homes);
    uint32_t at = part->end < home ? home : part->end;
    if (at >= part->room) {
        return false;
    }
    part->slots[at] = *slot;
    part->end = at + 1;
    part->count++;
    index->count++;
    part_note_window(part, slot);
    return true;
}

void index_part_shrink(struct index *index, unsigned number)
{
    struct part *part = &index->parts[number];
    if (part->homes > PART_HOMES_FIRST && part->count < part->homes / 2) {
        (void)part_resize(index, part, part->count + part->count / 2 + PART_HOMES_FIRST);
    }
}

struct slot *index_seek(struct index *index, uint64_t key_high, uint64_t key_low)
{
    unsigned number = (unsigned)(key_high >> (64 - INDEX_PART_BITS));
    struct part *part = &index->parts[number];
    if (part->count == 0) {
        return NULL;
    }
    uint32_t at = part_search(part, key_high, key_low);
    if (at >= part->end) {
        return NULL;
    }
    struct slot *slot = &part->slots[at];
    return slot->place != 0 ? slot : index_next(index, number, slot);
}

struct slot *index_next(struct index *index, unsigned number, struct slot *slot)
{
    struct part *part = &index->parts[number];
    uint32_t at = slot == NULL ? 0 : (uint32_t)(slot - part->slots) + 1;
    for (; at < part->end; at++) {
        if (part->slots[at].place != 0) {
            return &part->slots[at];
        }
    }
    return NULL;
}

static void part_check(const struct part *part, unsigned number)
{
    uint32_t count = 0;
    uint32_t gap = 0; /* after the last empty slot */
    const struct slot *before = NULL;
    for (uint32_t i = 0; i < part->end; i++) {
        const struct slot *slot = &part->slots[i];
        if (slot->place == 0) {
            gap = i + 1;
            continue;
        }
        uint32_t home = home_of(slot->key_high, part->homes);
        ASSERT(slot_part(slot) == number);
        ASSERT(home <= i);                                                         /* IX1 */
        ASSERT(home >= gap);                                                       /* IX1 */
        ASSERT(before == NULL || key_less(before, slot->key_high, slot->key_low)); /* IX2 */
        ASSERT(!slot_expires(slot) || slot->due_s >= part->window_min);            /* IX3 */
        before = slot;
        count++;
    }
    ASSERT(count == part->count);
}

void index_check(const struct index *index)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < INDEX_PARTS; i++) {
        part_check(&index->parts[i], i);
        count += index->parts[i].count;
    }
    ASSERT(count == index->count);
}

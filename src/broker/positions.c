#include "broker/positions.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { ROOM_AT_FIRST = 256 }; /* offsets of a partition */

static struct position *find(struct positions *positions, int32_t partition)
{
    for (size_t i = 0; i < positions->count; i++) {
        if (positions->items[i].partition == partition) {
            return &positions->items[i];
        }
    }
    return NULL;
}

void positions_clear(struct positions *positions)
{
    for (size_t i = 0; i < positions->count; i++) {
        mem_free(&mem_libc, positions->items[i].offsets);
    }
    mem_free(&mem_libc, positions->items);
    *positions = (struct positions){.count = 0};
}

static struct position *ready(struct positions *positions, int32_t partition)
{
    struct position *found = find(positions, partition);
    if (found != NULL || positions->count == POSITIONS_MAX) {
        return found;
    }
    struct position *grown = mem_zalloc(&mem_libc, positions->count + 1, sizeof *grown);
    if (grown == NULL) {
        return NULL;
    }
    if (positions->count > 0) {
        memcpy(grown, positions->items, positions->count * sizeof *grown);
    }
    mem_free(&mem_libc, positions->items);
    positions->items = grown;
    found = &grown[positions->count++];
    *found = (struct position){.partition = partition, .next = -1};
    return found;
}

static struct taken_offset *at(const struct position *position, size_t number)
{
    return &position->offsets[position->first + number];
}

/* NULL: it was not taken, or is done and gone. */
static struct taken_offset *find_offset(const struct position *position, int64_t offset)
{
    size_t low = 0;
    size_t high = position->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at(position, middle)->offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_it = low < position->count && at(position, low)->offset == offset;
    return is_it ? at(position, low) : NULL;
}

static bool make_room(struct position *position)
{
    if (position->first > 0 && position->first >= position->room / 2) {
        memmove(position->offsets, position->offsets + position->first,
            position->count * sizeof *position->offsets);
        position->first = 0;
    }
    if (position->first + position->count < position->room) {
        return true;
    }
    size_t room = position->room == 0 ? ROOM_AT_FIRST : 2 * position->room;
    struct taken_offset *grown = mem_zalloc(&mem_libc, room, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    if (position->room > 0) {
        memcpy(grown, position->offsets, position->room * sizeof *grown);
    }
    mem_free(&mem_libc, position->offsets);
    position->offsets = grown;
    position->room = room;
    return true;
}

bool positions_take(struct positions *positions, int32_t partition, int64_t offset)
{
    struct position *position = ready(positions, partition);
    if (position == NULL) {
        return false;
    }
    bool is_before = position->count > 0 && offset <= at(position, position->count - 1)->offset;
    if (is_before && find_offset(position, offset) != NULL) {
        return true;
    }
    if (is_before || offset < position->next) {
        position->first = 0;
        position->count = 0;
        position->next = -1;
        position->is_dirty = false;
    }
    if (!make_room(position)) {
        return false;
    }
    position->count++;
    *at(position, position->count - 1) = (struct taken_offset){.offset = offset};
    return true;
}

static bool read_id(struct slice id, int32_t *ret_partition, int64_t *ret_offset)
{
    const char *dash = id.len == 0 ? NULL : memchr(id.data, '-', id.len);
    size_t len = dash == NULL ? 0 : (size_t)(dash - id.data);
    uint64_t partition = 0;
    uint64_t offset = 0;
    if (dash == NULL || !text_u64(slice_of(id.data, len), &partition) ||
        !text_u64(slice_of(dash + 1, id.len - len - 1), &offset) || partition > INT32_MAX ||
        offset > INT64_MAX - 1) {
        return false;
    }
    *ret_partition = (int32_t)partition;
    *ret_offset = (int64_t)offset;
    return true;
}

void positions_done(struct positions *positions, struct slice id)
{
    int32_t partition = 0;
    int64_t offset = 0;
    struct position *position =
        read_id(id, &partition, &offset) ? find(positions, partition) : NULL;
    struct taken_offset *taken = position == NULL ? NULL : find_offset(position, offset);
    if (taken == NULL) {
        return;
    }
    taken->is_done = true;
    while (position->count > 0 && at(position, 0)->is_done) { /* OPS-8: not past one that is not */
        position->next = at(position, 0)->offset + 1;
        position->is_dirty = true;
        position->first++;
        position->count--;
    }
}

bool position_is_long(const struct position *position, bool is_paused)
{
    return position->count >= (is_paused ? POSITION_SPAN_MAX / 2 : POSITION_SPAN_MAX);
}

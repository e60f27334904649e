#include "canon/json_mask.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"

/* A pointer on its way down. */
struct mask_walk {
    struct slice rest;             /* of the pointer: empty, or from a slash on */
    const struct json_value *node; /* where it has come to; NULL: nowhere */
};

/* The escapes of RFC 6901 section 3. False: a tilde that begins no escape. */
static bool unescape(struct slice token, char *ret_text, size_t *ret_size)
{
    size_t size = 0;
    for (size_t i = 0; i < token.len; i++) {
        char c = token.data[i];
        if (c == '~') {
            i++;
            if (i == token.len || (token.data[i] != '0' && token.data[i] != '1')) {
                return false;
            }
            c = token.data[i] == '0' ? '~' : '/';
        }
        ret_text[size++] = c;
    }
    *ret_size = size;
    return true;
}

static const struct json_value *member_at(
    const struct json_value *object, struct slice token, char *scratch)
{
    size_t size;
    return unescape(token, scratch, &size) ? json_find(object, slice_of(scratch, size)) : NULL;
}

static const struct json_value *item_at(const struct json_value *array, struct slice token)
{
    uint64_t index;
    if ((token.len > 1 && token.data[0] == '0') || !text_u64(token, &index) ||
        index >= array->count) {
        return NULL;
    }
    return &array->items[index];
}

/* One step down. scratch has room for the whole pointer. */
static void step(struct mask_walk *walk, char *scratch)
{
    ASSERT(walk->rest.len > 0);
    struct slice token = slice_of(walk->rest.data + 1, walk->rest.len - 1);
    const char *slash = token.len == 0 ? NULL : memchr(token.data, '/', token.len);
    if (walk->rest.data[0] != '/') {
        walk->node = NULL;
        return;
    }
    token.len = slash == NULL ? token.len : (size_t)(slash - token.data);
    walk->rest = slice_of(token.data + token.len, walk->rest.len - 1 - token.len);
    walk->node = json_is(walk->node, JSON_OBJECT)  ? member_at(walk->node, token, scratch)
                 : json_is(walk->node, JSON_ARRAY) ? item_at(walk->node, token)
                                                   : NULL;
}

const struct json_value *json_at(const struct json_value *root, struct slice pointer)
{
    char scratch[JSON_POINTER_BYTES_MAX];
    struct mask_walk walk = {pointer, pointer.len <= sizeof scratch ? root : NULL};
    while (walk.node != NULL && walk.rest.len > 0) {
        step(&walk, scratch);
    }
    return walk.node;
}

const struct json_value *json_holder_at(const struct json_value *root, struct slice pointer,
    char scratch[JSON_POINTER_BYTES_MAX], struct slice *ret_name)
{
    size_t size = 0;
    size_t at = pointer.len; /* of the last slash, plus one */
    while (at > 0 && pointer.data[at - 1] != '/') {
        at--;
    }
    if (at == 0 || pointer.len > JSON_POINTER_BYTES_MAX ||
        !unescape(slice_of(pointer.data + at, pointer.len - at), scratch, &size)) {
        return NULL;
    }
    *ret_name = slice_of(scratch, size);
    const struct json_value *holder = json_at(root, slice_of(pointer.data, at - 1));
    return json_is(holder, JSON_OBJECT) || json_is(holder, JSON_ARRAY) ? holder : NULL;
}

/* Append the marks of one pointer: of all that is on its way, and of where it leads. */
static void add(struct json_mask *marks, const struct json_value *root, struct slice pointer,
    enum json_mask_way way, char *scratch)
{
    size_t before = marks->count;
    struct mask_walk walk = {pointer, root};
    while (walk.node != NULL && walk.rest.len > 0) {
        marks->items[marks->count++] = (struct json_mask_item){walk.node, JSON_MASK_WITHIN};
        step(&walk, scratch);
    }
    if (walk.node == NULL) {
        marks->count = before;
        return;
    }
    marks->items[marks->count++] = (struct json_mask_item){walk.node, way};
}

/* By address; of one node the strongest first. */
static bool is_before(const struct json_mask_item *a, const struct json_mask_item *b)
{
    return a->node == b->node ? a->way > b->way : (uintptr_t)a->node < (uintptr_t)b->node;
}

/* They are few: as many as pointers have steps. */
static void sort(struct json_mask *marks)
{
    for (size_t i = 1; i < marks->count; i++) {
        struct json_mask_item mark = marks->items[i];
        size_t at = i;
        for (; at > 0 && is_before(&mark, &marks->items[at - 1]); at--) {
            marks->items[at] = marks->items[at - 1];
        }
        marks->items[at] = mark;
    }
}

static void drop_doubled(struct json_mask *marks)
{
    size_t kept = 0;
    for (size_t i = 0; i < marks->count; i++) {
        if (kept == 0 || marks->items[kept - 1].node != marks->items[i].node) {
            marks->items[kept++] = marks->items[i];
        }
    }
    marks->count = kept;
}

/* Marks that a list can make at most: one for each step, and no tree is deeper than the limit. */
static size_t count_max(const struct json_mask_list *list, size_t *longest)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t len = strlen(list->pointers[i]);
        size_t steps = len < LIMIT_JSON_DEPTH_MAX ? len : LIMIT_JSON_DEPTH_MAX;
        *longest = len > *longest ? len : *longest;
        count += steps + 1;
    }
    return count;
}

enum status json_mask_make(const struct json_value *root, const struct json_mask_list *lists,
    size_t list_count, struct arena *arena, struct json_mask *ret_marks)
{
    size_t count = 0;
    size_t longest = 0;
    for (size_t i = 0; i < list_count; i++) {
        count += count_max(&lists[i], &longest);
    }
    *ret_marks = (struct json_mask){NULL, 0};
    if (count == 0) {
        return OK;
    }
    struct json_mask marks = {arena_alloc(arena, count * sizeof *marks.items), 0};
    char *scratch = arena_alloc(arena, longest + 1);
    if (marks.items == NULL || scratch == NULL) {
        return E_NOMEM;
    }
    for (size_t i = 0; i < list_count; i++) {
        for (size_t j = 0; j < lists[i].count; j++) {
            add(&marks, root, slice_str(lists[i].pointers[j]), lists[i].way, scratch);
        }
    }
    ASSERT(marks.count <= count);
    sort(&marks);
    drop_doubled(&marks);
    *ret_marks = marks;
    return OK;
}

size_t json_mask_from(const struct json_mask *marks, const struct json_value *node)
{
    size_t from = 0;
    size_t to = marks->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if ((uintptr_t)marks->items[middle].node < (uintptr_t)node) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

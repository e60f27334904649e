#include "patch.h"

#include <stdio.h>

#include "base/check.h"
#include "canon/jcs.h"

/* A value that can change: children are linked, scalars are borrowed. */
struct node {
    const struct json_value *value; /* its type, and its content when it is a scalar */
    struct slice name;              /* as a member */
    struct node *first;             /* of the children */
    struct node *next;              /* sibling */
};

static struct node *node_new(struct arena *arena, const struct json_value *value, struct slice name)
{
    struct node *node = arena_zalloc(arena, sizeof *node);
    ASSERT(node != NULL);
    node->value = value;
    node->name = name;
    struct node **last = &node->first;
    bool object = value->type == JSON_OBJECT;
    uint32_t count = object || value->type == JSON_ARRAY ? value->count : 0;
    for (uint32_t i = 0; i < count; i++) {
        *last = object
                    ? node_new(arena, &value->members[i].value, json_text(&value->members[i].name))
                    : node_new(arena, &value->items[i], SLICE_EMPTY);
        last = &(*last)->next;
    }
    return node;
}

/* Cut the next step off a pointer and undo its escapes, into the arena. */
static struct slice next_step(struct arena *arena, struct slice *pointer)
{
    char *step = arena_alloc(arena, pointer->len);
    ASSERT(step != NULL && pointer->len > 0 && pointer->data[0] == '/');
    size_t size = 0;
    size_t i = 1;
    for (; i < pointer->len && pointer->data[i] != '/'; i++) {
        char c = pointer->data[i];
        if (c == '~' && i + 1 < pointer->len) {
            i++;
            c = pointer->data[i] == '1' ? '/' : '~';
        }
        step[size++] = c;
    }
    *pointer = slice_of(pointer->data + i, pointer->len - i);
    return slice_of(step, size);
}

/* The link to the child a step names; the link behind the last one when there is none. */
static struct node **child_link(struct node *parent, struct slice step)
{
    struct node **link = &parent->first;
    char index[16];
    for (unsigned i = 0; *link != NULL; i++, link = &(*link)->next) {
        (void)snprintf(index, sizeof index, "%u", i);
        bool here = parent->value->type == JSON_OBJECT ? slice_equal((*link)->name, step)
                                                       : slice_is(step, index);
        if (here) {
            break;
        }
    }
    return link;
}

/* How many children there are up to a link. */
static bool may_append(struct node *parent, struct slice step)
{
    unsigned count = 0;
    for (const struct node *child = parent->first; child != NULL; child = child->next) {
        count++;
    }
    char index[16];
    (void)snprintf(index, sizeof index, "%u", count);
    return slice_is(step, index);
}

static bool change(struct node *parent, struct slice step, struct slice name,
    const struct json_value *value, struct arena *arena)
{
    struct node **link = child_link(parent, step);
    bool array = parent->value->type == JSON_ARRAY;
    if (slice_is(name, "add")) {
        if (array && *link == NULL && !may_append(parent, step)) {
            return false;
        }
        struct node *node = node_new(arena, value, step);
        node->next = array || *link == NULL ? *link : (*link)->next;
        *link = node;
        return true;
    }
    if (*link == NULL) {
        return false; /* remove and replace need a target */
    }
    if (slice_is(name, "remove")) {
        *link = (*link)->next;
        return true;
    }
    struct node *node = node_new(arena, value, step);
    node->next = (*link)->next;
    *link = node;
    return slice_is(name, "replace");
}

static bool apply_one(struct node **root, const struct json_value *operation, struct arena *arena)
{
    struct slice name = json_text(json_find(operation, SLICE_LIT("op")));
    struct slice path = json_text(json_find(operation, SLICE_LIT("path")));
    const struct json_value *value = json_find(operation, SLICE_LIT("value"));
    if ((value == NULL) != slice_is(name, "remove")) {
        return false;
    }
    if (path.len == 0) {
        *root = value == NULL ? NULL : node_new(arena, value, SLICE_EMPTY);
        return value != NULL;
    }
    struct node *parent = *root;
    struct slice step = next_step(arena, &path);
    while (path.len > 0) {
        parent = *child_link(parent, step);
        if (parent == NULL) {
            return false;
        }
        step = next_step(arena, &path);
    }
    return (parent->value->type == JSON_OBJECT || parent->value->type == JSON_ARRAY) &&
           change(parent, step, name, value, arena);
}

static void put_node(const struct node *node, struct buf *out)
{
    bool object = node->value->type == JSON_OBJECT;
    if (!object && node->value->type != JSON_ARRAY) {
        if (node->value->type == JSON_NUMBER) {
            buf_slice(out, json_text(node->value)); /* as written, lossy or not */
        } else {
            ASSERT(jcs_write(node->value, out, NULL, NULL) == OK);
        }
        return;
    }
    buf_char(out, object ? '{' : '[');
    for (const struct node *child = node->first; child != NULL; child = child->next) {
        if (object) {
            jcs_put_string(out, child->name);
            buf_char(out, ':');
        }
        put_node(child, out);
        if (child->next != NULL) {
            buf_char(out, ',');
        }
    }
    buf_char(out, object ? '}' : ']');
}

bool patch_apply(const struct json_value *value, const struct json_value *patch,
    struct arena *arena, struct buf *out)
{
    struct node *root = node_new(arena, value, SLICE_EMPTY);
    if (patch->type != JSON_ARRAY) {
        return false;
    }
    for (uint32_t i = 0; i < patch->count; i++) {
        if (!apply_one(&root, &patch->items[i], arena)) {
            return false;
        }
    }
    put_node(root, out);
    return true;
}

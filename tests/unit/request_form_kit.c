#include "request_form_kit.h"

#include <stdio.h>

#include "base/limits.h"
#include "check_c.h"

void keyed(const void *context, const struct digest *plain, struct digest *ret_keyed)
{
    digest_hmac(context, strlen(context), plain->bytes, sizeof plain->bytes, ret_keyed);
}

struct request_form_parts request(const char *body)
{
    return (struct request_form_parts){.method = SLICE_LIT("POST"),
        .path = SLICE_LIT("/v1/payments"),
        .content_type = SLICE_LIT("application/json"),
        .body = slice_str(body),
        .keyed = keyed,
        .context = "key"};
}

int set_up(void **state)
{
    struct fixture *f = mem_zalloc(&mem_libc, 1, sizeof *f);
    arena_init(&f->arena, &mem_libc, MEMORY_MAX);
    buf_init(&f->text, &mem_libc, MEMORY_MAX);
    buf_init(&f->other, &mem_libc, MEMORY_MAX);
    buf_init(&f->out, &mem_libc, MEMORY_MAX);
    f->prng.state = 42;
    *state = f;
    return 0;
}

int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->text);
    buf_release(&f->other);
    buf_release(&f->out);
    mem_free(&mem_libc, f);
    return 0;
}

struct request_form read_from(struct fixture *f, const struct request_form_parts *from)
{
    struct request_form asked;
    assert_int_equal(request_form_read(from, &f->arena, &asked), OK);
    assert_true(asked.kept.len > 0 && asked.kept.len <= LIMIT_REQUEST_KEPT_BYTES_MAX);
    return asked;
}

struct request_form read_body(struct fixture *f, const char *body)
{
    struct request_form_parts from = request(body);
    return read_from(f, &from);
}

bool same(const struct request_form *a, const struct request_form *b)
{
    return digest_equal(&a->fingerprint, &b->fingerprint);
}

bool contains(struct slice text, const char *word)
{
    return memmem(text.data, text.len, word, strlen(word)) != NULL;
}

static unsigned grow(struct model *model, struct prng *prng, unsigned parent, int depth)
{
    unsigned at = model->count++;
    struct node node = {.name = model->given++, .value = model->given++, .parent = parent};
    node.kind = depth == 0 ? SCALAR : (enum node_kind)prng_below(prng, 3);
    node.kind = at == 0 && node.kind == SCALAR ? OBJECT : node.kind;
    for (uint64_t left = node.kind == SCALAR ? 0 : prng_below(prng, 5); left > 0; left--) {
        node.child[node.count] = grow(model, prng, at, depth - 1);
        node.count++;
    }
    model->nodes[at] = node;
    return at;
}

void new_model(struct model *model, struct prng *prng)
{
    do {
        *model = (struct model){.count = 0};
        (void)grow(model, prng, 0, 3);
    } while (model->count < 2);
}

unsigned any_place(const struct model *model, struct prng *prng)
{
    return 1 + (unsigned)prng_below(prng, model->count - 1);
}

bool is_below(const struct model *model, unsigned at, unsigned top)
{
    while (at != top && at != 0) {
        at = model->nodes[at].parent;
    }
    return at == top;
}

/* Some names have to be escaped in pointers. */
static const char *name_tail(unsigned name)
{
    return name % 3 == 0 ? "~/" : "";
}

/* A spelling of a scalar: the plain one, or any. */
static void put_scalar(const struct node *node, struct prng *prng, struct buf *out)
{
    static const char *const strings[] = {"\"v%u_\"", "\"\\u0076%u_\"", "\"v%u\\u005f\""};
    static const char *const numbers[] = {"7%06u", "7%06u.0", "7%06u0e-1", "7%06uE+0"};
    if (node->value % 2 == 0) {
        buf_printf(out, strings[prng == NULL ? 0 : prng_below(prng, 3)], node->value);
    } else {
        buf_printf(out, numbers[prng == NULL ? 0 : prng_below(prng, 4)], node->value);
    }
}

static void put_gap(struct prng *prng, struct buf *out)
{
    buf_str(out, prng != NULL && prng_once_in(prng, 4) ? " \n" : "");
}

/* With a source of randomness: members in any order, and everything in any spelling. */
static void put_node(const struct model *model, unsigned at, struct prng *prng, struct buf *out)
{
    const struct node *node = &model->nodes[at];
    if (node->kind == SCALAR) {
        put_scalar(node, prng, out);
        return;
    }
    unsigned order[4];
    for (unsigned i = 0; i < node->count; i++) {
        unsigned other =
            prng == NULL || node->kind == ARRAY ? i : (unsigned)prng_below(prng, i + 1);
        order[i] = order[other];
        order[other] = node->child[i];
    }
    bool any = false;
    buf_char(out, node->kind == OBJECT ? '{' : '[');
    for (unsigned i = 0; i < node->count; i++) {
        const struct node *child = &model->nodes[order[i]];
        if (!child->is_gone) {
            buf_str(out, any ? "," : "");
            put_gap(prng, out);
            if (node->kind == OBJECT) {
                buf_printf(out, "\"n%u_%s\":", child->name, name_tail(child->name));
            }
            put_node(model, order[i], prng, out);
            any = true;
        }
    }
    put_gap(prng, out);
    buf_char(out, node->kind == OBJECT ? '}' : ']');
}

struct slice body_of(const struct model *model, struct prng *prng, struct buf *out)
{
    buf_clear(out);
    put_node(model, 0, prng, out);
    assert_int_equal(buf_status(out), OK);
    return buf_view(out);
}

static size_t put_pointer(const struct model *model, unsigned at, char *ret_text)
{
    if (at == 0) {
        return 0;
    }
    const struct node *node = &model->nodes[at];
    const struct node *parent = &model->nodes[node->parent];
    size_t len = put_pointer(model, node->parent, ret_text);
    if (parent->kind == OBJECT) {
        const char *tail = name_tail(node->name)[0] == '\0' ? "" : "~0~1";
        return len + (size_t)snprintf(ret_text + len, 32, "/n%u_%s", node->name, tail);
    }
    unsigned index = 0;
    while (parent->child[index] != at) {
        index++;
    }
    return len + (size_t)snprintf(ret_text + len, 32, "/%u", index);
}

void draw_places(struct places *places, const struct model *model, struct prng *prng)
{
    places->count = 1 + prng_below(prng, POINTERS);
    for (size_t i = 0; i < places->count; i++) {
        places->at[i] = any_place(model, prng);
        places->text[i][0] = '\0';
        (void)put_pointer(model, places->at[i], places->text[i]);
        places->pointers[i] = places->text[i];
    }
}

bool is_covered(const struct places *places, const struct model *model, unsigned at)
{
    bool covered = false;
    for (size_t i = 0; i < places->count; i++) {
        covered = covered || is_below(model, at, places->at[i]);
    }
    return covered;
}

void change_value(struct model *model, unsigned at)
{
    struct node *node = &model->nodes[at];
    node->kind = SCALAR;
    node->value = model->given++;
    node->count = 0;
}

void change(struct model *model, unsigned at, struct prng *prng)
{
    struct node *node = &model->nodes[at];
    uint64_t how = prng_below(prng, 3);
    if (how == 0 && model->nodes[node->parent].kind == OBJECT) {
        node->name = model->given++;
    } else if (how == 1) {
        node->is_gone = true;
    } else {
        change_value(model, at);
    }
}

struct request_form read_model(struct fixture *f, const struct model *model, struct buf *text)
{
    struct request_form_parts from = request("");
    from.body = body_of(model, &f->prng, text);
    return read_from(f, &from);
}

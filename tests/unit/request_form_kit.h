/*
 * request_form_kit: requests for the tests of what they ask. Random bodies are made as a model of
 * their own, which can be spelled in many ways, changed in one place, and written without some
 * places.
 */
#ifndef ONCE_TESTS_UNIT_REQUEST_FORM_KIT_H
#define ONCE_TESTS_UNIT_REQUEST_FORM_KIT_H

#include "gateway/request_form.h"
#include "prng.h"

enum {
    MEMORY_MAX = 64 << 20,
    ROUNDS = 4000,
    NODES_MAX = 85,    /* of one model: three levels of at most four */
    POINTERS = 3,      /* at a time */
    POINTER_MAX = 256, /* bytes */
};

struct fixture {
    struct arena arena;
    struct buf text, other, out;
    struct prng prng;
};

int set_up(void **state);
int tear_down(void **state);

/* Stands for the store's key: any function of the digest will do that is not the identity. */
void keyed(const void *context, const struct digest *plain, struct digest *ret_keyed);
/* A POST of JSON. */
struct request_form_parts request(const char *body);
struct request_form read_from(struct fixture *f, const struct request_form_parts *from);
struct request_form read_body(struct fixture *f, const char *body);
bool same(const struct request_form *a, const struct request_form *b);
bool contains(struct slice text, const char *word);

enum node_kind { SCALAR, ARRAY, OBJECT };

struct node {
    enum node_kind kind;
    unsigned name;   /* of a member; no two are alike */
    unsigned value;  /* of a scalar; no two are alike */
    unsigned parent; /* the root is its own */
    unsigned child[4];
    unsigned count; /* of children */
    bool is_gone;   /* not written */
};

struct model {
    struct node nodes[NODES_MAX];
    unsigned count;
    unsigned given; /* names and values given out */
};

/* Some places of a model, as pointers. */
struct places {
    unsigned at[POINTERS];
    char text[POINTERS][POINTER_MAX];
    const char *pointers[POINTERS];
    size_t count;
};

/* With a place below the root to do something to. */
void new_model(struct model *model, struct prng *prng);
unsigned any_place(const struct model *model, struct prng *prng);
bool is_below(const struct model *model, unsigned at, unsigned top);
/* As JSON. With a source of randomness: members in any order, and everything in any spelling. */
struct slice body_of(const struct model *model, struct prng *prng, struct buf *out);
void draw_places(struct places *places, const struct model *model, struct prng *prng);
bool is_covered(const struct places *places, const struct model *model, unsigned at);
/* Another value, another name, or no such place at all. */
void change(struct model *model, unsigned at, struct prng *prng);
/* Another value, so that every pointer leads where it did. */
void change_value(struct model *model, unsigned at);
struct request_form read_model(struct fixture *f, const struct model *model, struct buf *text);

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif

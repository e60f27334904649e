/*
 * lib_help: what the tests of libonce share: a store to open, and short forms of the calls.
 */
#ifndef ONCE_TESTS_LIB_LIB_HELP_H
#define ONCE_TESTS_LIB_LIB_HELP_H

#include "check_c.h"
#include "once/once.h"

/* "mem" or "journal"; the first argument of the program. */
extern const char *store_kind;

/* A fresh place for a store, and its URL. A journal's directory is removed by place_release. */
struct place {
    char directory[64]; /* empty for mem */
    char url[96];
};

void place_init(struct place *where);
void place_release(struct place *where);

struct once *open_url(const char *url, const char *tenant);
void close_once(struct once *handle);

/* What most tests use: a store that is opened before and closed and removed after each. */
extern struct place place;
extern struct once *once;
int open_place(void **state);
int close_place(void **state);
/* Close and open it again, as another tenant perhaps. */
void reopen_place(const char *tenant);
#define ON_STORE(name) cmocka_unit_test_setup_teardown(name, open_place, close_place)

/* Of the open store; any may be NULL. */
void free_answers(struct once_answer *a, struct once_answer *b, struct once_answer *c);

/* Each fails the test unless the call returns ONCE_OK. */
struct once_answer *begin_with(struct once *handle, const struct once_begin *begin);
struct once_answer *begin_key(struct once *handle, const char *key, const char *payload);
struct once_answer *seal_text(
    struct once *handle, const struct once_answer *grant, const char *body);
struct once_operation *get_one(struct once *handle, const char *operation_id);
/* Visitors that count into a size_t. */
int count_entry(void *context, const struct once_entry *entry);
int count_operation(void *context, const struct once_operation *operation);
void sleep_ms(int ms);

#endif

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

void place_init(struct place *place);
void place_release(struct place *place);

struct once *open_url(const char *url, const char *tenant);
void close_once(struct once *once);

/* Each fails the test unless the call returns ONCE_OK. */
struct once_answer *begin_with(struct once *once, const struct once_begin *begin);
struct once_answer *begin_key(struct once *once, const char *key, const char *payload);
struct once_answer *seal_text(struct once *once, const struct once_answer *grant, const char *body);
struct once_operation *get_one(struct once *once, const char *operation_id);
void sleep_ms(int ms);

#endif

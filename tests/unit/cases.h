/*
 * cases: the records and requests that the tests of the decision are made of.
 */
#ifndef ONCE_TESTS_UNIT_CASES_H
#define ONCE_TESTS_UNIT_CASES_H

#include "core/decide.h"

enum {
    START_MS = 1000000,
    LEASE_MS = 10,
    LEASE_MS_OTHER = 15,
    WINDOW_MS = 100,
    WINDOW_MS_OTHER = 70,
    FENCE = 50,
    DELAY_MS = 5,           /* until a due */
    DUE_MS = START_MS + 20, /* of what shape() left pending, waiting or unknown */
    LIVING = 7,             /* an incarnation of ours … */
    GONE = 8,               /* … and an earlier one, which holds what shape() left in progress */
};

extern const struct digest print_a;
extern const struct digest print_b;

struct record_key the_key(void);
struct record_key key_as(enum record_kind kind);
/* 0 is what shape() sealed with; 1 to 4 differ from it in one thing each; 5 is nothing at all. */
struct outcome outcome_of(int which);
/* A record as some history left it at START_MS. */
struct record shape(enum record_status status);
struct record shape_as(enum record_kind kind, enum record_status status);
struct request begin_request(void);
/* A begin or an enqueue of such a record. */
struct request first_request(enum request_kind request, enum record_kind kind);
/* What the holder of that record's grant would ask; seal and resolve with outcome 0. */
struct request holder_request(enum request_kind kind, const struct record *record);

#endif

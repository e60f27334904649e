/*
 * model: the decision once more, as two tables.
 *
 * Written from the table of docs/formats/evidence.md (lifecycle_state) and from the rule lists that
 * decide.h promises, not from decide.c: a list of rows "when these facts hold and those do not, say
 * this and do that", and a table of what each doing does to each field. The tests hold decide()
 * against it for every small state, so that a slip has to be made twice, in two different shapes.
 */
#ifndef ONCE_TESTS_UNIT_MODEL_H
#define ONCE_TESTS_UNIT_MODEL_H

#include "core/decide.h"

/* What decide ought to answer to the same arguments. */
struct decision model_decide(
    const struct record *found, const struct request *request, struct decide_moment moment);

/* Every rule there is, ended by NULL. */
extern const char *const model_rules[];

/* The same in every field; slices by their bytes. */
bool model_same_record(const struct record *a, const struct record *b);
bool model_same_outcome(const struct outcome *a, const struct outcome *b);

#endif

/*
 * name: the rule for every name that people and programs give: tenant, scope, principal, key,
 * effect id, actor, and the type, id and version of a source.
 *
 * A name is UTF-8 (RFC 3629) without control characters (Unicode's category Cc: U+0000 to U+001F
 * and U+007F to U+009F). It can therefore be shown in a terminal, a log, a label of /metrics and a
 * document as it is, and two names that look alike to a C string are the same.
 *
 * Promises:  an invalid name is refused when it is given, by every door, and never when it is read:
 *            records from before this rule stay readable.
 * Does not:  limit the length; limits.h does.
 */
#ifndef ONCE_BASE_NAME_H
#define ONCE_BASE_NAME_H

#include <stdbool.h>

#include "base/err.h"
#include "base/slice.h"

bool name_valid(struct slice name);
/* E_INVALID says what is wrong with the member, and at which byte, counted from 0: "key has the
 * control character U+0000 at byte 1", "key is not valid UTF-8: 0xff at byte 0". */
enum status name_check(const char *member, struct slice name, struct err *err) MUST_CHECK;

/* For texts that may have control characters, such as reasons: checks only that it is UTF-8. */
enum status name_check_utf8(const char *member, struct slice text, struct err *err) MUST_CHECK;

#endif

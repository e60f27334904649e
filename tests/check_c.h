/*
 * check_c: what every cmocka test includes, in the order cmocka needs.
 */
#ifndef ONCE_TESTS_CHECK_C_H
#define ONCE_TESTS_CHECK_C_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* last: it uses all of the above and includes none of it */
/* clang-format on */

#define TEST(name) cmocka_unit_test(name)

#endif

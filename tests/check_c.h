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
#include <stdlib.h>

#include <cmocka.h> /* last: it uses all of the above and includes none of it */
/* clang-format on */

#define TEST(name) cmocka_unit_test(name)

/* With ONCE_TEST_ONLY=NAME a program runs that test alone: tools/mutants asks for one at a time. */
__attribute__((constructor)) static void take_the_filter(void)
{
    const char *only = getenv("ONCE_TEST_ONLY");
    if (only) {
        cmocka_set_test_filter(only);
    }
}

#endif

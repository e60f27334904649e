#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(
        stderr, "once: internal error: '%s' does not hold at %s:%d\n", condition, file, line);
    abort();
}

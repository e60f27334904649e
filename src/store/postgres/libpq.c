#include "store/postgres/libpq.h"

#include "base/check.h"

struct libpq libpq;

enum status libpq_load(struct err *err)
{
    static const char *const names[] = {LIBPQ_FUNCTIONS(LIBRARY_NAME)};
    static struct library library = {.file = "libpq.so.5",
        .package = "libpq5",
        .names = names,
        .count = COUNT(names),
        .table = &libpq,
        .lock = PTHREAD_MUTEX_INITIALIZER};
    static_assert(sizeof libpq == COUNT(names) * sizeof(void *), "one pointer for each name");
    return library_load(&library, err);
}

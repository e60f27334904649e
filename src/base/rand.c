#include "base/rand.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

enum status rand_bytes(void *ret_bytes, size_t size, struct err *err)
{
    char *at = ret_bytes;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return err_errno(err, E_UNAVAILABLE, errno, "cannot get random bytes");
        }
        at += got;
        size -= (size_t)got;
    }
    return OK;
}

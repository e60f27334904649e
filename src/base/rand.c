#include "base/rand.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

#include "base/mem.h"

/* A byte is given out once, and a child of fork() gives up the stock of its parent (RA1). */
enum {
    STOCK_TAKE_BYTES_MAX = 24, /* of one request: a UUID, a trace */
    STOCK_BYTES = 32 * STOCK_TAKE_BYTES_MAX,
};

static _Thread_local struct {
    unsigned char bytes[STOCK_BYTES];
    size_t left; /* of them, at the beginning */
} stock;

static pthread_once_t stock_once = PTHREAD_ONCE_INIT;
static bool has_stock; /* written once, before any thread reads it */

static void leave_stock(void)
{
    stock.left = 0;
}

static void watch_forks(void)
{
    has_stock = pthread_atfork(NULL, NULL, leave_stock) == 0;
}

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

enum status rand_names(void *ret_bytes, size_t size, struct err *err)
{
    (void)pthread_once(&stock_once, watch_forks);
    if (size > STOCK_TAKE_BYTES_MAX || !has_stock) {
        return rand_bytes(ret_bytes, size, err);
    }
    if (stock.left < size) {
        enum status status = rand_bytes(stock.bytes, sizeof stock.bytes, err);
        if (status != OK) {
            return status; /* what is left stays */
        }
        stock.left = sizeof stock.bytes;
    }
    stock.left -= size;
    memcpy(ret_bytes, stock.bytes + stock.left, size);
    mem_wipe(stock.bytes + stock.left, size);
    return OK;
}

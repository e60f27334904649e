#include "client/wait.h"

#include <stdbool.h>

#include "base/backoff.h"
#include "base/check.h"
#include "base/text.h"
#include "client/libcurl.h"

enum {
    DATE_BYTES_MAX = 64,             /* the longest of the three forms has 33 */
    AFTER_SECONDS_MAX = 365 * 86400, /* longer values are cut to this; keeps sums small */
};

int64_t client_wait_ms(const struct client_wait *wait)
{
    ASSERT(wait->base_ms >= 0 && wait->max_ms >= 0);
    ASSERT(wait->after_ms >= 0);
    int64_t spare = wait->left_ms - wait->after_ms;
    if (spare <= 0) {
        return -1;
    }
    int64_t ceiling_ms = backoff_ceiling_ms(wait->base_ms, wait->max_ms, wait->retry);
    int64_t jitter = backoff_jitter_ms(ceiling_ms, wait->random);
    if (jitter >= spare) {
        jitter = spare / 2; /* the other half is for the attempt */
    }
    return wait->after_ms + jitter;
}

static bool read_date(struct slice text, int64_t *ret_ms)
{
    char date[DATE_BYTES_MAX];
    if (text.len >= sizeof date || memchr(text.data, '\0', text.len) != NULL) {
        return false;
    }
    memcpy(date, text.data, text.len);
    date[text.len] = '\0';
    time_t seconds = curl_getdate(date, NULL);
    *ret_ms = (int64_t)seconds * 1000;
    return seconds >= 0;
}

int64_t client_retry_after_ms(struct slice text, int64_t wall_ms)
{
    uint64_t seconds = 0;
    int64_t ms = 0;
    if (text_u64(text, &seconds)) {
        return (int64_t)(seconds < AFTER_SECONDS_MAX ? seconds : AFTER_SECONDS_MAX) * 1000;
    }
    if (text.len == 0 || !read_date(text, &ms) || ms <= wall_ms) {
        return 0;
    }
    ms -= wall_ms;
    return ms < INT64_C(1000) * AFTER_SECONDS_MAX ? ms : INT64_C(1000) * AFTER_SECONDS_MAX;
}

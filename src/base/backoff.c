#include "base/backoff.h"

#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    DOUBLED_MAX = 40, /* by then every ceiling is at its maximum */
    DATE_BYTES = 29,  /* "Sun, 06 Nov 1994 08:49:37 GMT" */
    AFTER_SECONDS_MAX = 365 * 86400,
};

int64_t backoff_ceiling_ms(int64_t first_ms, int64_t max_ms, unsigned tries)
{
    ASSERT(first_ms >= 0 && max_ms >= 0);
    int64_t ceiling = first_ms;
    for (unsigned i = 0; i < tries && i < DOUBLED_MAX; i++) {
        ceiling = clock_doubled_ms(ceiling, max_ms);
    }
    return ceiling < max_ms ? ceiling : max_ms;
}

int64_t backoff_jitter_ms(int64_t ceiling_ms, uint64_t random)
{
    ASSERT(ceiling_ms >= 0);
    return (int64_t)(random % ((uint64_t)ceiling_ms + 1));
}

/* IMF-fixdate, as RFC 3339 spells it. */
static bool read_date(struct slice text, int64_t *ret_ms)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char stamp[32];
    if (text.len != DATE_BYTES || memcmp(text.data + 25, " GMT", 4) != 0 || text.data[3] != ',' ||
        text.data[4] != ' ' || text.data[7] != ' ' || text.data[11] != ' ') {
        return false;
    }
    const char *date = text.data;
    int month = 0;
    while (month < 12 && memcmp(months + (size_t)3 * (size_t)month, date + 8, 3) != 0) {
        month++;
    }
    if (month == 12) {
        return false;
    }
    int len = snprintf(
        stamp, sizeof stamp, "%.4s-%02d-%.2sT%.8s.000Z", date + 12, month + 1, date + 5, date + 17);
    return len > 0 && (size_t)len < sizeof stamp && text_time(slice_of(stamp, (size_t)len), ret_ms);
}

int64_t backoff_retry_after_ms(struct slice text, int64_t now_ms)
{
    const int64_t most_ms = INT64_C(1000) * AFTER_SECONDS_MAX;
    uint64_t seconds = 0;
    int64_t ms = 0;
    if (text_u64(text, &seconds)) {
        return (int64_t)(seconds < AFTER_SECONDS_MAX ? seconds : AFTER_SECONDS_MAX) * 1000;
    }
    if (!read_date(text, &ms) || ms <= now_ms) {
        return 0;
    }
    return ms - now_ms < most_ms ? ms - now_ms : most_ms;
}

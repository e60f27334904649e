#include "dispatch/rate.h"

bool rate_take(struct rate *rate, double per_second, int64_t now_ms, int64_t *ret_wait_ms)
{
    if (per_second <= 0) {
        return true;
    }
    double size = per_second > 1 ? per_second : 1;
    if (now_ms > rate->at_ms) {
        rate->used -= (double)(now_ms - rate->at_ms) / 1000 * per_second;
        rate->used = rate->used < 0 ? 0 : rate->used;
        rate->at_ms = now_ms;
    }
    if (rate->used + 1 > size + 1e-9) {
        *ret_wait_ms = (int64_t)((rate->used + 1 - size) / per_second * 1000) + 1;
        return false;
    }
    rate->used += 1;
    return true;
}

void rate_return(struct rate *rate)
{
    rate->used = rate->used > 1 ? rate->used - 1 : 0;
}

#include "http/width.h"

#include <stdbool.h>

#include "base/check.h"

void width_init(struct width *width, unsigned loops)
{
    ASSERT(loops > 0);
    *width = (struct width){.loops = loops, .serving = 1, .patience_ns = WIDTH_PATIENCE_NS};
}

void width_check(const struct width *width)
{
    ASSERT(width->serving >= 1 && width->serving <= width->loops);
    ASSERT(width->patience_ns >= WIDTH_PATIENCE_NS && width->patience_ns <= WIDTH_PATIENCE_NS_MAX);
    ASSERT(width->hot_ns == 0 || width->calm_ns == 0);
}

void width_took(struct width *width, uint64_t busy_ns)
{
    busy_ns = busy_ns < WIDTH_GAP_NS ? busy_ns : WIDTH_GAP_NS;
    width->total_ns += busy_ns;
    width->busiest_ns = busy_ns > width->busiest_ns ? busy_ns : width->busiest_ns;
}

static void widen(struct width *width, uint64_t now_ns)
{
    bool soon =
        width->narrowed_ns > 0 && now_ns - width->narrowed_ns < WIDTH_SOON * width->patience_ns;
    uint64_t twice = width->patience_ns * 2;
    width->patience_ns = !soon                           ? WIDTH_PATIENCE_NS
                         : twice < WIDTH_PATIENCE_NS_MAX ? twice
                                                         : WIDTH_PATIENCE_NS_MAX;
    width->narrowed_ns = 0;
    width->hot_ns = 0;
    width->serving++;
}

static void narrow(struct width *width, uint64_t now_ns)
{
    width->narrowed_ns = now_ns;
    width->calm_ns = 0;
    width->serving--;
}

static void decide(struct width *width, uint64_t took_ns, uint64_t now_ns)
{
    uint64_t fits = took_ns * WIDTH_FIT_PERCENT * (width->serving - 1);
    bool is_hot = width->busiest_ns * 100 >= took_ns * WIDTH_HOT_PERCENT;
    bool is_calm = !is_hot && width->total_ns * 100 < fits;
    took_ns = took_ns < WIDTH_SAMPLE_NS ? took_ns : WIDTH_SAMPLE_NS;
    width->hot_ns = is_hot ? width->hot_ns + took_ns : 0;
    width->calm_ns = is_calm ? width->calm_ns + took_ns : 0;
    if (width->hot_ns >= WIDTH_HOT_NS && width->serving < width->loops) {
        widen(width, now_ns);
    } else if (width->calm_ns >= width->patience_ns) {
        narrow(width, now_ns);
    }
}

unsigned width_sampled(struct width *width, uint64_t now_ns)
{
    bool is_one = width->at_ns > 0 && now_ns > width->at_ns && now_ns - width->at_ns < WIDTH_GAP_NS;
    if (is_one) {
        decide(width, now_ns - width->at_ns, now_ns);
    } else {
        width->hot_ns = 0;
        width->calm_ns = 0;
    }
    width->at_ns = now_ns;
    width->busiest_ns = 0;
    width->total_ns = 0;
    width_check(width);
    return width->serving;
}

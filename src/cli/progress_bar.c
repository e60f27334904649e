#include "cli/progress_bar.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

enum { BAR_CELLS = 30, BAR_EVERY_MS = 100 };

void bar_init(struct bar *bar)
{
    *bar = (struct bar){.start_ns = clock_nanos(), .is_shown = isatty(STDERR_FILENO) == 1};
}

double bar_seconds(const struct bar *bar)
{
    double seconds = (double)(clock_nanos() - bar->start_ns) / 1e9;
    return seconds > 1e-6 ? seconds : 1e-6;
}

void bar_draw(struct bar *bar, uint64_t bytes_done, uint64_t bytes_total, const char *format, ...)
{
    uint64_t nanos = clock_nanos();
    bool as_line = !bar->is_shown && bar->in_lines;
    uint64_t last_ns = as_line && bar->shown_ns == 0 ? bar->start_ns : bar->shown_ns;
    uint64_t every_ms = as_line ? UINT64_C(1000) * BAR_LINE_S : (uint64_t)BAR_EVERY_MS;
    if ((!bar->is_shown && !as_line) || nanos - last_ns < every_ms * 1000000) {
        return;
    }
    char rate[32];
    char text[64];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    double done = bytes_total == 0 ? 0 : (double)bytes_done / (double)bytes_total;
    done = done > 1 ? 1 : done;
    int cells = (int)(done * BAR_CELLS);
    bar->shown_ns = nanos;
    uint64_t speed = (uint64_t)((double)bytes_done / bar_seconds(bar));
    if (bar->counts) {
        (void)snprintf(rate, sizeof rate, "%llu", (unsigned long long)speed);
    } else {
        text_put_size(rate, speed);
    }
    if (as_line) {
        (void)fprintf(stderr, "once: %s, %d%%\n", text, (int)(done * 100));
        return;
    }
    (void)fprintf(stderr, "\r[%.*s%*s] %3d%%  %s  %s/s \033[K", cells,
        "##############################", BAR_CELLS - cells, "", (int)(done * 100), text, rate);
}

void bar_clear(struct bar *bar)
{
    if (bar->is_shown && bar->shown_ns != 0) {
        (void)fprintf(stderr, "\r\033[K");
        bar->shown_ns = 0;
    }
}

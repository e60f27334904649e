#include "bench.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TREE_FILES_OPEN = 16, /* descriptors that removing a directory may use */
    SLOT_BITS = 5,        /* 32 slots for each doubling of the time */
};

const char *bench_text(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t len = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, len) == 0 && argv[i][len] == '=') {
            return argv[i] + len + 1;
        }
    }
    return otherwise;
}

double bench_number(int argc, char **argv, const char *name, double otherwise)
{
    const char *text = bench_text(argc, argv, name, NULL);
    if (text == NULL) {
        return otherwise;
    }
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0') {
        bench_fail("'%s' is not a number: %s", name, text);
    }
    return value;
}

size_t bench_rounds(int argc, char **argv, size_t otherwise)
{
    double rounds = bench_number(argc, argv, "rounds", (double)otherwise);
    if (rounds < 1 || rounds > BENCH_ROUNDS_MAX) {
        bench_fail("rounds is between 1 and %d", BENCH_ROUNDS_MAX);
    }
    return (size_t)rounds;
}

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "bench: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void bench_must(enum status status, const struct err *err, const char *what)
{
    if (status != OK) {
        bench_fail("%s: %s (%s)", what, err->text, status_name(status));
    }
}

void bench_must_errno(int64_t result, const char *what)
{
    if (result < 0) {
        bench_fail("%s: %s", what, strerror(errno));
    }
}

void bench_progress(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
}

double bench_cpu_s(void)
{
    struct rusage usage;
    bench_must_errno(getrusage(RUSAGE_SELF, &usage), "getrusage");
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

uint64_t bench_resident_bytes(void)
{
    unsigned long long pages_all, pages_in, pages_shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%llu %llu %llu", &pages_all, &pages_in, &pages_shared) != 3) {
        bench_fail("cannot read /proc/self/statm");
    }
    (void)fclose(file);
    return (pages_in - pages_shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* ---- times --------------------------------------------------------------------------------- */

static unsigned slot_of(uint64_t nanos)
{
    if (nanos < (1u << SLOT_BITS)) {
        return (unsigned)nanos;
    }
    unsigned octave = 63 - (unsigned)__builtin_clzll(nanos) - SLOT_BITS;
    return ((octave + 1) << SLOT_BITS) + (unsigned)(nanos >> octave & ((1u << SLOT_BITS) - 1));
}

/* The middle of a slot. */
static double slot_nanos(unsigned slot)
{
    unsigned octave = slot >> SLOT_BITS;
    double within = slot & ((1u << SLOT_BITS) - 1);
    if (octave == 0) {
        return within;
    }
    return (within + (1u << SLOT_BITS) + 0.5) * (double)(UINT64_C(1) << (octave - 1));
}

void bench_times_add(struct bench_times *times, uint64_t nanos)
{
    times->count++;
    times->slots[slot_of(nanos)]++;
}

double bench_times_us(const struct bench_times *times, double part)
{
    uint64_t wanted = (uint64_t)(part * (double)times->count);
    uint64_t seen = 0;
    for (unsigned i = 0; i < sizeof times->slots / sizeof *times->slots; i++) {
        seen += times->slots[i];
        if (seen > wanted) {
            return slot_nanos(i) / 1e3;
        }
    }
    return 0;
}

/* ---- places -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

void bench_dir_remove(const char *path)
{
    if (nftw(path, remove_one, TREE_FILES_OPEN, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        bench_fail("cannot remove '%s': %s", path, strerror(errno));
    }
}

void bench_dir_make(char ret_path[BENCH_PATH_MAX], const char *base, const char *name)
{
    int len = snprintf(ret_path, BENCH_PATH_MAX, "%s/%s", base, name);
    if (len < 0 || len >= BENCH_PATH_MAX) {
        bench_fail("the path of '%s' is too long", name);
    }
    if (mkdir(base, 0777) != 0 && errno != EEXIST) {
        bench_fail("cannot make '%s': %s", base, strerror(errno));
    }
    bench_dir_remove(ret_path);
    bench_must_errno(mkdir(ret_path, 0777), ret_path);
}

/* ---- results ------------------------------------------------------------------------------- */

void bench_report(const struct bench_row *row)
{
    static const char *const better[] = {
        [BENCH_INFO] = "info", [BENCH_AT_LEAST] = "at_least", [BENCH_AT_MOST] = "at_most"};
    (void)printf("{\"id\":\"%s\",\"what\":\"%s\",\"figure\":%.6g,\"unit\":\"%s\"", row->id,
        row->what, row->figure, row->unit);
    if (row->compared != NULL) {
        (void)printf(
            ",\"compared\":\"%s\",\"compared_figure\":%.6g", row->compared, row->compared_figure);
    }
    if (row->ratios != NULL) {
        double median = bench_median(row->ratios, row->rounds);
        (void)printf(",\"ratio\":%.4g,\"ratio_low\":%.4g,\"ratio_high\":%.4g", median,
            row->ratios[0], row->ratios[row->rounds - 1]);
    }
    if (row->better != BENCH_INFO) {
        (void)printf(",\"bar\":%g", row->bar);
    }
    (void)printf(",\"better\":\"%s\"%s%s}\n", better[row->better], row->detail == NULL ? "" : ",",
        row->detail == NULL ? "" : row->detail);
    (void)fflush(stdout);
}

void bench_skip(const char *id, const char *what, const char *why)
{
    (void)printf("{\"id\":\"%s\",\"what\":\"%s\",\"skipped\":\"%s\"}\n", id, what, why);
    (void)fflush(stdout);
}

/*
 * config_drive: configurations of the gateway as texts: taken, or refused with exactly one fault at
 * a place.
 */
#ifndef ONCE_TESTS_CONFIG_DRIVE_H
#define ONCE_TESTS_CONFIG_DRIVE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_c.h"
#include "config/config.h"
#include "files.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)
#define UP      "upstream: http://127.0.0.1:3000"

struct reading {
    struct config *config;
    struct config_faults faults;
    enum status status;
};

static inline struct reading read_all(const char *text, const char *policy)
{
    struct reading reading = {.config = NULL};
    assert_int_equal(config_new(&mem_libc, &reading.config, NULL), OK);
    reading.status = config_read(reading.config, slice_str(text), &reading.faults);
    if (reading.status == OK && policy != NULL) {
        reading.status = config_policy_read(reading.config, slice_str(policy), &reading.faults);
    }
    if (reading.status == OK) {
        reading.status = config_check(reading.config, &reading.faults);
    }
    return reading;
}

static inline void judge(const char *text, struct reading *reading, unsigned line, unsigned column,
    const char *says, const char *hint)
{
    const struct config_fault *fault = &reading->faults.items[0];
    if (reading->status != E_INVALID || reading->faults.count != 1 || fault->line != line ||
        fault->column != column || strstr(fault->text, says) == NULL ||
        (hint != NULL && (fault->hint == NULL || strstr(fault->hint, hint) == NULL))) {
        fail_msg("%s\nstatus %d, %zu faults; the first: %u:%u: %s (%s)", text, reading->status,
            reading->faults.count, fault->line, fault->column,
            fault->text == NULL ? "" : fault->text, fault->hint == NULL ? "" : fault->hint);
    }
    config_free(reading->config);
}

/* Exactly one fault, at this place, with these words. */
static inline void refuse(
    const char *text, unsigned line, unsigned column, const char *says, const char *hint)
{
    struct reading reading = read_all(text, NULL);
    judge(text, &reading, line, column, says, hint);
}

static inline struct config *take_with(const char *text, const char *policy)
{
    struct reading reading = read_all(text, policy);
    if (reading.status != OK) {
        fail_msg("%s\n%s", text, reading.faults.items[0].text);
    }
    return reading.config;
}

static inline struct config *take(const char *text)
{
    return take_with(text, NULL);
}

/* A file of vectors/opsdeploy, terminated. */
static inline void read_vector(const char *name, struct buf *ret_text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "vectors/opsdeploy/%s", name);
    buf_init(ret_text, &mem_libc, 1 << 20);
    file_read(path, ret_text);
    buf_char(ret_text, '\0');
}

#endif

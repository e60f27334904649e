/*
 * Whatever bytes a configuration has: it is taken whole or refused with a fault at a place inside
 * it, and faults can be shown. What was taken is taken again the same.
 */
#include <stdlib.h>

#include "base/text.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static size_t lines_of(struct slice text)
{
    size_t lines = 1;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.data[i] == '\n';
    }
    return lines;
}

static void check_faults(const struct config_faults *faults, struct slice text)
{
    struct buf shown;
    buf_init(&shown, &mem_libc, 1 << 20);
    for (size_t i = 0; i < faults->count; i++) {
        const struct config_fault *fault = &faults->items[i];
        must(fault->text != NULL && fault->text[0] != '\0');
        must(fault->line <= lines_of(text) && fault->column <= text.len + 1);
        must((fault->line == 0) == (fault->column == 0));
        config_fault_put(&shown, "f", fault);
    }
    must(buf_status(&shown) == OK);
    for (size_t i = 0; i < shown.len; i++) {
        unsigned char c = (unsigned char)shown.data[i];
        must(c == '\n' || (c >= ' ' && c != 127));
    }
    buf_release(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    struct config *config = NULL;
    struct config_faults faults = {.count = 0};
    must(config_new(&mem_libc, &config, NULL) == OK);
    enum status status = config_read(config, text, &faults);
    must(status == OK || status == E_INVALID);
    must((status == OK) == (faults.count == 0));
    if (status == OK) {
        must(text_utf8(text));
        must(config->listen_count > 0 && config->store != NULL);
        (void)!config_check(config, &faults);
    }
    check_faults(&faults, text);
    config_free(config);
    return 0;
}

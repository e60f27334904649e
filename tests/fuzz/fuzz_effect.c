/*
 * fuzz_effect: templates and details of effects, of any bytes.
 *
 * The input is a template, a line feed and JSON for its values. What a template becomes in a path
 * has no byte that could leave its segment, and in a field none that could begin a new line. The
 * whole input is also read as a detail: what is read is written and read again the same.
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "canon/template.h"
#include "envelope/effect.h"

enum { MEMORY_MAX = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Values alone: a template that is one placeholder has no bytes of its own. */
static void check_bytes(struct slice template, struct slice text, enum template_way way)
{
    bool is_alone = template.len > 2 && template.data[0] == '{' &&
                    memchr(template.data, '}', template.len) == template.data + template.len - 1;
    for (size_t i = 0; is_alone && i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        ASSERT(way != TEMPLATE_FIELD || (c >= 0x20 && c != 0x7f));
        ASSERT(way != TEMPLATE_PATH || (c > 0x20 && c < 0x7f && strchr("/?#{}", c) == NULL));
    }
}

static void drive_template(struct slice template, const struct json_value *value, struct mem *mem)
{
    const struct template_root items[] = {{SLICE_LIT("payload"), value}};
    const struct template_roots roots = {.items = items, .count = 1};
    const struct json_value string = template_string(template);
    struct err err;
    for (int way = TEMPLATE_TEXT; way <= TEMPLATE_FIELD; way++) {
        struct buf out;
        buf_init(&out, mem, 1 << 20);
        if (template_put(template, &roots, (enum template_way)way, &out, &err) == OK) {
            check_bytes(template, buf_view(&out), (enum template_way)way);
        }
    }
    struct buf json, values;
    buf_init(&json, mem, 1 << 20);
    buf_init(&values, mem, 1 << 20);
    (void)!template_put_json(&string, &roots, &json, &err);
    (void)!template_put_values(&string, &roots, "later", &values, &err);
}

static void drive_detail(struct slice bytes, struct arena *arena, struct mem *mem)
{
    struct effect_detail detail, again;
    struct buf first, second;
    if (effect_detail_decode(bytes, arena, &detail, NULL) != OK) {
        return;
    }
    buf_init(&first, mem, 16 * LIMIT_DETAIL_BYTES_MAX);
    buf_init(&second, mem, 16 * LIMIT_DETAIL_BYTES_MAX);
    if (effect_detail_encode(&detail, &first, NULL) == OK) {
        ASSERT(effect_detail_decode(buf_view(&first), arena, &again, NULL) == OK);
        ASSERT(effect_detail_encode(&again, &second, NULL) == OK);
        ASSERT(slice_equal(buf_view(&first), buf_view(&second)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"payload", NULL};
    struct arena arena;
    struct slice all = slice_of((const char *)data, size);
    const char *end = size == 0 ? NULL : memchr(all.data, '\n', all.len);
    const struct json_value *value;
    struct err err;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    struct mem mem = arena_mem(&arena);
    if (end != NULL) {
        struct slice template = slice_of(all.data, (size_t)(end - all.data));
        struct slice rest = slice_of(end + 1, all.len - template.len - 1);
        if (json_read(rest, &arena, &value, &err) == OK &&
            template_check(template, names, &err) == OK) {
            drive_template(template, value, &mem);
        }
    }
    drive_detail(all, &arena, &mem);
    arena_release(&arena);
    return 0;
}

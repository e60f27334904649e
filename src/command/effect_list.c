#include "command/effect_list.h"

#include "base/base64.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"

enum { DERIVED = '~', GIVEN = '=', KEY_BYTES = DIGEST_BYTES, KEY_HEX = 2 * KEY_BYTES };

void effect_list_begin(struct effect_list *list, struct buf *out)
{
    *list = (struct effect_list){.json = {.out = out}};
    jsonw_open(&list->json, NULL, '[');
}

static void put_key(struct jsonw *json, struct slice key)
{
    unsigned char bytes[KEY_BYTES];
    char hex[DIGEST_HEX_BYTES];
    char text[1 + BASE64_TEXT_BYTES(KEY_BYTES)] = {DERIVED};
    struct digest digest;
    if (key.len == KEY_HEX && text_hex(key, bytes, sizeof bytes)) {
        memcpy(digest.bytes, bytes, sizeof bytes);
        if (slice_is(key, digest_put_hex(hex, &digest))) { /* not with capitals */
            char *end = base64_put(text + 1, bytes, sizeof bytes, BASE64_URL);
            jsonw_bytes(json, NULL, slice_of(text, (size_t)(end - text)));
            return;
        }
    }
    char given[1 + LIMIT_KEY_BYTES_MAX] = {GIVEN};
    ASSERT(key.len <= LIMIT_KEY_BYTES_MAX); /* R6 */
    memcpy(given + 1, key.data, key.len);
    jsonw_bytes(json, NULL, slice_of(given, key.len + 1));
}

void effect_list_add(struct effect_list *list, const struct record_key *key)
{
    if (!slice_equal(list->type, key->scope)) {
        if (list->type.len > 0) {
            jsonw_close(&list->json, ']');
        }
        jsonw_open(&list->json, NULL, '[');
        jsonw_bytes(&list->json, NULL, key->scope);
        list->type = key->scope;
    }
    put_key(&list->json, key->key);
}

struct slice effect_list_end(struct effect_list *list)
{
    if (list->type.len > 0) {
        jsonw_close(&list->json, ']');
    }
    jsonw_close(&list->json, ']');
    return buf_view(list->json.out);
}

/* ---- in ------------------------------------------------------------------------------------ */

static enum status read_key(struct slice text, struct arena *arena, struct slice *ret_key)
{
    struct digest digest;
    size_t size = 0;
    char bytes[BASE64_BYTES_MAX(BASE64_TEXT_BYTES(KEY_BYTES)) + 1];
    if (text.len > 1 && text.data[0] == GIVEN) {
        *ret_key = slice_of(text.data + 1, text.len - 1);
        return OK;
    }
    if (text.len < 2 || text.len > BASE64_TEXT_BYTES(KEY_BYTES) || text.data[0] != DERIVED ||
        !base64_read(slice_of(text.data + 1, text.len - 1), BASE64_URL, bytes, &size) ||
        size != KEY_BYTES) {
        return E_CORRUPT;
    }
    char *hex = arena_alloc(arena, DIGEST_HEX_BYTES);
    if (hex == NULL) {
        return E_NOMEM;
    }
    memcpy(digest.bytes, bytes, KEY_BYTES);
    *ret_key = slice_str(digest_put_hex(hex, &digest));
    return OK;
}

static enum status read_run(const struct json_value *run, struct arena *arena,
    struct effect_list_item *effects, size_t *count)
{
    if (!json_is(run, JSON_ARRAY) || run->count < 2 || !json_is(&run->items[0], JSON_STRING)) {
        return E_CORRUPT;
    }
    for (uint32_t i = 1; i < run->count; i++) {
        struct effect_list_item *effect = &effects[*count];
        effect->type = json_text(&run->items[0]);
        enum status status = json_is(&run->items[i], JSON_STRING)
                                 ? read_key(json_text(&run->items[i]), arena, &effect->key)
                                 : E_CORRUPT;
        if (status != OK) {
            return status;
        }
        (*count)++;
    }
    return OK;
}

enum status effect_list_read(struct slice text, struct arena *arena,
    struct effect_list_item **ret_effects, size_t *ret_count)
{
    const struct json_value *root = NULL;
    size_t room = 1;
    size_t count = 0;
    enum status status = text.len == 0 ? OK : json_read(text, arena, &root, NULL);
    if (status == OK && root != NULL && !json_is(root, JSON_ARRAY)) {
        status = E_CORRUPT;
    }
    if (status != OK) {
        return status == E_NOMEM ? E_NOMEM : E_CORRUPT;
    }
    for (uint32_t i = 0; root != NULL && i < root->count; i++) {
        room += json_is(&root->items[i], JSON_ARRAY) ? root->items[i].count : 0;
    }
    struct effect_list_item *effects = arena_zalloc(arena, room * sizeof *effects);
    if (effects == NULL) {
        return E_NOMEM;
    }
    for (uint32_t i = 0; status == OK && root != NULL && i < root->count; i++) {
        status = read_run(&root->items[i], arena, effects, &count);
    }
    if (status == OK) {
        *ret_effects = effects;
        *ret_count = count;
    }
    return status;
}

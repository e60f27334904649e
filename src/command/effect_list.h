/*
 * effect_list: the effects of a command, in their order, as short as possible, because they are in
 * the command's record for as long as it lives.
 *
 *     [["payment.capture","~<base64url of a key of 64 hexadecimal digits>","=<any other key>"],
 *      ["mail.send","~…"],…]
 *
 * Effects of one type that follow each other share its name.
 */
#ifndef ONCE_COMMAND_EFFECT_LIST_H
#define ONCE_COMMAND_EFFECT_LIST_H

#include "canon/json.h"
#include "canon/jsonw.h"
#include "core/record.h"

struct effect_list {
    struct jsonw json;
    struct slice type; /* of the run that is open; empty: none */
};

void effect_list_begin(struct effect_list *list, struct buf *out);
/* The key's texts must live until effect_list_end. */
void effect_list_add(struct effect_list *list, const struct record_key *key);
struct slice effect_list_end(struct effect_list *list);

/* One effect of a command. */
struct effect_list_item {
    struct slice type;
    struct slice key;
};
/* Empty text: no effects. E_CORRUPT, E_NOMEM. */
enum status effect_list_read(struct slice text, struct arena *arena,
    struct effect_list_item **ret_effects, size_t *ret_count) MUST_CHECK;

#endif

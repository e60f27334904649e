/*
 * made: the effects of a command, in their order, as short as possible,
 * because they are in the command's record for as long as it lives.
 *
 *     [["payment.capture","~<base64url of a key of 64 hexadecimal digits>","=<any other key>"],
 *      ["mail.send","~…"],…]
 *
 * Effects of one type that follow each other share its name.
 */
#ifndef ONCE_COMMAND_MADE_H
#define ONCE_COMMAND_MADE_H

#include "canon/json.h"
#include "canon/jsonw.h"
#include "core/record.h"

struct made_list {
    struct jsonw json;
    struct slice type; /* of the run that is open; empty: none */
};

void made_begin(struct made_list *list, struct buf *out);
/* The key's texts must live until made_end. */
void made_add(struct made_list *list, const struct record_key *key);
struct slice made_end(struct made_list *list);

/* One effect of a command. */
struct made_effect {
    struct slice type;
    struct slice key;
};
/* Empty text: no effects. E_CORRUPT, E_NOMEM. */
enum status made_read(struct slice text, struct arena *arena, struct made_effect **ret_effects,
    size_t *ret_count) MUST_CHECK;

#endif

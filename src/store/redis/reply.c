/* Parts of answers. All are checked, because they come from the network. */
#include "base/text.h"
#include "store/redis/impl.h"

size_t reply_count(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ARRAY ? (size_t)reply->elements : 0;
}

const redisReply *reply_at(const redisReply *reply, size_t index)
{
    return index < reply_count(reply) ? reply->element[index] : NULL;
}

bool reply_text(const redisReply *reply, struct slice *ret_text)
{
    if (reply == NULL || (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS)) {
        return false;
    }
    *ret_text = slice_of(reply->str, (size_t)reply->len);
    return true;
}

bool reply_u64(const redisReply *reply, uint64_t *ret_value)
{
    struct slice text;
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0) {
        *ret_value = (uint64_t)reply->integer;
        return true;
    }
    return reply_text(reply, &text) && text_u64(text, ret_value);
}

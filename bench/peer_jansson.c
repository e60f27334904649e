#include "peer_jansson.h"

#include <jansson.h>

void *peer_jansson_parse(const char *text, size_t size)
{
    return json_loadb(text, size, 0, NULL);
}

void peer_jansson_free(void *root)
{
    json_decref(root);
}

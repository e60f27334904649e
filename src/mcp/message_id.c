#include "mcp/message_id.h"

#include "canon/jcs.h"
#include "canon/json.h"

bool mcp_id_canonical(const struct mem *mem, struct slice raw, struct buf *out)
{
    struct arena arena;
    const struct json_value *value = NULL;
    arena_init(&arena, mem, 1 << 16);
    bool is_fine = raw.len > 0 && raw.len < MCP_ID_BYTES_MAX / 8 &&
                   json_read(raw, &arena, &value, NULL) == OK &&
                   (value->type == JSON_STRING || value->type == JSON_NUMBER) &&
                   jcs_write(value, out, NULL, NULL) == OK;
    arena_release(&arena);
    return is_fine && buf_status(out) == OK;
}

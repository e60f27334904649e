-- ARGV: now_ms, at most, boot id, moment. Forget what is past its window by the store's time (P8).
-- Returns: how many were forgotten.
local now_ms, most, boot_id, moment = unpack(ARGV)
local left = tonumber(most)
for kind = 1, 7 do
    local over = {}
    if left > 0 then
        over = redis.call('ZRANGEBYSCORE', due_key(kind, WINDOW_OVER), '-inf', now_ms,
            'LIMIT', 0, left)
    end
    for _, hash in ipairs(over) do
        local meta = meta_read(meta_of(record_key(hash)))
        redis.call('UNLINK', record_key(hash)) -- first, because it needs no memory
        keys_leave(hash)
        for key in pairs(places_of(meta)) do redis.call('ZREM', key, hash) end
        redis.call('HINCRBY', counts, meta.kind .. ':' .. meta.status, -1)
        left = left - 1
    end
end
if left < tonumber(most) then time_keep(now_ms, boot_id, moment) end
return tonumber(most) - left

-- ARGV: kind, at most of each, reason of a pending record's due.
-- Returns: counts, then of each record that is pending, unknown or a dead letter: record, touches.
local kind, most, reason = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local reply = {redis.call('HGETALL', counts)}
for _, set in ipairs({due_key(kind, reason), unknown_key(kind), dead_key(kind)}) do
    for _, hash in ipairs(redis.call('ZRANGE', set, 0, most - 1)) do
        local record, touches = record_of(record_key(hash))
        if record then
            reply[#reply + 1] = record
            reply[#reply + 1] = touches
        end
    end
end
return reply

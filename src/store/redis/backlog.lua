-- ARGV: kind, at most of each, reason of a pending record's due.
-- Returns: counts, then of each record that is pending, unknown or a dead letter: record, touches.
local kind, most, reason = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local reply = {redis.call('HGETALL', counts)}
for _, set in ipairs({due_key(kind, reason), unknown_key(kind), dead_key(kind)}) do
    for _, hash in ipairs(redis.call('ZRANGE', set, 0, most - 1)) do
        local record = redis.call('HMGET', record_key(hash), 'r', 'd')
        if record[1] then
            reply[#reply + 1] = record[1]
            reply[#reply + 1] = record[2] or '0'
        end
    end
end
return reply

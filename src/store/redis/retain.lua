-- ARGV: evidence decided before this goes (ms), about how many entries at most.
-- Returns: how many entries went.
-- The oldest go first, in the order of the stream; each chain keeps the number and hash of the last
-- one that it lost, so that what is left can be checked. The chains themselves stay: checkpoints of
-- other chains name them.
local before, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local last, lost = {}, 0
local upto = false
local from, done = '-', false
while lost < most and not done do
    local page = redis.call('XRANGE', entries, from, '+', 'COUNT', 16)
    done = #page < 16
    for _, item in ipairs(page) do
        local fields = item[2]
        local packed = fields[3] == 'n' -- several entries, which go together (pack.c)
        local time_ms = tonumber(fields[packed and 10 or 16])
        if time_ms >= before then done = true break end
        if packed and fields[6] ~= '0' or not packed and fields[4] == '1' then
            last[fields[2]] = {fields[6], fields[8]}
        end
        upto = tonumber(string.match(item[1], '^%d+'))
        lost, from = lost + (packed and tonumber(fields[4]) or 1), '(' .. item[1]
    end
end
if lost > 0 then
    -- First, because it needs no memory.
    redis.call('XTRIM', entries, 'MINID', '=', string.format('%.0f-0', upto + 1))
    for chain, entry in pairs(last) do
        redis.call('HSET', chain_key(chain), 'removed_seq', entry[1], 'removed_hash', entry[2])
        redis.call('ZREMRANGEBYSCORE', tag .. 'places:' .. chain, '-inf', entry[1])
    end
end
return lost

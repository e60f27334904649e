-- ARGV: evidence decided before this goes (ms), at most.
-- Returns: how many entries went.
-- The oldest go first, in the order of the stream; each chain keeps the number and hash of the last
-- one that it lost, so that what is left can be checked. The chains themselves stay: checkpoints of
-- other chains name them.
local before, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local last, lost = {}, 0
local upto = false
for _, item in ipairs(redis.call('XRANGE', entries, '-', '+', 'COUNT', most)) do
    local fields = item[2]
    if tonumber(fields[16]) >= before then break end
    if fields[4] == '1' then last[fields[2]] = {fields[6], fields[8]} end
    upto, lost = tonumber(string.match(item[1], '^%d+')), lost + 1
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

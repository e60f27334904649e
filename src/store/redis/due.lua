-- ARGV: now_ms, at most, incarnation of this process, mode, then
--   mode 'due':    for each set: kind, reason
--   mode 'cursor': due and 16 bytes of the key hash to go on after, then as above
--   mode 'held':   beats older than this are over, kinds
-- Returns: seconds, microseconds, mark, then for each record: key hash, id, the numbers of m.
local now_ms, most, own, mode = unpack(ARGV, 1, 4)
most = tonumber(most)
local reply = {clock_reply()}
local count = 0

local function give(hash)
    local m, id = meta_of(record_key(hash))
    if not m then error('CORRUPT a due without its record') end
    local meta = meta_read(m)
    reply[#reply + 1] = hash
    reply[#reply + 1] = meta.id or id
    reply[#reply + 1] = string.sub(m, 1, meta.rest - 1)
    count = count + 1
end

-- By bytes: the operators of Lua go by the server's locale.
local function not_after(a, b)
    for i = 1, 16 do
        local x, y = string.byte(a, i), string.byte(b, i)
        if x ~= y then return x < y end
    end
    return true
end

-- Of the members with that score, the rank of the first after the key; they are in its order.
local function rank_after(set, due, key)
    local low = redis.call('ZCOUNT', set, '-inf', '(' .. due)
    local high = redis.call('ZCOUNT', set, '-inf', due)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if not_after(redis.call('ZRANGE', set, middle, middle)[1], key) then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

if mode == 'held' then
    local kinds = tonumber(ARGV[6])
    for _, holder in ipairs(redis.call('ZRANGEBYSCORE', beats, '-inf', '(' .. ARGV[5])) do
        local held = holder ~= own and redis.call('ZRANGE', held_key(holder), 0, -1) or {}
        for _, hash in ipairs(held) do
            if count == most then return reply end
            if kind_in(kinds, meta_read(meta_of(record_key(hash))).kind) then
                give(hash)
            end
        end
        if holder ~= own and #held == 0 then redis.call('ZREM', beats, holder) end
    end
elseif mode == 'cursor' then
    for at = 7, #ARGV, 2 do
        local set = due_key(ARGV[at], ARGV[at + 1])
        local rank = rank_after(set, ARGV[5], ARGV[6])
        local page = redis.call('ZRANGE', set, rank, rank + most - 1, 'WITHSCORES')
        for i = 1, #page, 2 do
            if tonumber(page[i + 1]) < tonumber(now_ms) then give(page[i]) end
        end
    end
else
    for at = 5, #ARGV, 2 do
        if count == most then break end
        local page = redis.call('ZRANGEBYSCORE', due_key(ARGV[at], ARGV[at + 1]), '-inf', now_ms,
            'LIMIT', 0, most - count)
        for _, hash in ipairs(page) do give(hash) end
    end
end
return reply

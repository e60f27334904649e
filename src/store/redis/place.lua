-- ARGV: chain, seq. Returns: the position in the stream of that entry; 0 before all of them.
local chain, seq = unpack(ARGV)
local found = redis.call('HMGET', chain_key(chain), 'seq', 'removed_seq')
local last = found[1]
if not last or tonumber(last) < tonumber(seq) then
    return {err = 'NOPLACE the store has no such entry'}
end
if tonumber(seq) <= tonumber(found[2] or '0') then return 0 end -- what is left comes after it
local near = redis.call('ZREVRANGEBYSCORE', tag .. 'places:' .. chain, seq, '-inf', 'LIMIT', 0, 1)[1]
local from = near and near .. '-1' or '-'
-- Which of an item's entries it is (pack.c); nil: none of them.
local function nth_of(packed)
    local at, nth = 1, 1
    while at <= #packed do
        local kind, number, tenant, bytes, last = struct.unpack('<BI8xxxxxxxx' ..
            string.rep('x', 80) .. 'BI4', packed, at)
        if kind == 1 and number == tonumber(seq) then return nth end
        at, nth = last + tenant + bytes, nth + 1
    end
end

while true do
    local page = redis.call('XRANGE', entries, from, '+', 'COUNT', 16)
    for _, item in ipairs(page) do
        local fields = item[2]
        local position = tonumber(string.match(item[1], '^%d+'))
        if fields[2] == chain and fields[3] == 'n' then
            local nth = nth_of(fields[12])
            if nth then return position - tonumber(fields[4]) + nth end
        elseif fields[2] == chain and fields[4] == '1' and fields[6] == seq then
            return position
        end
        from = '(' .. item[1]
    end
    if #page == 0 then error('CORRUPT an entry that is not where it belongs') end
end

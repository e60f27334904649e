-- ARGV: chain ('' for a reader), commits, incarnation (0: no beat now), now_ms, fences, the fence
-- counter at which this process has enough fences set aside ('': it has not), whether every want is
-- by key (0 or 1), then the name of each want: the key of its record, or its operation id and the
-- first bytes of its key's hash; last the rest of all wants in bytes, of each: by ('k' or 'i'),
-- kinds, bits, the lengths of the tenant and the fingerprint, tenant, fingerprint.
-- Returns: seconds, microseconds, mark, fence counter, counts, oldest unknown by kind, wants (empty
-- if all of them are absent).
-- Each want: record or false, touches, request or false, outcome or false, source's record or
-- false, its touches. Of an absent record only the first, and of one that is a string only that.
-- A batch whose fences are set aside writes nothing here: a write is a flush of the server's file.
local OUTCOME, REQUEST, BY_FINGERPRINT, SOURCE, BODIES_ONLY = 1, 2, 4, 8, 16
local FINGERPRINT = 53 -- where it is in a record (core/record.c)
local chain, commits, incarnation, now_ms, fences, reserved, keys_only = unpack(ARGV, 1, 7)
if redis.call('EXISTS', store) == 0 then return LOST end
if chain ~= '' and not chain_check(chain, commits) then return LOST end

-- A record's kind, operation id and tenant; nil for the last two if they are not in m.
local function meta_look(m)
    local kind, rest = string.match(m or '', '^%d+ (%d+) %d+ %d+ %d+ %d+ %d+ %d+ %d+()')
    if not kind then error('CORRUPT a record without its fields') end
    if rest > #m then return kind end
    return kind, string.sub(m, rest + 1, rest + 16), string.sub(m, rest + 17)
end

-- A record by its id, which carries the first 48 bits of its key's hash. Returns its key, and the
-- string, if it is one.
local function find(id, kinds)
    local prefix = string.sub(id, 17)
    id = string.sub(id, 1, 16)
    for _, set in ipairs({part_of(prefix), keys}) do
        local near = redis.call('ZRANGEBYLEX', set, '[' .. prefix,
            '[' .. prefix .. string.rep('\255', 26))
        for _, hash in ipairs(near) do
            local key = record_key(hash)
            local m, field, _, text = meta_of(key)
            if m then
                local kind, own = meta_look(m)
                if (own or field) == id and kind_in(kinds, kind) then return key, text end
            end
        end
    end
    return nil
end

local function has(bits, one) return bit.band(bits, one) ~= 0 end

local function hash_read(key, bits, tenant, fingerprint)
    local found = redis.call('HMGET', key, 'r', 'd', 'x', 'm', 't', 'f')
    if not found[1] then return {false} end
    local reply = {found[1], found[2] or '0', false, false, false, '0'}
    local _, id, owner = meta_look(found[4])
    if tenant == '' or tenant == (owner or found[5]) then -- P9
        if has(bits, BY_FINGERPRINT) then
            local own = id and string.sub(found[1], FINGERPRINT, FINGERPRINT + 31) or found[6]
            bits = bit.bor(bits, fingerprint == own and OUTCOME or REQUEST)
        end
        if has(bits, REQUEST) then reply[3] = redis.call('HGET', key, 'q') end
        if has(bits, OUTCOME) then reply[4] = redis.call('HGET', key, 'o') end
    end
    if has(bits, SOURCE) and found[3] then
        reply[5], reply[6] = record_of(record_key(found[3]))
    end
    if has(bits, BODIES_ONLY) then reply[1] = '' end
    return reply
end

local FIRST, LAST = 8, #ARGV - 1
local wants = {}
if keys_only == '0' or any_exists(FIRST, LAST) then
    local rests, from = ARGV[#ARGV], 1
    for at = FIRST, LAST do
        local key, text, form = ARGV[at], nil, nil
        local by, kinds, bits, length, printed = string.byte(rests, from, from + 4)
        if by == string.byte('i') then
            key, text = find(key, kinds)
            form = key and (text and 'string' or 'hash')
        else
            form = redis.call('TYPE', key).ok
        end
        local tenant_end = from + 4 + length
        if form == 'string' then
            wants[#wants + 1] = {text or redis.call('GET', key)}
        elseif form == 'hash' then
            wants[#wants + 1] = hash_read(key, bits, string.sub(rests, from + 5, tenant_end),
                string.sub(rests, tenant_end + 1, tenant_end + printed))
        else
            wants[#wants + 1] = {false}
        end
        from = tenant_end + printed + 1
    end
end

local fence = redis.call('GET', tag .. 'fence') or '0'
if fences ~= '0' and fence ~= reserved then fence = redis.call('INCRBY', tag .. 'fence', fences) end
if incarnation ~= '0' then beat(incarnation, now_ms) end

local counted, oldest = redis.call('HGETALL', counts), {}
for i = 1, #counted, 2 do
    local kind, status = string.match(counted[i], '^(%d+):(%d+)$')
    if status == UNKNOWN and counted[i + 1] ~= '0' then
        oldest[#oldest + 1] = kind
        oldest[#oldest + 1] = redis.call('ZRANGE', unknown_key(kind), 0, 0, 'WITHSCORES')[2]
    end
end
local seconds, microseconds, mark = clock_reply()
return {seconds, microseconds, mark, fence, counted, oldest, wants}

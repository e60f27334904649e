-- ARGV: chain ('' for a reader), commits, incarnation (0: no beat now), now_ms, fences, the fence
-- counter at which this process has enough fences set aside ('': it has not), whether every want is
-- by key (0 or 1), then the name of each want: the key of its record, or its operation id and the
-- first bytes of its key's hash; last the rest of all wants in bytes, of each: by ('k' or 'i'),
-- kinds, bits, the lengths of the tenant and the fingerprint, tenant, fingerprint.
-- Returns: seconds, microseconds, mark, fence counter, counts, oldest unknown by kind, wants (empty
-- if all of them are absent).
-- Each want: record or false, touches, request or false, outcome or false, source's record or
-- false, its touches; of an absent record only the first.
-- A batch whose fences are set aside writes nothing here: a write is a flush of the server's file.
local OUTCOME, REQUEST, BY_FINGERPRINT, SOURCE, BODIES_ONLY = 1, 2, 4, 8, 16
local chain, commits, incarnation, now_ms, fences, reserved, keys_only = unpack(ARGV, 1, 7)
if redis.call('EXISTS', store) == 0 then return LOST end
if chain ~= '' and not chain_check(chain, commits) then return LOST end

-- The ids carry the first 48 bits of their key's hash.
local function find(id, kinds)
    local prefix = string.sub(id, 17)
    local near = redis.call('ZRANGEBYLEX', keys, '[' .. prefix,
        '[' .. prefix .. string.rep('\255', 26))
    id = string.sub(id, 1, 16)
    for _, hash in ipairs(near) do
        local found = redis.call('HMGET', record_key(hash), 'i', 'm')
        if found[1] == id and kind_in(kinds, meta_read(found[2]).kind) then return hash end
    end
    return nil
end

local function has(bits, one) return bit.band(bits, one) ~= 0 end

local function want_read(key, bits, tenant, fingerprint)
    local found = redis.call('HMGET', key, 'r', 'd', 'f', 't', 'x')
    if not found[1] then return {false} end
    local reply = {found[1], found[2] or '0', false, false, false, '0'}
    if tenant == '' or tenant == found[4] then -- P9
        if has(bits, BY_FINGERPRINT) then
            bits = bit.bor(bits, fingerprint == found[3] and OUTCOME or REQUEST)
        end
        if has(bits, REQUEST) then reply[3] = redis.call('HGET', key, 'q') end
        if has(bits, OUTCOME) then reply[4] = redis.call('HGET', key, 'o') end
    end
    if has(bits, SOURCE) and found[5] then
        local source = redis.call('HMGET', record_key(found[5]), 'r', 'd')
        reply[5], reply[6] = source[1], source[2] or '0'
    end
    if has(bits, BODIES_ONLY) then reply[1] = '' end
    return reply
end

local FIRST, LAST = 8, #ARGV - 1
local wants = {}
if keys_only == '0' or any_exists(FIRST, LAST) then
    local rests, from = ARGV[#ARGV], 1
    for at = FIRST, LAST do
        local key = ARGV[at]
        local by, kinds, bits, length, printed = string.byte(rests, from, from + 4)
        if by == string.byte('i') then
            local hash = find(key, kinds)
            key = hash and record_key(hash)
        end
        local tenant_end = from + 4 + length
        wants[#wants + 1] = key and want_read(key, bits, string.sub(rests, from + 5, tenant_end),
            string.sub(rests, tenant_end + 1, tenant_end + printed)) or {false}
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

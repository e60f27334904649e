-- ARGV: chain, number of this commit, now_ms, boot id, moment, fence floor, when it was prepared by
-- the server's time, how old that may be, how old and how far ahead it may be if it was presumed
-- ('': it was not; presume.c), replicas that must have it, the fence counter as this process knows
-- it, how many fences to set aside for the next batch, how many records are made, the key of each,
-- the numbers of their changes with a blank after each, then for every other change:
--   'p' its number, key hash, version expected, operation id expected, m, source's key hash, record,
--       keep request (1: as it is, 0: there is none, 2: new), request, keep outcome, outcome, notice
--   't' its number, key hash, version expected, operation id expected
--   'n' the same, and nothing changes: the entry that follows was decided on that version
--   'e' chain, how many entries, number and hash of the last that is evidence (0: none is), SEQ:NTH
--       of those to be found by their number, how many arguments, fields and values of the item
--       (pack.c). The chain is ours, or in an unfinished copy one of the other store
--   'c' nothing: this process must be the one that goes on with the copy
--   's' how many records, the strings of the next ones of the records that are made (insert.c)
--   'h' how many records, how many arguments each has, fields and values of the next ones
--   'j' a sorted set that they join, how often: score, key hashes in one argument ('': all of them)
--   'w' how many arguments, a command, its arguments: for the records that are made
-- Returns: 'OK', the fence counter and how many were set aside; 'LATE'; 'ASK' if the time or the
-- fences of a presumed batch do not hold; or 'STALE' and the numbers of the changes that are.
-- Nothing is written before everything is compared (S1, S3), and the first write is one that a
-- server without memory refuses (S5). Each call of the server from a script costs about as much as
-- a command of a client: what one call can do for the whole batch is one call.
local chain, number, now_ms, boot_id, moment, fence_floor, prepared_ms, old_ms, presumed_ms,
    ahead_ms, replicas, counter, reserve, made = unpack(ARGV, 1, 14)
local MADE = 15
local FIRST = MADE + tonumber(made) + 1
local ARGUMENTS = {p = 13, t = 5, n = 5, c = 1}
if not chain_check(chain, string.format('%.0f', tonumber(number) - 1)) then return LOST end
local clock = redis.call('TIME')
local age_ms = tonumber(clock[1]) * 1000 + tonumber(clock[2]) / 1000 - tonumber(prepared_ms)
local fence = redis.call('GET', tag .. 'fence') or '0'
if presumed_ms ~= '' and (age_ms > tonumber(presumed_ms) or -age_ms > tonumber(ahead_ms)
    or fence ~= counter or time_mark() > tonumber(now_ms)) then
    return {'ASK'} -- P4, P8
end
if age_ms > tonumber(old_ms) then return {'LATE'} end -- S10

-- Without them it would happen and could not be answered. (An account may not be allowed to ask.)
local info = replicas ~= '0' and redis.pcall('INFO', 'replication')
if type(info) == 'string' and select(2, string.gsub(info, ',state=online', '')) < tonumber(replicas)
then
    return {err = 'NOREPLICAS fewer replicas are connected than wait= asks for'}
end

-- ---- compare -------------------------------------------------------------------------------------

-- Of each record of this commit: as it was found, false for absent, and as it will be.
local hashes, before, after, versions = {}, {}, {}, {}
local strings = {} -- those that are not a hash yet
local stale = {'STALE'}
local seq, seq_hash -- of the last entry of our own
local positions = 0 -- that the entries take

-- One that was forgotten and made anew since it was read may have the version that it had: its
-- operation is a different one.
local function find(hash, id)
    local m, field, _, text = meta_of(record_key(hash))
    local meta = m and meta_read(m)
    strings[hash] = text
    hashes[#hashes + 1] = hash
    before[hash], after[hash] = meta, meta
    versions[hash] = meta and meta.version or '0'
    local is_other = meta and id ~= '' and id ~= (meta.id or field)
    if is_other then versions[hash] = 'a different one' end
end

if any_exists(MADE, FIRST - 2) then
    local numbers = string.gmatch(ARGV[FIRST - 1], '%d+')
    for key = MADE, FIRST - 2 do
        local number = numbers()
        if redis.call('EXISTS', ARGV[key]) == 1 then stale[#stale + 1] = number or 'none' end
    end
end

local at = FIRST
while at <= #ARGV do
    local what = ARGV[at]
    if what == 'p' or what == 't' or what == 'n' then
        local hash = ARGV[at + 2]
        if before[hash] == nil then find(hash, ARGV[at + 4]) end
        if versions[hash] ~= ARGV[at + 3] then
            stale[#stale + 1] = ARGV[at + 1]
        elseif what == 'p' then
            after[hash] = meta_read(ARGV[at + 5])
            versions[hash] = after[hash].version
        end
    elseif what == 's' then
        at = at + 2 + tonumber(ARGV[at + 1])
    elseif what == 'h' then
        at = at + 3 + tonumber(ARGV[at + 1]) * tonumber(ARGV[at + 2])
    elseif what == 'j' then
        at = at + 3 + 2 * tonumber(ARGV[at + 2])
    elseif what == 'w' then
        at = at + 3 + tonumber(ARGV[at + 1])
    elseif what == 'c' then
        if redis.call('HGET', store, 'copier') ~= chain then return TAKEN end
    else
        if ARGV[at + 1] == chain and ARGV[at + 3] ~= '0' then
            seq, seq_hash = ARGV[at + 3], ARGV[at + 4]
        end
        positions = positions + tonumber(ARGV[at + 2])
        at = at + 7 + tonumber(ARGV[at + 6])
    end
    at = at + (ARGUMENTS[what] or 0)
end
if #stale > 1 then return stale end

-- ---- write ---------------------------------------------------------------------------------------

if seq then
    redis.call('HSET', chain_key(chain), 'commits', number, 'time_ms', now_ms, 'seq', seq, 'hash',
        seq_hash)
else
    redis.call('HSET', chain_key(chain), 'commits', number, 'time_ms', now_ms)
end

-- A record that changes becomes a hash: the string goes, and is returned.
local function string_end(hash)
    local text = strings[hash]
    strings[hash] = nil
    if text then redis.call('DEL', record_key(hash)) end
    return text
end

-- The request's body of a string; nil: it has none.
local function string_request(text)
    local _, _, q_at = string_parts(text)
    return q_at <= #text and string.sub(text, q_at) or nil
end

local function touch(hash)
    local text = string_end(hash)
    if text then
        local m_at, r_at, q_at = string_parts(text)
        local request = string_request(text)
        redis.call('HSET', record_key(hash), 'm', string.sub(text, m_at, r_at - 1),
            'r', string.sub(text, r_at, q_at - 1))
        if request then redis.call('HSET', record_key(hash), 'q', request) end
    end
    redis.call('HINCRBY', record_key(hash), 'd', 1)
end

-- What becomes of a field that a record may have.
local function keep(fields, gone, name, how, bytes)
    if how == '2' then
        local size = #fields
        fields[size + 1], fields[size + 2] = name, bytes
    elseif how == '0' then
        gone[#gone + 1] = name
    end
end

local is_there = {} -- records that have fields by now
local function put(first)
    local hash, _, _, m, source, record, keep_request, request, keep_outcome, outcome, notice =
        unpack(ARGV, first, first + 10)
    local key = record_key(hash)
    local fields = {'m', m, 'r', record, 'd', '0'}
    local gone = before[hash] and not before[hash].id and {'i', 'f', 't'} or {} -- of format 2
    local text = string_end(hash)
    local kept = text and keep_request == '1' and string_request(text)
    if kept then keep_request, request = '2', kept end
    keep(fields, gone, 'x', source == '' and '0' or '2', source)
    keep(fields, gone, 'q', keep_request, request)
    keep(fields, gone, 'o', keep_outcome, outcome)
    redis.call('HSET', key, unpack(fields))
    local is_old = is_there[hash] or before[hash] and not text
    if #gone > 0 and is_old then redis.call('HDEL', key, unpack(gone)) end
    is_there[hash] = true
    if notice == '1' then redis.call('PUBLISH', tag .. 'settled', chain .. hash) end
end

local position = positions > 0 and redis.call('INCRBY', tag .. 'position', positions) - positions
-- An item has the position of the last entry in it.
local function entries_put(of, count, places, from, last)
    for seq_of, nth in string.gmatch(places, '(%d+):(%d+)') do
        redis.call('ZADD', tag .. 'places:' .. of, seq_of,
            string.format('%.0f', position + tonumber(nth)))
    end
    position = position + count
    redis.call('XADD', entries, string.format('%.0f-1', position), unpack(ARGV, from, last))
end

local made_hashes = {}
for at = MADE, FIRST - 2 do made_hashes[at - MADE + 1] = string.sub(ARGV[at], -32) end

-- The key hashes in an argument; none there: those of all records that are made.
local function members_of(joined)
    if joined == '' then return made_hashes end
    local members = {}
    for at = 1, #joined / 32 do members[at] = string.sub(joined, at * 32 - 31, at * 32) end
    return members
end

at = FIRST
local key = MADE
while at <= #ARGV do
    local what = ARGV[at]
    if what == 's' then
        local last = at + 1 + tonumber(ARGV[at + 1])
        local made, size = {}, 0
        for value = at + 2, last do
            made[size + 1], made[size + 2] = ARGV[key], ARGV[value]
            key, size = key + 1, size + 2
        end
        in_pieces('MSET', nil, made)
        at = last + 1
    elseif what == 'j' then
        local last = at + 2 + 2 * tonumber(ARGV[at + 2])
        local joins, size = {}, 0
        for which = at + 3, last, 2 do
            local score, members = ARGV[which], members_of(ARGV[which + 1])
            for member = 1, #members do
                joins[size + 1], joins[size + 2] = score, members[member]
                size = size + 2
            end
        end
        in_pieces('ZADD', ARGV[at + 1], joins)
        at = last + 1
    elseif what == 'h' then
        local size = tonumber(ARGV[at + 2])
        local after_all = at + 3 + tonumber(ARGV[at + 1]) * size
        for from = at + 3, after_all - 1, size do
            redis.call('HSET', ARGV[key], unpack(ARGV, from, from + size - 1))
            key = key + 1
        end
        at = after_all
    elseif what == 'w' then
        local last = at + 2 + tonumber(ARGV[at + 1])
        redis.call(unpack(ARGV, at + 2, last))
        at = last + 1
    elseif what == 'p' then
        put(at + 2)
    elseif what == 't' then
        touch(ARGV[at + 2])
    elseif what == 'e' then
        local last = at + 6 + tonumber(ARGV[at + 6])
        entries_put(ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 5], at + 7, last)
        at = last + 1
    end
    at = at + (ARGUMENTS[what] or 0)
end

-- ---- indexes -------------------------------------------------------------------------------------

local leaving, joining, counted, holders = {}, {}, {}, {}
local function note(sets, key, one, other)
    local list = sets[key] or {}
    sets[key] = list
    list[#list + 1] = one
    list[#list + 1] = other
end
local function count(meta, more)
    local name = meta.kind .. ':' .. meta.status
    counted[name] = (counted[name] or 0) + more
end

for _, hash in ipairs(hashes) do
    local old, new = before[hash], after[hash]
    if old ~= new then -- not only touched
        local places = old and places_of(old) or {}
        for key, score in pairs(places_of(new)) do
            if places[key] ~= score then note(joining, key, score, hash) end
            places[key] = nil
        end
        for key in pairs(places) do note(leaving, key, hash) end
        if old then count(old, -1) else made_hashes[#made_hashes + 1] = hash end
        count(new, 1)
        holders[new.holder] = true
    end
end

keys_join(made_hashes)
for key, list in pairs(leaving) do in_pieces('ZREM', key, list) end
for key, list in pairs(joining) do in_pieces('ZADD', key, list) end
holders['0'] = nil
for holder in pairs(holders) do redis.call('ZADD', beats, 'NX', 0, holder) end
for name, more in pairs(counted) do
    if more ~= 0 then redis.call('HINCRBY', counts, name, more) end
end

-- ---- time and fences -----------------------------------------------------------------------------

time_keep(now_ms, boot_id, moment)
local aside = '0'
if tonumber(fence_floor) > tonumber(fence) then
    fence = fence_floor
    redis.call('SET', tag .. 'fence', fence)
elseif reserve ~= '0' and fence == counter then -- nobody has drawn since: these are the next ones
    fence, aside = redis.call('INCRBY', tag .. 'fence', reserve), reserve
end
return {'OK', fence, aside}

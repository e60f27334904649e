-- ARGV: chain, number of this commit, now_ms, boot id, moment, fence floor, when it was prepared by
-- the server's time, how old that may be, replicas that must have it, then for each change:
--   'p' key hash, version expected, operation id expected, m, id, fingerprint, tenant, source's key
--       hash, record, keep request (1: as it is, 0: there is none, 2: new), request, keep outcome,
--       outcome, notice
--   't' key hash, version expected, operation id expected
--   'e' kind, seq, hash, previous hash, operation id, tenant, time_ms, bytes
--   'i' chain, and then as 'e': of a different store, into an unfinished copy of it
--   'c' nothing: this process must be the one that goes on with the copy
-- Returns: 'OK'; 'LATE'; or 'STALE' and the numbers of the changes that are, counted from 0
-- without 'e', 'i' and 'c'.
-- Nothing is written before everything is compared (S1, S3), and the first write is one that a
-- server without memory refuses (S5).
local chain, number, now_ms, boot_id, moment, fence_floor, prepared_ms, old_ms, replicas =
    unpack(ARGV, 1, 9)
local ARGUMENTS = {p = 15, t = 4, e = 9, i = 10, c = 1}
local PLACE_EVERY = 64 -- evidence entries between two that are found by their number
if not chain_check(chain, string.format('%.0f', tonumber(number) - 1)) then return LOST end
local clock = redis.call('TIME')
local age_ms = tonumber(clock[1]) * 1000 + tonumber(clock[2]) / 1000 - tonumber(prepared_ms)
if age_ms > tonumber(old_ms) then return {'LATE'} end -- S10

-- Without them it would happen and could not be answered. (An account may not be allowed to ask.)
local info = replicas ~= '0' and redis.pcall('INFO', 'replication')
if type(info) == 'string' and select(2, string.gsub(info, ',state=online', '')) < tonumber(replicas)
then
    return {err = 'NOREPLICAS fewer replicas are connected than wait= asks for'}
end

local function changes_do(act)
    local at, change = 10, 0
    while at <= #ARGV do
        act[ARGV[at]](at, change)
        if ARGV[at] == 'p' or ARGV[at] == 't' then change = change + 1 end
        at = at + ARGUMENTS[ARGV[at]]
    end
end

-- The record as it will be after the changes so far: false for absent. One that was forgotten and
-- made anew since it was read may have the version that it had: its operation is a different one.
local metas = {}
local function meta_of(hash, id)
    if metas[hash] == nil then
        local found = redis.call('HMGET', record_key(hash), 'm', 'i')
        metas[hash] = found[1] and meta_read(found[1])
        if found[1] and id ~= '' and id ~= found[2] then metas[hash].version = 'a different one' end
    end
    return metas[hash]
end

local is_copier = true
local stale = {'STALE'}
local function compare(at, change)
    local meta = meta_of(ARGV[at + 1], ARGV[at + 3])
    if (meta and meta.version or '0') ~= ARGV[at + 2] then
        stale[#stale + 1] = change
        return false
    end
    return true
end
changes_do({
    p = function(at, change)
        if compare(at, change) then metas[ARGV[at + 1]] = meta_read(ARGV[at + 4]) end
    end,
    t = compare,
    e = function() end,
    i = function() end,
    c = function() is_copier = redis.call('HGET', store, 'copier') == chain end,
})
if not is_copier then return LOST end
if #stale > 1 then return stale end

local function body_keep(key, field, how, bytes)
    if how == '2' then redis.call('HSET', key, field, bytes) end
    if how == '0' then redis.call('HDEL', key, field) end
end

local function index(hash, meta)
    if meta.reason ~= '0' then
        redis.call('ZADD', due_key(meta.kind, meta.reason), meta.due, hash)
    end
    if meta.status == UNKNOWN then redis.call('ZADD', unknown_key(meta.kind), meta.updated, hash) end
    if meta.holder ~= '0' then
        redis.call('ZADD', held_key(meta.holder), 0, hash)
        redis.call('ZADD', beats, 'NX', 0, meta.holder)
    end
    redis.call('HINCRBY', counts, meta.kind .. ':' .. meta.status, 1)
end

local function put(at)
    local _, hash, _, _, m, id, fingerprint, tenant, source, record, keep_request, request,
        keep_outcome, outcome, notice = unpack(ARGV, at, at + 14)
    local key = record_key(hash)
    local before = redis.call('HGET', key, 'm')
    if before then unindex(hash, meta_read(before)) else redis.call('ZADD', keys, 0, hash) end
    redis.call('HSET', key, 'm', m, 'r', record, 'd', '0', 'i', id, 'f', fingerprint, 't', tenant)
    if source == '' then redis.call('HDEL', key, 'x') else redis.call('HSET', key, 'x', source) end
    body_keep(key, 'q', keep_request, request)
    body_keep(key, 'o', keep_outcome, outcome)
    index(hash, meta_read(m))
    if notice == '1' then redis.call('PUBLISH', tag .. 'settled', chain .. hash) end
end

local function touch(at)
    redis.call('HINCRBY', record_key(ARGV[at + 1]), 'd', 1)
end

local function entry_of(of, at)
    local kind, seq, hash, previous, id, tenant, time_ms, bytes = unpack(ARGV, at, at + 7)
    local position = redis.call('INCR', tag .. 'position')
    redis.call('XADD', entries, string.format('%.0f-1', position), 'c', of, 'k', kind, 's', seq,
        'h', hash, 'p', previous, 'o', id, 't', tenant, 'm', time_ms, 'b', bytes)
    if kind == '1' and tonumber(seq) % PLACE_EVERY == 1 then
        redis.call('ZADD', tag .. 'places:' .. of, seq, string.format('%.0f', position))
    end
end

local function entry(at)
    local kind, seq, hash = unpack(ARGV, at + 1, at + 3)
    entry_of(chain, at + 1)
    if kind == '1' then redis.call('HSET', chain_key(chain), 'seq', seq, 'hash', hash) end
end

-- The chain has its end already.
local function inherit(at) entry_of(ARGV[at + 1], at + 2) end

redis.call('HSET', chain_key(chain), 'commits', number, 'time_ms', now_ms)
changes_do({p = put, t = touch, e = entry, i = inherit, c = function() end})
time_keep(now_ms, boot_id, moment)
if tonumber(fence_floor) > tonumber(redis.call('GET', tag .. 'fence') or '0') then
    redis.call('SET', tag .. 'fence', fence_floor)
end
return {'OK'}

-- In front of every script. A store is one hash tag: KEYS[1] is "{name}:store", and every other key
-- begins with "{name}:" too, so that all of it is in one slot. docs/formats/redis.md has the keys.
local tag = string.sub(KEYS[1], 1, -6)
local store, keys, counts = KEYS[1], tag .. 'keys', tag .. 'counts'
local entries, time, beats = tag .. 'entries', tag .. 'time', tag .. 'beats'
local FORMAT = '4'
local UNKNOWN, DEAD, WINDOW_OVER = '2', '10', '5' -- record_status, record_due


-- On a cluster, while the slot is on its way to a different node: keys that are absent here may be
-- there. A key that is never made would be asked for there too. Nothing is run then (P1, S1).
if type(redis.pcall('EXISTS', tag .. 'never')) == 'table' then
    return {err = 'TRYAGAIN the slot of the store is being moved to a different node'}
end

local function record_key(hash) return tag .. 'r:' .. hash end
local function chain_key(chain) return tag .. 'chain:' .. chain end
local function due_key(kind, reason) return tag .. 'due:' .. kind .. ':' .. reason end
local function unknown_key(kind) return tag .. 'unknown:' .. kind end
local function dead_key(kind) return tag .. 'dead:' .. kind end
local function held_key(holder) return tag .. 'held:' .. holder end

-- The key hashes of a small store are in one sorted set. The cost of joining it grows with it: to
-- join one of a million takes the server as long as the rest of a begin. So from KEYS_TOGETHER on
-- new ones join one of 65536 sets, by their first two bytes, and `spread` says so. A scan of fewer
-- would spend most of its time on sets that are absent.
local KEYS_TOGETHER, PARTS = 32768, 65536
local parts = keys .. ':'
local function part_of(hash) return parts .. string.sub(hash, 1, 2) end
local function are_spread() return redis.call('HEXISTS', store, 'spread') == 1 end

-- A record's field m: numbers, then its operation id and tenant. A record that was last written in
-- format 2 has only the numbers there: these two are its fields i and t.
local function meta_read(text)
    local version, kind, status, reason, due, holder, updated, door, fence, rest = string.match(
        text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()')
    if not version or rest <= #text and rest + 17 > #text then
        error('CORRUPT a record without its fields')
    end
    local meta = {version = version, kind = kind, status = status, reason = reason, due = due,
        holder = holder, updated = updated, door = door, fence = fence, rest = rest}
    if rest <= #text then
        meta.id, meta.tenant = string.sub(text, rest + 1, rest + 16), string.sub(text, rest + 17)
    end
    return meta
end

-- A record that was made and not changed since may be a string: the lengths of m and r, then m, r
-- and the rest is q (insert.c). Returns where each of the three begins.
local function string_parts(text)
    local m_size, r_size, at = string.match(text, '^(%d+) (%d+) ()')
    if not at then error('CORRUPT a record without its fields') end
    return at, at + m_size, at + m_size + r_size
end

-- Fields m, i and t of a record, false for those that it has not; and the string, if it is one.
local function meta_of(key)
    local form = redis.call('TYPE', key).ok
    if form == 'string' then
        local text = redis.call('GET', key)
        local m_at, r_at = string_parts(text)
        return string.sub(text, m_at, r_at - 1), false, false, text
    elseif form == 'none' then
        return false
    end
    return unpack(redis.call('HMGET', key, 'm', 'i', 't'))
end

-- A record, or false, and its touches.
local function record_of(key)
    if redis.call('TYPE', key).ok ~= 'string' then
        local found = redis.call('HMGET', key, 'r', 'd')
        return found[1], found[2] or '0'
    end
    local text = redis.call('GET', key)
    local _, r_at, q_at = string_parts(text)
    return string.sub(text, r_at, q_at - 1), '0'
end

-- kinds is a set of bits.
local function kind_in(kinds, kind)
    return bit.band(kinds, bit.lshift(1, tonumber(kind))) ~= 0
end

-- The sorted sets that a record is in, the list of all keys aside, and its score in each.
local function places_of(meta)
    local places = {}
    if meta.reason ~= '0' then places[due_key(meta.kind, meta.reason)] = meta.due end
    if meta.status == UNKNOWN then places[unknown_key(meta.kind)] = meta.updated end
    if meta.status == DEAD then places[dead_key(meta.kind)] = meta.updated end
    if meta.holder ~= '0' then places[held_key(meta.holder)] = '0' end
    return places
end

local VALUES_MAX = 2000 -- of one call, even: the stack of a script holds fewer than 8000

-- Calls the server with all of a list, in pieces; key: the first argument of each call, or nil.
local function in_pieces(word, key, list)
    for from = 1, #list, VALUES_MAX do
        local last = math.min(#list, from + VALUES_MAX - 1)
        if key then
            redis.call(word, key, unpack(list, from, last))
        else
            redis.call(word, unpack(list, from, last))
        end
    end
end

-- Each is in one of the two.
local function keys_leave(hash)
    if redis.call('ZREM', part_of(hash), hash) == 0 then redis.call('ZREM', keys, hash) end
end

local function keys_join(hashes)
    if not are_spread() then
        local joins = {}
        if redis.call('ZCARD', keys) + #hashes <= KEYS_TOGETHER then
            for at = 1, #hashes do joins[2 * at - 1], joins[2 * at] = '0', hashes[at] end
            return in_pieces('ZADD', keys, joins)
        end
        redis.call('HSET', store, 'spread', '1')
    end
    for at = 1, #hashes do redis.call('ZADD', part_of(hashes[at]), '0', hashes[at]) end
end

-- Whether a key exists that one of these arguments names.
local function any_exists(from, last)
    for at = from, last, VALUES_MAX do
        if redis.call('EXISTS', unpack(ARGV, at, math.min(last, at + VALUES_MAX - 1))) > 0 then
            return true
        end
    end
    return false
end

-- The server's time, and the latest time that any process has committed.
local function clock_reply()
    local now = redis.call('TIME')
    return now[1], now[2], redis.call('HGET', time, 'mark') or '0'
end

local function time_mark() return tonumber(redis.call('HGET', time, 'mark') or '0') end

-- The time of a commit. It only grows (P8); what the process's own clock needs after a restart is
-- kept by the boot of its machine.
local function time_keep(now, boot_id, moment)
    local mark = redis.call('HGET', time, 'mark') or '0'
    if tonumber(now) > tonumber(mark) then mark = now end
    redis.call('HSET', time, 'mark', mark, 'boot:' .. boot_id, moment)
end

-- A process is alive. By the store's time, which other processes may have taken further.
local function beat(incarnation, now)
    local mark = redis.call('HGET', time, 'mark') or '0'
    if tonumber(mark) > tonumber(now) then now = mark end
    redis.call('ZADD', beats, now, incarnation)
end

-- A process that is behind what it was answered before: the server has lost commits.
local function chain_check(chain, commits)
    return redis.call('HGET', chain_key(chain), 'commits') == commits
end

local TAKEN = {err = 'TAKEN a different process goes on with this copy'}
local LOST = {err = 'LOST the server is without commits that it had acknowledged'}

-- ARGV: our chain, what to do, then
--   'take':   from now on no other process goes on with this copy
--   'chains': for each chain: chain, public key, incarnation, started_ms, seen_ms, number and hash of
--             its last entry, and of the last one that was removed
--   'count':  nothing. Returns: how many entries were taken over
--   'finish': nothing. It is a store from now on
local chain, act = ARGV[1], ARGV[2]
if act == 'count' then return tonumber(redis.call('GET', tag .. 'position') or '0') end
if act == 'take' then
    redis.call('HSET', store, 'copier', chain)
    return 1
end
if redis.call('HGET', store, 'copier') ~= chain then return TAKEN end
if act == 'finish' then
    redis.call('HSET', store, 'format', FORMAT)
    redis.call('HDEL', store, 'copy_of', 'copy_origin', 'copier')
    return 1
end
for at = 3, #ARGV, 9 do
    local id, public_key, incarnation, started_ms, seen_ms, seq, hash, removed_seq, removed_hash =
        unpack(ARGV, at, at + 8)
    if redis.call('EXISTS', chain_key(id)) == 0 then
        redis.call('HSET', chain_key(id), 'commits', '0', 'seq', seq, 'hash', hash, 'public_key',
            public_key, 'process', 'copied', 'started_ms', started_ms, 'closed_ms', seen_ms,
            'seen_ms', seen_ms, 'incarnation', incarnation)
        if removed_seq ~= '0' then
            redis.call('HSET', chain_key(id), 'removed_seq', removed_seq, 'removed_hash',
                removed_hash)
        end
        redis.call('ZADD', tag .. 'chains', redis.call('HINCRBY', store, 'chains', 1), id)
    end
end
return 1

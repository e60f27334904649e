-- ARGV: chain, public key, process, started_ms. A process that writes begins its chain.
local chain, public_key, process, started_ms = unpack(ARGV)
local format = redis.call('HGET', store, 'format')
if not format then return LOST end
-- What it has is as it was; from now on processes that know only its format would not understand.
-- An unfinished copy stays one.
if format ~= FORMAT and format ~= 'copy' then
    -- One that still runs would miss keys where it does not look for them: it stops, as if commits
    -- of its chain had been lost.
    for _, other in ipairs(redis.call('ZRANGE', tag .. 'chains', 0, -1)) do
        if redis.call('HEXISTS', chain_key(other), 'closed_ms') == 0 then
            redis.call('HSET', chain_key(other), 'commits', 'over')
        end
    end
    redis.call('HSET', store, 'format', FORMAT)
end
redis.call('HSET', chain_key(chain), 'commits', '0', 'seq', '0', 'public_key', public_key,
    'process', process, 'started_ms', started_ms)
redis.call('ZADD', tag .. 'chains', redis.call('HINCRBY', store, 'chains', 1), chain)
return 1

-- ARGV: chain, public key, process, started_ms. A process that writes begins its chain.
local chain, public_key, process, started_ms = unpack(ARGV)
if redis.call('EXISTS', store) == 0 then return LOST end
redis.call('HSET', chain_key(chain), 'commits', '0', 'seq', '0', 'public_key', public_key,
    'process', process, 'started_ms', started_ms)
redis.call('ZADD', tag .. 'chains', redis.call('HINCRBY', store, 'chains', 1), chain)
return 1

-- ARGV: chain, commits, incarnation, now_ms.
local chain, commits, incarnation, now_ms = unpack(ARGV)
if not chain_check(chain, commits) then return LOST end
redis.call('HSET', chain_key(chain), 'incarnation', incarnation)
beat(incarnation, now_ms)
return {clock_reply()}

-- ARGV: chain, commits, incarnation, closed_ms. A process says that it ended on purpose.
local chain, commits, incarnation, closed_ms = unpack(ARGV)
if not chain_check(chain, commits) then return LOST end
redis.call('HSET', chain_key(chain), 'closed_ms', closed_ms,
    'seen_ms', redis.call('ZSCORE', beats, incarnation) or '0')
if incarnation ~= '0' then redis.call('ZADD', beats, 0, incarnation) end
return 1

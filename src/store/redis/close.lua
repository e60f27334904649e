-- ARGV: chain, commits, incarnation, closed_ms, the fence counter up to which it has fences set
-- aside, how many. A process says that it ended on purpose. Fences that it did not use are given
-- back once, though this may be asked twice.
local chain, commits, incarnation, closed_ms, reserved, unused = unpack(ARGV)
if not chain_check(chain, commits) then return LOST end
if unused ~= '0' and redis.call('GET', tag .. 'fence') == reserved
    and redis.call('HEXISTS', chain_key(chain), 'closed_ms') == 0 then
    redis.call('DECRBY', tag .. 'fence', unused)
end
redis.call('HSET', chain_key(chain), 'closed_ms', closed_ms,
    'seen_ms', redis.call('ZSCORE', beats, incarnation) or '0')
if incarnation ~= '0' then redis.call('ZADD', beats, 0, incarnation) end
return 1

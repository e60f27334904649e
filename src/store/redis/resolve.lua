-- ARGV: chain, number of a commit whose answer was lost.
-- Returns: 1 it happened, 0 it did not and never will: should it still arrive, its number is used.
local chain, number = unpack(ARGV)
local found = redis.call('HMGET', chain_key(chain), 'commits', 'void')
if found[1] == number then
    redis.call('HSET', chain_key(chain), 'looked_up', number) -- a write for WAIT to wait for
    return found[2] == number and 0 or 1
end
if found[1] ~= string.format('%.0f', tonumber(number) - 1) then return LOST end
redis.call('HSET', chain_key(chain), 'commits', number, 'void', number)
return 0

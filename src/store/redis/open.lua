-- ARGV: may create (0 or 1), fingerprint key, boot id, what for: '' to use it, 'look' also at an
-- unfinished copy, 'inherit' to begin one or go on with it, and then: name of the other store, its
-- state, its time_ms, its fence.
-- Returns: seconds, microseconds, mark, format, fingerprint key, moment of this boot or false.
-- An unfinished copy has the format 'copy', which earlier versions of Once refuse too.
local may_create, secret, boot_id, aim, from, origin, time_ms, fence = unpack(ARGV)
local found = redis.call('HMGET', store, 'format', 'fingerprint_key', 'copy_of', 'copy_origin')
if not found[1] then
    if may_create ~= '1' then return {err = 'ABSENT there is no store of that name'} end
    redis.call('HSET', store, 'format', FORMAT, 'fingerprint_key', secret,
        'created_s', redis.call('TIME')[1])
    found = {FORMAT, secret}
    if aim == 'inherit' then
        redis.call('HSET', store, 'format', 'copy', 'copy_of', from, 'copy_origin', origin)
        redis.call('HSET', time, 'mark', time_ms)
        redis.call('SET', tag .. 'fence', fence)
    end
elseif aim == 'inherit' then
    if found[1] ~= 'copy' then return {err = 'EXISTS it is a store already'} end
    if found[4] ~= origin then
        return {err = "EXISTS it is an unfinished copy of '" .. found[3] .. "' in a different state"}
    end
elseif aim == '' and found[1] == 'copy' then
    return {err = "COPYING it is an unfinished copy of '" .. found[3] .. "'"}
end
local seconds, microseconds, mark = clock_reply()
return {seconds, microseconds, mark, found[1] == 'copy' and FORMAT or found[1], found[2],
    redis.call('HGET', time, 'boot:' .. boot_id)}

-- ARGV: may create (0 or 1), fingerprint key, boot id.
-- Returns: seconds, microseconds, mark, format, fingerprint key, moment of this boot or false.
local may_create, secret, boot_id = unpack(ARGV)
local found = redis.call('HMGET', store, 'format', 'fingerprint_key')
if not found[1] then
    if may_create ~= '1' then return {err = 'ABSENT there is no store of that name'} end
    redis.call('HSET', store, 'format', '1', 'fingerprint_key', secret,
        'created_s', redis.call('TIME')[1])
    found = {'1', secret}
end
local seconds, microseconds, mark = clock_reply()
return {seconds, microseconds, mark, found[1], found[2],
    redis.call('HGET', time, 'boot:' .. boot_id)}

-- ARGV: key hash to go on after, keys to look at, records to read, kinds, status (0: any), tenant
-- ('': any).
-- Returns: last key hash looked at or false, why it stopped ('end', 'looks', 'reads'), how many keys
-- it looked at and records it read, then for each record: key hash, record, touches.
local after, looks, reads, kinds, status, tenant = unpack(ARGV)
looks, reads, kinds = tonumber(looks), tonumber(reads), tonumber(kinds)
local page = redis.call('ZRANGEBYLEX', keys, '(' .. after, '+', 'LIMIT', 0, looks)
local reply = {false, #page < looks and 'end' or 'looks', 0, 0}
for _, hash in ipairs(page) do
    local m, _, owner = meta_of(record_key(hash))
    if not m then error('CORRUPT a key without its record') end
    local meta = meta_read(m)
    if kind_in(kinds, meta.kind) and (status == '0' or status == meta.status) then
        if reply[4] == reads then
            reply[2] = 'reads'
            break
        end
        reply[4] = reply[4] + 1
        if tenant == '' or tenant == (meta.tenant or owner) then -- P9
            local record, touches = record_of(record_key(hash))
            reply[#reply + 1] = hash
            reply[#reply + 1] = record
            reply[#reply + 1] = touches
        end
    end
    reply[1], reply[3] = hash, reply[3] + 1
end
return reply

-- ARGV: how many to leave out, at most.
-- Returns: for each chain, the oldest first: chain, public key, incarnation, started_ms, last beat,
-- ended (0 or 1), number and hash of its last entry, and of the last one that was removed.
local from, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local reply = {}
for _, chain in ipairs(redis.call('ZRANGE', tag .. 'chains', from, from + most - 1)) do
    local found = redis.call('HMGET', chain_key(chain), 'public_key', 'incarnation', 'started_ms',
        'closed_ms', 'seen_ms', 'seq', 'hash', 'removed_seq', 'removed_hash')
    if not found[1] then error('CORRUPT a chain without its fields') end
    local incarnation = found[2] or '0'
    reply[#reply + 1] = {chain, found[1], incarnation, found[3],
        found[5] or redis.call('ZSCORE', beats, incarnation) or '0', found[4] and '1' or '0',
        found[6] or '0', found[7] or '', found[8] or '0', found[9] or ''}
end
return reply

-- ARGV: key hash to go on after, keys to look at, records to read, kinds, status (0: any), tenant
-- ('': any).
-- Returns: up to which key hash it looked or false, why it stopped ('end', 'looks', 'reads'), how
-- many keys it looked at and records it read, then for each record: key hash, record, touches.
local after, looks, reads, kinds, status, tenant = unpack(ARGV)
looks, reads, kinds = tonumber(looks), tonumber(reads), tonumber(kinds)

-- By bytes: the operators of Lua go by the server's locale.
local function is_before(a, b)
    for i = 1, 32 do
        local x, y = string.byte(a, i), string.byte(b, i)
        if x ~= y then return x < y end
    end
    return false
end

local function hashes_after(set, most)
    return redis.call('ZRANGEBYLEX', set, '(' .. after, '+', 'LIMIT', 0, most)
end

local function prefix_of(part)
    return string.char(math.floor(part / 256), part % 256)
end

-- Whether so many parts from here on are empty.
local function are_empty(part, many)
    local names = {}
    for one = part, part + many - 1 do names[#names + 1] = parts .. prefix_of(one) end
    return redis.call('EXISTS', unpack(names)) == 0
end

-- How many parts to pass at once: 256 or 16 that are empty; 1: look into this one.
local function step_at(part)
    if part % 256 == 0 and are_empty(part, 256) then return 256 end
    return part % 16 == 0 and are_empty(part, 16) and 16 or 1
end

-- The next keys that are spread, in order; if they are fewer than `most`, up to where these are all
-- of them (nil: to the end); and what it cost to pass parts, in looks. A small store that was large
-- once has many empty ones.
local function spread_after(most)
    local found, passed, upto = {}, 0, nil
    local part = string.byte(after, 1) * 256 + string.byte(after, 2)
    while part < PARTS do
        if #found + passed >= most then return found, upto, math.floor(passed) end
        local step = step_at(part)
        local name = parts .. prefix_of(part)
        local page = step == 1 and hashes_after(name, most - #found) or {}
        for _, hash in ipairs(page) do found[#found + 1] = hash end
        if #page == 0 then passed = passed + step / 8 end -- as measured, beside reading a record
        part = part + step
        upto = prefix_of(part - 1) .. string.rep('\255', 30) -- if fewer than `most` were found
    end
    return found, nil, math.floor(passed)
end

-- The keys that come next: of those together and those spread.
local function page_next(together, most)
    local spread, upto, passed = spread_after(most)
    local page, one, other = {}, 1, 1
    while #page < most and (together[one] or spread[other]) do
        local a, b = together[one], spread[other]
        if a and not b and upto and is_before(upto, a) then break end
        if a and (not b or is_before(a, b)) then
            page[#page + 1], one = a, one + 1
        else
            page[#page + 1], other = b, other + 1
        end
    end
    return page, upto, passed
end

local is_spread = are_spread()
local reply = {false, 'looks', 0, 0}

-- Reads what is wanted of a page, whose keys are not more than the reads that are left.
local function page_read(page)
    for _, hash in ipairs(page) do
        local m, _, owner = meta_of(record_key(hash))
        if not m then error('CORRUPT a key without its record') end
        local meta = meta_read(m)
        if kind_in(kinds, meta.kind) and (status == '0' or status == meta.status) then
            reply[4] = reply[4] + 1
            if tenant == '' or tenant == (meta.tenant or owner) then -- P9
                local record, touches = record_of(record_key(hash))
                reply[#reply + 1] = hash
                reply[#reply + 1] = record
                reply[#reply + 1] = touches
            end
        end
    end
end

-- No more keys at once than may be read: to find one that is spread costs more than to read it.
while reply[3] < looks do
    local most = math.min(looks - reply[3], reads - reply[4])
    if most == 0 then
        reply[2] = 'reads'
        return reply
    end
    local page, upto, passed = hashes_after(keys, most), nil, 0
    if is_spread then page, upto, passed = page_next(page, most) end
    page_read(page)
    reply[1] = page[#page] or reply[1]
    reply[3] = reply[3] + passed + #page
    if #page < most and not upto then
        reply[2] = 'end'
        return reply
    end
    if #page < most then reply[1] = upto end
    after = reply[1]
end
return reply

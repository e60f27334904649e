-- wrk sends the request of a file, with another number in the place of its run of '#' each time,
-- and prints one line of JSON.
--
--     wrk -s begin.lua URL -- FILE FIRST_NUMBER [COUNT | seal]
--
-- With a count the numbers go round: each of so many is sent again and again. With `seal` what was
-- granted is sealed, on whichever connection is free: half of the requests are seals.

local threads = 0

function setup(thread)
    thread:set("thread", threads)
    threads = threads + 1
end

function init(args)
    local file = assert(io.open(args[1]))
    local before, marks, after = file:read("*a"):match("^(.-)(#+)(.*)$")
    file:close()
    local count = tonumber(args[3])
    local first = tonumber(args[2]) + (count and 0 or thread * 1e10) -- more than a thread sends
    local number = first
    local form = before:gsub("%%", "%%%%") .. "%0" .. #marks .. "d" .. after:gsub("%%", "%%%%")
    local begin = function()
        number = count and first + (number - first + 1) % count or number + 1
        return form:format(number)
    end
    request = begin
    if args[3] ~= "seal" then return end
    local granted = {}
    request = function()
        return table.remove(granted) or begin()
    end
    response = function(status, headers, body)
        local id, fence = body:match('"operation_id":"([^"]+)","fence":(%d+)')
        if id then
            local text = '{"fence":' .. fence .. ',"status":"executed","outcome":{"charge":"ch_1"}}'
            granted[#granted + 1] = wrk.format("POST", "/v1/fences/" .. id .. "/seal",
                {["Content-Type"] = "application/json"}, text)
        end
    end
end

function done(summary, latency)
    local errors = summary.errors
    print(string.format('{"requests":%d,"seconds":%.6f,"errors":%d,"p50_us":%d,"p99_us":%d}',
        summary.requests, summary.duration / 1e6,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout,
        latency:percentile(50), latency:percentile(99)))
end

-- wrk begins with the request of a file, a new number each time (begin.lua), and seals what was
-- granted: half of its requests are seals, on whichever connection is free.
--
--     wrk -s pairs.lua URL -- FILE FIRST_NUMBER

local threads = 0

function setup(thread)
    thread:set("thread", threads)
    threads = threads + 1
end

function init(args)
    local file = assert(io.open(args[1]))
    local before, marks, after = file:read("*a"):match("^(.-)(#+)(.*)$")
    file:close()
    local number = tonumber(args[2]) + thread * 1e10 -- more than a thread sends
    local form = before:gsub("%%", "%%%%") .. "%0" .. #marks .. "d" .. after:gsub("%%", "%%%%")
    local granted = {}
    request = function()
        local seal = table.remove(granted)
        if seal then return seal end
        number = number + 1
        return form:format(number)
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

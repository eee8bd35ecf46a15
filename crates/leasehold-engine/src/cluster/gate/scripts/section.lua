-- What claim.lua and note.lua begin with: the entries of a section's seats. They are read at once and written at once,
-- because commands cost more than what is decided between them.
--
-- KEYS[1]: the section, a hash of one entry a seat: "version kind until owner". The version is the event's at which
-- it was so; the kind is f (free), t (taken; from `until` on somebody may ask the ledger again) or c (claimed until
-- then by a hold that is on its way to the ledger); the owner is whoever has or wants it, - when that is no hold and ? when
-- it is not known. Its field `built` is there when all taken seats are.

-- Arguments of one command: Lua hands over some thousand and no more.
local ARGUMENTS_MAX = 1000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entries, writes = {}, {}

-- Reads the seats that are asked about. Each ask has `head` arguments, the last of which is the number of its seats, and
-- `width` for each seat, the first of which is its number.
local function read(head, width)
    local seats = {}
    local at = 1
    while at <= #ARGV do
        local behind = at + head + width * tonumber(ARGV[at + head - 1])
        for place = at + head, behind - 1, width do
            seats[#seats + 1] = ARGV[place]
        end
        at = behind
    end
    for first = 1, #seats, ARGUMENTS_MAX do
        local last = math.min(first + ARGUMENTS_MAX - 1, #seats)
        local found = redis.call('HMGET', KEYS[1], unpack(seats, first, last))
        for n = first, last do
            entries[seats[n]] = found[n - first + 1]
        end
    end
end

-- The version, kind, end and owner of a seat that was read.
local function entry_of(seat)
    if not entries[seat] then
        return 0, 'f', 0, '?'
    end
    local version, kind, till, owner = string.match(entries[seat], '^(%d+) (%a) (%d+) (.*)$')
    return tonumber(version), kind, tonumber(till), owner
end

local function write(seat, entry)
    entries[seat] = entry
    writes[#writes + 1] = seat
    writes[#writes + 1] = entry
end

local function write_all()
    for first = 1, #writes, ARGUMENTS_MAX do
        redis.call('HSET', KEYS[1], unpack(writes, first, math.min(first + ARGUMENTS_MAX - 1, #writes)))
    end
end


-- Claims seats of one section for new holds, each hold all or none.
--
-- KEYS[1]: the section, a hash of one entry a seat: "version kind until owner". The version is the event's at which
-- it was so; the kind is f (free), t (taken; from `until` on somebody may ask the ledger again) or c (claimed until
-- then by a hold that is on its way to the ledger); the owner is whoever has or wants it, - when that is no hold and ? when
-- it is not known.
-- ARGV: for each ask who asks; 1 to claim or 0 to look only; 1 if it may be a repetition; the version that the asking
-- server has read; the number of seats; and for each seat its number and 1 if it was free at that version.
-- Answer: for each ask 1 if the section was built (0: somebody should), and the seats that are taken. What may be a
-- repetition is not refused while it cannot be told whose a seat is.

local CLAIM_MS = 3000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local built = redis.call('HEXISTS', KEYS[1], 'built')
local answers = {}
local at = 1
while at <= #ARGV do
    local who, claims, repeats = ARGV[at], ARGV[at + 1] == '1', ARGV[at + 2] == '1'
    local known, count = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local seats = {}
    for n = 1, count do
        seats[n] = ARGV[at + 3 + 2 * n]
    end
    local entries = redis.call('HMGET', KEYS[1], unpack(seats))
    local answer, new = { built }, {}
    for n = 1, count do
        local version, kind, till, owner = 0, 'f', 0, ''
        if entries[n] then
            version, kind, till, owner = string.match(entries[n], '^(%d+) (%a) (%d+) (.*)$')
            version, till = tonumber(version), tonumber(till)
        end
        -- What the server has read is newer than the entry.
        if known > version then
            if kind == 't' and ARGV[at + 4 + 2 * n] == '1' then
                kind = 'f'
            end
            if kind ~= 't' then
                version = known
            end
        end
        if kind == 't' and now >= till then
            -- The note that follows replaces it, even if it is of a version that the ledger has lost.
            new[#new + 1] = seats[n]
            new[#new + 1] = string.format('%.0f t %.0f %s', math.min(version, known), now + CLAIM_MS, owner)
        elseif kind == 'f' or (kind == 'c' and (now >= till or owner == who)) then
            new[#new + 1] = seats[n]
            new[#new + 1] = string.format('%.0f c %.0f %s', version, now + CLAIM_MS, who)
        elseif not (kind == 't' and owner == who) and not (repeats and (owner == '?' or built == 0)) then
            answer[#answer + 1] = tonumber(seats[n])
        end
    end
    if claims and #answer == 1 and #new > 0 then
        redis.call('HSET', KEYS[1], unpack(new))
    end
    answers[#answers + 1] = answer
    at = at + 5 + 2 * count
end
return answers

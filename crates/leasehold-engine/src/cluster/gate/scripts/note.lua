-- Notes how seats of one section stand in the ledger, and ends the claims of those who know their answer.
--
-- KEYS[1]: the section, see claim.lua. ARGV: for each note who wrote it; 1 if these are all seats of the section that
-- are taken; the version at which they stand so; the number of seats; and for each seat its number, for how many
-- milliseconds it need not be asked about again, 0 when it is free, and its owner, ? if that is not known.
-- An entry of a higher version stays. Answer: nothing for each note.

local KEEP_MS = 86400000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
local at = 1
while at <= #ARGV do
    local who, all = ARGV[at], ARGV[at + 1] == '1'
    local seen, count = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    at = at + 4
    for _ = 1, count do
        local seat, taken_ms, by = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
        at = at + 3
        local version, kind, till, owner = 0, 'f', 0, '?'
        local entry = redis.call('HGET', KEYS[1], seat)
        if entry then
            version, kind, till, owner = string.match(entry, '^(%d+) (%a) (%d+) (.*)$')
            version, till = tonumber(version), tonumber(till)
        end
        local mine = kind == 'c' and owner == who
        local new
        if seen > version or (seen == version and (mine or taken_ms > 0)) then
            if taken_ms > 0 then
                if by == '?' and kind ~= 'f' and not mine then
                    by = owner
                end
                new = string.format('%.0f t %.0f %s', seen, now + taken_ms, by)
            elseif kind == 'c' and not mine and now < till then
                new = string.format('%.0f c %.0f %s', seen, till, owner)
            else
                new = string.format('%.0f f 0 ?', seen)
            end
        elseif mine then
            new = string.format('%.0f f 0 ?', version)
        end
        if new then
            redis.call('HSET', KEYS[1], seat, new)
        end
    end
    if all then
        redis.call('HSET', KEYS[1], 'built', '1')
    end
    answers[#answers + 1] = {}
end
redis.call('PEXPIRE', KEYS[1], KEEP_MS)
return answers

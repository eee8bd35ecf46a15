-- Notes how seats of one section stand in the ledger, and ends the claims of those who know their answer. Follows on
-- section.lua.
--
-- ARGV: for each note who wrote it; 1 if these are all seats of the section that
-- are taken; the version at which they stand so; the number of seats; and for each seat its number, for how many
-- milliseconds it need not be asked about again, 0 when it is free, and its owner, ? if that is not known.
-- An entry of a higher version stays. Answer: nothing for each note.

local KEEP_MS = 86400000

read(4, 3)

local answers = {}
local at = 1
while at <= #ARGV do
    local who, all = ARGV[at], ARGV[at + 1] == '1'
    local seen, count = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    for place = at + 4, at + 1 + 3 * count, 3 do
        local seat, taken_ms, by = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
        local version, kind, till, owner = entry_of(seat)
        local mine = kind == 'c' and owner == who
        if seen > version or (seen == version and (mine or taken_ms > 0)) then
            if taken_ms > 0 then
                if by == '?' and kind ~= 'f' and not mine then
                    by = owner
                end
                write(seat, string.format('%.0f t %.0f %s', seen, now + taken_ms, by))
            elseif kind == 'c' and not mine and now < till then
                write(seat, string.format('%.0f c %.0f %s', seen, till, owner))
            else
                write(seat, string.format('%.0f f 0 ?', seen))
            end
        elseif mine then
            write(seat, string.format('%.0f f 0 ?', version))
        end
    end
    if all then
        write('built', '1')
    end
    answers[#answers + 1] = {}
    at = at + 4 + 3 * count
end
write_all()
redis.call('PEXPIRE', KEYS[1], KEEP_MS)
return answers

-- Claims seats of one section for new holds, each hold all or none. Follows on section.lua.
--
-- ARGV: for each ask who asks; 1 to claim or 0 to look only; the version that the asking server has read; the number of
-- seats; and for each seat its number and 1 if it was free at that version.
-- Answer: for each ask 1 if the section was built (0: somebody should), and the seats that are taken. A seat is not taken for
-- whoever has it.

local CLAIM_MS = 3000

read(4, 2)

local built = redis.call('HEXISTS', KEYS[1], 'built')
local answers = {}
local at = 1
while at <= #ARGV do
    local who, claims = ARGV[at], ARGV[at + 1] == '1'
    local known, count = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    local answer, new = { built }, {}
    for place = at + 4, at + 2 + 2 * count, 2 do
        local seat = ARGV[place]
        local version, kind, till, owner = entry_of(seat)
        -- What the server has read is newer than the entry.
        if known > version and kind == 't' and ARGV[place + 1] == '1' then
            kind = 'f'
        end
        if kind == 't' and now >= till then
            -- The note that follows replaces it, even if it is of a version that the ledger has lost.
            new[seat] = string.format('%.0f t %.0f %s', math.min(version, known), now + CLAIM_MS, owner)
        elseif kind == 'f' or (kind == 'c' and (now >= till or owner == who)) then
            -- And so it is here.
            new[seat] = string.format('%.0f c %.0f %s', known, now + CLAIM_MS, who)
        elseif not (kind == 't' and owner == who) then
            answer[#answer + 1] = tonumber(seat)
        end
    end
    if claims and #answer == 1 then
        for seat, entry in pairs(new) do
            write(seat, entry)
        end
    end
    answers[#answers + 1] = answer
    at = at + 4 + 2 * count
end
write_all()
return answers

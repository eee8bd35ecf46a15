-- Claims units of an event's pools for new holds, and notes how the pools stand in the ledger.
--
-- KEYS[1]: the event's pools, a hash of one entry a pool: "version free held until claimed claimed_until sure_from":
-- free and held units at that version of the event; when the ledger may be asked again although they are too few; units
-- that are on their way to the ledger, and until when they count; from when on a possible repetition may be refused.
-- ARGV: for each ask its kind: c to claim, g to note after a grant, r to note after a refusal; the pool; the quantity, for
-- a note that of the claim that ends; 1 if it may be a repetition; the version that the server has read, and free,
-- held, and held or sold units at that version; after how many milliseconds that may be doubted.
-- Answer to c: {0} go on; {1, free, held} too few; {2} others have claimed them: ask again soon. To notes: nothing.

local CLAIM_MS, KEEP_MS = 3000, 86400000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
for at = 1, #ARGV, 9 do
    local kind, pool, quantity, repeats = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3] == '1'
    local known, known_free, known_held = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
    local doubt_at = now + tonumber(ARGV[at + 8])
    local version, free, held, till, claimed, claimed_till, sure_from = -1, 0, 0, 0, 0, 0, 0
    local entry = redis.call('HGET', KEYS[1], pool)
    if entry then
        local parts = {}
        for part in string.gmatch(entry, '%d+') do
            parts[#parts + 1] = tonumber(part)
        end
        version, free, held, till, claimed, claimed_till, sure_from = unpack(parts)
    elseif tonumber(ARGV[at + 7]) > 0 then
        -- Redis knew nothing of a pool that was sold from: it may have lost what tells repetitions.
        sure_from = now + KEEP_MS
    end
    if known > version then
        version, free, held = known, known_free, known_held
        -- The first of the holds to be over counts, whoever told of it.
        till = till > now and math.min(till, doubt_at) or doubt_at
    end
    if known == version and kind == 'r' then
        till = doubt_at
    end
    if now >= claimed_till then
        claimed = 0
    end
    local answer = {}
    if kind ~= 'c' then
        claimed = math.max(0, claimed - quantity)
    elseif quantity > free and now < till and not (repeats and now < sure_from) then
        answer = { 1, free, held }
    elseif quantity > free then
        answer, till = { 0 }, now + CLAIM_MS
    elseif quantity > free - claimed then
        answer = { 2 }
    else
        answer, claimed, claimed_till = { 0 }, claimed + quantity, now + CLAIM_MS
    end
    redis.call('HSET', KEYS[1], pool, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f',
        version, free, held, till, claimed, claimed_till, sure_from))
    answers[#answers + 1] = answer
end
redis.call('PEXPIRE', KEYS[1], KEEP_MS)
return answers

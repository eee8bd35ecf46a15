-- Claims units of an event's pools for new holds, and notes how the pools stand in the ledger.
--
-- KEYS[1]: the event's pools, a hash of one entry a pool: "version free held until claimed older turn_at":
-- free and held units at that version of the event, in a bucket its share of the free ones; when the ledger may be asked again although they are too few; units
-- that are on their way to the ledger, those claimed since the last turn and those before it, and when the next turn is.
-- ARGV: for each ask its kind: c to claim, g to note after a grant, r to note after a refusal; the pool; the quantity, for
-- a note that of the claim that ends; the version that the server has read, and free and held units at that version; after
-- how many milliseconds that may be doubted.
-- Answer to c: {0} claimed: go on; {1, free, held} too few; {2} others have claimed them: ask again soon; {3} too few, and to
-- be doubted: go on without a claim. To notes: nothing.

local CLAIM_MS, KEEP_MS = 3000, 86400000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Each pool is read once and written once, however many ask about it.
local pools, answers = {}, {}
for at = 1, #ARGV, 7 do
    local kind, pool, quantity = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local known, known_free, known_held = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
    local doubt_at = now + tonumber(ARGV[at + 6])
    if not pools[pool] then
        local entry = redis.call('HGET', KEYS[1], pool)
        if entry then
            local parts = {}
            for part in string.gmatch(entry, '%d+') do
                parts[#parts + 1] = tonumber(part)
            end
            pools[pool] = parts
        else
            pools[pool] = { -1, 0, 0, 0, 0, 0, 0 }
        end
    end
    local version, free, held, till, claimed, older, turn_at = unpack(pools[pool])
    local is_due = till > 0 and now >= till
    -- What is doubted gives way even to an older version: the ledger may have lost the one that it is of.
    if known > version or (is_due and kind == 'c') then
        version, free, held = known, known_free, known_held
        -- The first of the holds to be over counts, whoever told of it.
        if not is_due then
            till = till > 0 and math.min(till, doubt_at) or doubt_at
        end
    end
    if known == version and kind == 'r' then
        till = doubt_at
    end
    -- A claim that nobody ended is forgotten with the second turn.
    if now >= turn_at then
        older = now < turn_at + CLAIM_MS and claimed or 0
        claimed, turn_at = 0, now + CLAIM_MS
    end
    local answer = {}
    if kind ~= 'c' then
        local of_older = math.min(older, quantity)
        older, claimed = older - of_older, math.max(0, claimed - quantity + of_older)
    elseif quantity > free and now < till then
        answer = { 1, free, held }
    elseif quantity > free then
        answer, till = { 3 }, now + CLAIM_MS
    elseif quantity > free - claimed - older then
        answer = { 2 }
    else
        answer, claimed = { 0 }, claimed + quantity
    end
    pools[pool] = { version, free, held, till, claimed, older, turn_at }
    answers[#answers + 1] = answer
end
for pool, parts in pairs(pools) do
    redis.call('HSET', KEYS[1], pool, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', unpack(parts)))
end
redis.call('PEXPIRE', KEYS[1], KEEP_MS)
return answers

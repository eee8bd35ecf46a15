-- Grants plain holds: see 0005_hold.sql for the arguments and 0010_hold_short.sql, which come in the same order.
SELECT place, verdict, at, number, fences, taken
FROM leasehold.hold_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- Locks and loads: see 0002_load.sql for the arguments, which come in the same order.
SELECT leasehold.load_v1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18
)::text

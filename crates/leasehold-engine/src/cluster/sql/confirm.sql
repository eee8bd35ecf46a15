-- Sells what live holds keep: see 0006_confirm.sql for the arguments, which come in the same order.
SELECT place, verdict, at, number, event_no, items, holder FROM leasehold.confirm_v1($1, $2, $3, $4, $5, $6)

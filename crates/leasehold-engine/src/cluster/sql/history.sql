-- Entries of an event's log, newest first.
--
-- $1 the event, $2 only before this version, $3 only after this one, $4 at most so many. What they are about, each
-- null when it does not matter: $5 a seat, $6 a hold, $7 a holder, $8 an order or payment.
WITH wanted AS (
    SELECT id FROM leasehold.holds WHERE event_no = $1 AND ($6::uuid = id OR $7::text = holder)
    UNION
    SELECT hold FROM leasehold.bookings WHERE event_no = $1 AND $8::text IN (order_ref, payment_ref)
    UNION
    SELECT hold FROM leasehold.payments WHERE event_no = $1 AND $8::text = reference
    UNION
    -- Every hold that had the seat: what happened to it belongs to the seat's story, also where the seat stayed as it was.
    SELECT subject FROM leasehold.log
    WHERE event_no = $1 AND version > $3 AND $5::integer IS NOT NULL
      AND EXISTS (SELECT 1 FROM generate_series(1, cardinality(seats), 2) AS i WHERE seats[i] = $5)
)
SELECT version, at, kind, seats, pools, rules::text, subject, reason FROM leasehold.log
WHERE event_no = $1 AND version < $2 AND version > $3
  AND (coalesce($5::integer::text, $6::uuid::text, $7::text, $8::text) IS NULL
      OR subject IN (SELECT id FROM wanted)
      OR EXISTS (SELECT 1 FROM generate_series(1, cardinality(seats), 2) AS i WHERE seats[i] = $5))
ORDER BY version DESC LIMIT $4

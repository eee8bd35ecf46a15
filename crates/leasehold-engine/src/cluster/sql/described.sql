-- How things stand that log entries are about: $1 the event, $2 the holds, $3 a seat or null.
--
-- Result: one row a thing: what it is (hold, booking, block), whether it has the seat, and the thing itself.
WITH owner AS (
    SELECT status, owner AS id FROM leasehold.seats WHERE event_no = $1 AND seat_no = $3::integer AND status > 0
), sold AS (
    SELECT booking.hold FROM leasehold.bookings AS booking JOIN owner ON owner.status = 2 AND owner.id = booking.id
), holds AS (
    SELECT hold.* FROM leasehold.holds AS hold
    WHERE hold.event_no = $1
      AND (hold.id = ANY ($2) OR hold.id IN (SELECT id FROM owner WHERE status = 1 UNION SELECT hold FROM sold))
)
SELECT 'hold', holds.id IN (SELECT id FROM owner), row_to_json(holds)::text FROM holds
UNION ALL
SELECT 'booking', sale.id IN (SELECT id FROM owner), row_to_json(sale)::text
FROM leasehold.bookings AS sale JOIN holds ON holds.booking = sale.id
UNION ALL
SELECT 'block', true, row_to_json(block)::text
FROM leasehold.blocks AS block JOIN owner ON owner.status = 3 AND owner.id = block.id

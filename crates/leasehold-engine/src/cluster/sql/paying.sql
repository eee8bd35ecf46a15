-- Payments in progress of the events of holds $1 that limit them, or that are among $2 and may begin to.
SELECT event_no, count(*) FROM leasehold.holds
WHERE state = 1 AND event_no IN (
    SELECT no FROM leasehold.events
    WHERE no IN (SELECT asked.event_no FROM leasehold.holds AS asked WHERE asked.id = ANY ($1))
      AND (payments_in_flight_max > 0 OR no = ANY ($2))
)
GROUP BY event_no

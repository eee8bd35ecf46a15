-- 0009: why an operator took a hold away or blocked something, with the entry that tells of it.

ALTER TABLE leasehold.log ADD COLUMN reason text;

-- What epochs rest on. No arguments. Changes nothing. Result: one row.
SELECT current_setting('server_version') AS version,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS in_recovery,
       to_regclass('leasehold_redis_epochs') IS NOT NULL
           OR coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous

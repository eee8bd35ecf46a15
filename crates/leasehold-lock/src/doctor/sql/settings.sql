-- What epochs and leases rest on. No arguments. Changes nothing. Result: one row.
SELECT current_setting('server_version') AS version,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS in_recovery,
       to_regclass('leasehold_redis_epochs') IS NOT NULL
           OR coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create_epochs,
       coalesce(has_schema_privilege(to_regnamespace('leasehold_locks'), 'USAGE')
               AND has_table_privilege(to_regclass('leasehold_locks.leases'), 'INSERT'),
           has_database_privilege(current_database(), 'CREATE')) AS may_lock,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous

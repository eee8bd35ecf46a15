-- What a ledger's guarantees and speed rest on. No arguments. Changes nothing. Result: one row.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number,
       pg_is_in_recovery() AS in_recovery,
       current_setting('fsync')::boolean AS fsync,
       current_setting('full_page_writes')::boolean AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum')::boolean AS autovacuum,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           AS connections_max,
       -- Everybody may read these sums; this one connection is among them.
       (SELECT coalesce(sum(numbackends), 1)::bigint - 1 FROM pg_stat_database) AS connections,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       pg_has_role('pg_read_all_stats', 'USAGE') AS may_see_standbys,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS encrypted,
       coalesce(inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1', true) AS on_this_machine,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       -- By the catalogue: whoever may not use the schema may not name what is in it.
       EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('leasehold') AND relname = 'migrations')
           AS has_tables,
       coalesce(has_schema_privilege(to_regnamespace('leasehold'), 'USAGE'), false)
           AND coalesce((SELECT bool_and(has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                             AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
                         FROM pg_class
                         WHERE relnamespace = to_regnamespace('leasehold') AND relkind = 'r'), false) AS may_use

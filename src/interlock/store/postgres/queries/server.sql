SELECT
    current_setting('server_version') AS version,
    current_setting('server_encoding') AS encoding,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes

SELECT schema_version FROM interlock.meta

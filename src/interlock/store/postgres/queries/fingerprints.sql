SELECT number, fingerprint FROM interlock.applied_migration

UPDATE interlock.meta SET schema_version = $1

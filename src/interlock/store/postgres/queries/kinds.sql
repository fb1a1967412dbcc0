SELECT name, digest FROM interlock.kind

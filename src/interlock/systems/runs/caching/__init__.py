"""Files that jobs keep for later jobs: `lifecycle` is the table, `caches` what is done by it."""

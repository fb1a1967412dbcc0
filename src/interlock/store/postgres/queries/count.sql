SELECT count(*) FROM (SELECT FROM interlock.record WHERE {conditions} LIMIT $1) AS counted

SELECT CASE WHEN interlock.stands($9, $10, $11) THEN interlock.try_batch($1, $2, $3, $4, $5, $6, $7, $8) END AS at

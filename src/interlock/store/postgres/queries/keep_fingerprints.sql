INSERT INTO interlock.applied_migration (number, name, fingerprint)
SELECT * FROM unnest($1::integer[], $2::text[], $3::text[])
ON CONFLICT (number) DO NOTHING

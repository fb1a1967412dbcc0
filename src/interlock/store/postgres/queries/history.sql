-- The entries of one record: in the rows of its own, and in the packed rows of the transactions that it knows.
SELECT found.xact, found.entry, found.at, $1::text, $2::text, found.version, found.note
FROM (
    SELECT single.xact, single.entry, single.at, single.version, single.note::text
    FROM interlock.journal_single AS single
    WHERE single.id = $2 AND (single.kind = $1) IS TRUE AND single.version > $3
    UNION ALL
    SELECT packed.xact, packed.entry + member.place - 1, packed.at, packed.version,
        coalesce(packed.note::text, member.note)
    FROM interlock.journal_packed AS packed
    CROSS JOIN LATERAL unnest(string_to_array(packed.ids, E'\x1e', ''), string_to_array(packed.notes, E'\n'))
        WITH ORDINALITY AS member (id, note, place)
    WHERE packed.xact = ANY (interlock.xacts_of(coalesce(
          (SELECT live.trail FROM interlock.live WHERE live.id = $2 AND live.kind = $1),
          (
              SELECT ended.trail FROM interlock.spec JOIN interlock.ended USING (id, kind, created_at)
              WHERE spec.id = $2 AND spec.kind = $1 AND interlock.stretch(ended.kind, ended.state) = ANY (
                  (SELECT kind.stretches FROM interlock.kind WHERE kind.name = $1)::bigint[]
              )
          )
      )))
      AND packed.kind = $1 AND packed.version > $3 AND member.id = $2
) AS found
ORDER BY found.version, found.entry
LIMIT $4

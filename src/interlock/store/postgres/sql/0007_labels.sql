-- Lists by label. Only records that have one are in this index, so the others do not pay for it; and a
-- label never changes, but every step writes a new version of the row, which has to be in it as well.
-- What is written waits in a short list first, so that a step costs little.
CREATE INDEX record_by_label ON interlock.record USING gin (labels)
    WITH (gin_pending_list_limit = 256) WHERE labels <> '{}';

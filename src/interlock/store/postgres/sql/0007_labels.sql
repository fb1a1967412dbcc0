-- Lists by label. Only records that have one are in this index, so the others do not pay for it. It has a
-- stretch for each set of labels and state that there is, in the order of creation: who asks for a label
-- jumps from one to the next, and merges those whose set has it.
--
-- An inverted index would find the records of a label as well, but all of them at once, in no order: the
-- newest fifty of a label that a fiftieth of a million has took 100 times as long.
CREATE INDEX record_by_labels ON interlock.record (kind, labels, state, created_at, id)
    WHERE labels <> '{}' AND version > 0;

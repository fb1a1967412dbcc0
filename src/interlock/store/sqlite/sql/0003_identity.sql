-- Which file this is: its inode, and whether a mark is kept at it. A copy is another one, perhaps an older one
-- that was restored: its first opener raises the epoch.
ALTER TABLE progress ADD COLUMN identity TEXT NOT NULL DEFAULT '';

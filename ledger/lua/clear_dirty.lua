-- Takes a shard's mark back after an AOF rewrite was begun that covers it (C-84).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] mark as the sweep read it
-- Reply: {-1, cleared 0|1}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: the mark of a later erasure stays.
--!include guard
--!include keys
local seq_key, store_id, seen, mark = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

guard(seq_key, store_id, seen)
if redis.call('GET', K.dirty) ~= mark then return { -1, 0 } end
redis.call('DEL', K.dirty)
return { -1, 1 }

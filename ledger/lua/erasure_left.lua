-- Whether erasures of a session are still being deleted.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] sid
-- Reply: {-1, pieces left 0|1}
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
--!include keys
--!include erasing
local seq_key, store_id, seen, sid = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

guard(seq_key, store_id, seen)
return { -1, erasing(sid) and 1 or 0 }

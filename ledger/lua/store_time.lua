-- The store's time, for processes that turn it into their own (C-50).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- Reply: {-1, store time ms}
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
local seq_key, store_id, seen = KEYS[1], ARGV[1], ARGV[2]

guard(seq_key, store_id, seen)
return { -1, store_now() }

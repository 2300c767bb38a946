-- Raises a shard's counter, so that the WAITAOF after it covers everything that was read on this server before (C-25).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- Reply: {n}
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
local seq_key, store_id, seen = KEYS[1], ARGV[1], ARGV[2]

guard(seq_key, store_id, seen)
return { raise_seq(seq_key) }

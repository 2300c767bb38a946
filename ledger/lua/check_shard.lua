-- Answers a shard's counter to a process that met the server anew, or refuses the shard for it (C-27).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] 1 if the caller found writes missing in another shard, else 0
-- Reply: {-1, n}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: writes nothing but `refused`; a shard that was accepted since is left alone.
--!include guard
local seq_key, store_id, seen, refuse_it = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

guard(seq_key, store_id, seen)
if refuse_it == '1' then redis.call('HSET', seq_key, 'refused', store_id) end
return { -1, tonumber(redis.call('HGET', seq_key, 'n') or '0') }

-- A lingering worker stops claiming: its promise is taken back, unless sessions became ready (architecture, step 4).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- Reply: {-1, 'off'|'not_empty'}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: the promise is never cleared while sessions are ready.
--!include guard
--!include keys
local seq_key, store_id, seen = KEYS[1], ARGV[1], ARGV[2]

guard(seq_key, store_id, seen)
if redis.call('ZCARD', K.ready) > 0 then return { -1, 'not_empty' } end
redis.call('DEL', K.awake)
return { -1, 'off' }

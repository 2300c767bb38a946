-- The first process that admits deliveries writes down which tombstone key the store has; another key is refused (C-84).
-- KEYS[1] seq hash of shard 0
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] what stands for the key
-- Reply: {n, 'pinned'|'known'}
-- Errors: STORE_WENT_BACK STORE_CHANGED TOMBSTONE_KEY_CHANGED
-- Guarantees: what is written once never changes; the key itself is not stored.
--!include guard
local seq_key, store_id, seen, check = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local FIX = 'this store has another tombstone key: set retention.tombstone_key, or use the key file of the others'

guard(seq_key, store_id, seen)
local pinned = redis.call('HGET', seq_key, 'tombstone_key')
if pinned and pinned ~= check then refuse('TOMBSTONE_KEY_CHANGED', FIX) end
if not pinned then redis.call('HSET', seq_key, 'tombstone_key', check) end
return { raise_seq(seq_key), pinned and 'known' or 'pinned' }

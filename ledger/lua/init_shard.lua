-- Makes a shard's counter hash at first use and answers what it holds (C-27).
-- KEYS[1] seq hash
-- ARGV[1] store id to use if the shard is new · ARGV[2] number of shards to write at first use
-- Reply: {store id, n, refused or '', shards}
-- Guarantees: never changes a shard that exists. Errors: none.
local seq_key, store_id, shards = KEYS[1], ARGV[1], ARGV[2]
if redis.call('HSETNX', seq_key, 'store', store_id) == 1 then redis.call('HSET', seq_key, 'n', 0, 'shards', shards) end
local seq = redis.call('HMGET', seq_key, 'store', 'n', 'refused', 'shards')
return { seq[1], tonumber(seq[2]), seq[3] or '', tonumber(seq[4]) }

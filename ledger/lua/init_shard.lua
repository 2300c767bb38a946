-- Makes a shard's counter hash at first use and answers what it holds (C-27).
-- KEYS[1] seq hash
-- ARGV[1] store id to use if the shard is new · ARGV[2] number of shards to write at first use
-- Reply: {store id, n, refused or '', shards, layout of the keys}
-- Guarantees: changes nothing that is there; adds what a store that was emptied and accepted lacks. Errors: none.
local seq_key, store_id, shards = KEYS[1], ARGV[1], ARGV[2]
redis.call('HSETNX', seq_key, 'store', store_id)
redis.call('HSETNX', seq_key, 'n', 0)
redis.call('HSETNX', seq_key, 'layout', 1)
redis.call('HSETNX', seq_key, 'shards', shards)
local seq = redis.call('HMGET', seq_key, 'store', 'n', 'refused', 'shards', 'layout')
return { seq[1], tonumber(seq[2]), seq[3] or '', tonumber(seq[4]), tonumber(seq[5]) }

-- Adds what a process has counted since it last said so to the store's counters, for the dashboards.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {p q c ls}: process, number of this report (from 1), {counter = increment}, ms for which a
--   repeat is known as one
-- Reply: {n, 'added'|'repeated'}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: a report that is sent again is added once.
--!include guard
--!include keys
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local mark = K.counted(q.p)
if tonumber(redis.call('GET', mark) or '0') >= q.q then return { raise_seq(seq_key), 'repeated' } end
for name, by in pairs(q.c) do redis.call('HINCRBY', K.counts, name, by) end
redis.call('SET', mark, q.q, 'PX', q.ls)
return { raise_seq(seq_key), 'added' }

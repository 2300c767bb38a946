-- Reads a run's journal from a position (C-112).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] run id · ARGV[4] tenant · ARGV[5] events seen · ARGV[6] most
-- Reply: {-1, {packed event, ...}, length, ended 0|1} or {-1, {}, -1, 0} when unknown to this tenant
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
--!include keys
--!include pack
local seq_key, store_id, seen, run, tenant, after, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

guard(seq_key, store_id, seen)
local f = redis.call('HMGET', K.run(run), 'm', 's')
local meta = unpack_record(f[1] or nil)
if not meta or meta.tn ~= tenant then return { -1, {}, -1, 0 } end
local events = redis.call('LRANGE', K.journal(run), after, after + most - 1)
return { -1, events, redis.call('LLEN', K.journal(run)), unpack_record(f[2]).en and 1 or 0 }

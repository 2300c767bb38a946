-- Reads a run's journal from a position (C-112).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] run id · ARGV[4] tenant · ARGV[5] events seen · ARGV[6] most
-- Reply: {-1, {packed event, ...}, length, ended 0|1} or {-1, {}, -1, 0} when unknown to this tenant
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!function
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include run
local seq_key, store_id, seen, run, tenant, after, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

guard(seq_key, store_id, seen)
local R = load_run(run, store_now())
if not R or R.meta.tn ~= tenant or not session_of(R) then return { -1, {}, -1, 0 } end
local events = redis.call('LRANGE', R.journal, after, after + most - 1)
return { -1, events, redis.call('LLEN', R.journal), R.state.en and 1 or 0 }

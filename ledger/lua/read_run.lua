-- Reads one run as its callers see it; meets expired approval requests on the way and writes their expiry (C-41).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] run id · ARGV[4] tenant
-- Reply: {n or -1 when nothing was written, wake, view} or {-1, 0, {}} when the run is unknown to this tenant
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!function
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include run
--!include expire
--!include view
local seq_key, store_id, seen, run, tenant = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

guard(seq_key, store_id, seen)
local now = store_now()
local R, fields = load_whole_run(run, now)
local S = R and R.meta.tn == tenant and session_of(R)
if not S then return { -1, 0, {} } end
local n = -1
if not R.state.en and expire_due(S, R) then n, fields = raise_seq(seq_key), nil end
return { n, WAKE, run_view(S, R, fields) }

-- Cancels a run (C-55): pending approvals and calls not begun end cancelled; a begun call is left to its owner.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] run id · ARGV[4] tenant
-- Reply: {n, 'cancelled'|'cancelling'|'ended', wake, view}; {-1, 'unknown', 0, {}} for another tenant's or no run
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: terminal states never change; nothing not begun is ever begun after this.
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
local R = load_run(run, now)
local S = R and R.meta.tn == tenant and session_of(R)
if not S then return { -1, 'unknown', 0, {} } end
-- All calls are read before anything is written, so that one that cannot be read leaves nothing half done.
for i = 0, call_count(R) - 1 do call_of(R, i) end
-- What ran out before the cancel ended by itself, whether a sweep saw it or not (C-41).
if not R.state.en then expire_due(S, R) end
if R.state.en then
  return { raise_seq(seq_key), R.state.st == 'cancelled' and 'cancelled' or 'ended', WAKE, run_view(S, R) }
end
R.state.cx = true
redis.call('HSET', R.key, 'cx', '1')
local begun = false
for i = R.state.i, call_count(R) - 1 do
  local status = call_of(R, i).st
  if status == 'g' then begun = true elseif not ENDED[status] then end_call(R, i, 'k') end
end
if begun then
  save_run(R)
  redis.call('SPUBLISH', K.signal, 'n' .. S.sid)
  return { raise_seq(seq_key), 'cancelling', 0, run_view(S, R) }
end
finish_run(S, R)
return { raise_seq(seq_key), 'cancelled', WAKE, run_view(S, R) }

-- Ends a handler run with what its handler returned; the narration is stored in the same step (C-25, C-70, C-92).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tk run er cd nr}: sid, owner token, run, whether it failed, end code, narration JSON
-- Reply: {n, 'ended'|'repeated'|'over', run status}; over: something else ended the run before
-- Errors: STORE_WENT_BACK STORE_CHANGED LEASE_LOST RUN_ENDED CALL_IN_FLIGHT
-- Guarantees: a run with a call in flight or not settled does not end (C-24); the turn is finished with the narration only.
--!function
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include outcome
--!include run
--!include handler
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid)
local before = load_run(q.run, now)
if before and before.state.en then
  local how = before.state.by == q.tk and 'repeated' or 'over'
  return { raise_seq(seq_key), how, before.state.st }
end
local R = own_handler(S, q.tk, q.run, now)
local s = R.state
if s.i < call_count(R) and call_of(R, s.i).st == 'g' then refuse('CALL_IN_FLIGHT', R.id .. ':' .. s.i) end
end_rest(R, s.i, 'k')
if q.nr then
  redis.call('HSET', R.key, 'nr', q.nr)
  R.narrated = true
end
s.er, s.by = q.er, q.tk
finish_run(S, R, q.cd)
return { raise_seq(seq_key), 'ended', s.st }

-- Begins the next call of an owned session: after a put-back, a policy check, or news for an idle owner.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tk st pd pv to dr le wr ex bc tb yd hd ol pp ap}: sid, owner token, step, policy digest,
--   version of the declared tools, begin policy (see lib/begin.lua), yield if others wait, what handlers may be
--   started, only calls of live handlers, re-resolved protection {run i pr lv} (C-05), approval id for a call found protected only now
-- Reply: {n, packed work}; a call is a list, see work_reply in lib/begin.lua, else work.k is handler | check | parked |
--   yielded | released | again
-- Errors: STORE_WENT_BACK STORE_CHANGED LEASE_LOST STALE_STEP ATTEMPT_VOIDED CALL_IN_FLIGHT POLICY_STALE
-- Guarantees: the intent, the consumed approval and the step are written together or not at all (C-13).
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
--!include retire
--!include handler
--!include begin
--!include ask
--!include protect
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], read_begin_request(ARGV[3])

q.pn = guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid)
if not S then refuse('LEASE_LOST', 'the session is gone') end
S.out = {}
local work = answered_before(S, q, now)
if not work then
  if q.pp then protect_more(S, q, now) end
  work = begin_or_give_up(S, q, now)
end
save_session(S)
return { raise_seq(seq_key), cmsgpack.pack(work) }

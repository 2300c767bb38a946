-- Puts an attempt back whose intent was not confirmed in time, or that may still be on its way (C-23).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tk st at rs cd}: sid, owner token, step (greater than the begin's), attempt, reason, refusal
--   code shown to the caller
-- Reply: {n, 'voided'|'nothing'|'repeated', record JSON or '', revision, run id or '', call index}
-- Errors: STORE_WENT_BACK STORE_CHANGED LEASE_LOST STALE_STEP
-- Guarantees: a begin of that attempt which lands later is refused STALE_STEP; the approval stays consumed.
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
--!include begin
--!include report
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid)
if not S then refuse('LEASE_LOST', 'the session is gone') end
if check_step(S, q.tk, q.st, 'v') then return { raise_seq(seq_key), 'repeated', '', 0, '', 0 } end
S.step = q.st .. 'v'
redis.call('HSET', S.key, 'p', S.step)

local current = S.current
if not current or current.at ~= q.at then return { raise_seq(seq_key), 'nothing', '', 0, '', 0 } end
redis.call('HDEL', S.key, 'c')
local R = load_run(current.r, now)
local record, revision = '', 0
if R then R.at_call = current.i end
if current.k == 'm' then
  local entry = load_entry(S, current.t, current.m)
  if entry and entry.s == 's' and entry.at == q.at then
    entry.vo = q.at
    apply_status(S, R, current.t, current.m, entry, 'a', q.rs, now)
    record, revision = outcome_record(turn_id(S, current.t), hex(current.m), entry), entry.rv
  end
end
if R and call_of(R, current.i).st == 'g' then
  call_of(R, current.i).rf = q.cd
  end_attempted_call(R, current.i, 'a')
  save_run(R)
end
return { raise_seq(seq_key), 'voided', record, revision, current.r, current.i }

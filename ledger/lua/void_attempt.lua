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
--!include handler
--!include begin
--!include report
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid)
if not S then refuse('LEASE_LOST', 'the session is gone') end
local repeated = check_step(S, q.tk, q.st, 'v')
local current = repeated and S.voided or S.current
if not current or current.at ~= q.at then
  if not repeated then
    redis.call('HSET', S.key, 'p', q.st .. 'v')
    unstart_handler(S, tonumber(string.match(q.at, '%d+$')), now)
  end
  return { raise_seq(seq_key), repeated and 'repeated' or 'nothing', '', 0, '', 0 }
end

local entry = current.k ~= 'u' and current.m and load_entry(S, current.t, current.m)
local R = not repeated and load_run(current.r, now)
if not repeated then
  if R then
    R.at_call = current.i
    call_of(R, current.i)
  end
  if entry and entry.s == 's' and entry.at == q.at then
    entry.vo = q.at
    apply_status(S, R or nil, current.t, current.m, entry, 'a', q.rs, now)
  end
  if R and call_of(R, current.i).st == 'g' then
    call_of(R, current.i).rf = q.cd
    end_attempted_call(R, current.i, 'a')
    save_run(R)
  end
  -- What was put back is kept for a repeat of this call, until the next begin.
  current.k = 'v'
  redis.call('HSET', S.key, 'p', q.st .. 'v', 'c', pack_current(current))
end
local published = entry and entry.vo == q.at
return { raise_seq(seq_key), repeated and 'repeated' or 'voided',
  published and outcome_record(turn_id(S, current.t), hex(current.m), entry) or '', published and entry.rv or 0,
  current.r, current.i }

-- Settles one attempt and, when asked and still the owner, begins the session's next call in the same step (C-24).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tk at r i t m x v rs res cd nx st pd pv to dr le wr ex bc tb yd hd ol}: sid, owner token,
--   attempt, run, call, turn number, mutation (raw, and spelled; turn and mutation absent for an unprotected call),
--   status c|f|u|a, reason, result JSON, refusal code shown to the caller, begin next, step, policy digest, version of
--   the declared tools, begin policy (see lib/begin.lua), yield if others wait, handlers to start, only calls of live
--   handlers (see begin_next)
-- Reply: {n, 'settled'|'repeated'|'late'|'kept', record JSON or '', revision, packed work or '', next refusal or ''}
--   next refusal: an error code of begin_next, FORMAT_TOO_NEW or UNREADABLE when the next record cannot be read
--   late: the session had been reclaimed and the first-hand report won; kept: someone reconciled in between, the report
--   is kept as evidence and changes nothing
-- Errors: STORE_WENT_BACK STORE_CHANGED ATTEMPT_MISMATCH
-- Guarantees: the settle part never depends on the begin part, whose refusal is only reported.
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
--!include report
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], read_settle_request(ARGV[3])

q.pn = guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid, q.m and turn_field(q.t), q.m and entry_field(q.t, q.m))
if not S then refuse('ATTEMPT_MISMATCH', 'the session is gone') end
local owned = S.owner == q.tk
local in_flight = S.current and S.current.at == q.at
local R = load_run(q.r, now, q.i)
S.out, S.at_hand = {}, R
local how, record, revision = 'settled', '', 0

-- Somebody reconciled before this report came: it changes nothing, is kept in `field`, and raises an alarm (C-91).
local function keep_evidence(entry, field)
  if not entry[field] then redis.call('HINCRBY', K.counts, 'late_reports:' .. q.v, 1) end
  entry[field] = q.v
  save_entry(S, q.t, q.m, entry)
  how = 'kept'
end

local function settle_mutation()
  spelled, spelling = q.m, q.x
  local entry = load_entry(S, q.t, q.m)
  local back = entry and q.v == 'a' and entry.pb
  if back and back.k == q.at then
    -- Sent again, perhaps after the very mutation was begun anew, by this settlement even: nothing of that is its business.
    local mine = { s = 'a', r = q.rs, tl = entry.tl, pf = back.f or entry.pf }
    how, record, revision = 'repeated', outcome_record(turn_id(S, q.t), hex(q.m), mine), back.v
    return
  end
  if entry and entry.pa == q.at and entry.pc then
    -- Said not to be executed, and begun anew since: the effect may be there twice.
    keep_evidence(entry, 'pl')
    record, revision = outcome_record(turn_id(S, q.t), hex(q.m), entry), entry.rv
    return
  end
  if not entry or entry.at ~= q.at or entry.vo == q.at then refuse('ATTEMPT_MISMATCH', 'another attempt or none') end
  if R then R.at_call = q.i end
  local call = R and call_of(R, q.i)
  if entry.rc then
    keep_evidence(entry, 'ls')
    -- The call ends with what was decided about it; left open, it would be begun once more.
    if call and call.st == 'g' then end_attempted_call(R, q.i, entry.s) end
  elseif entry.s == 's' or (entry.s == 'u' and not entry.fh and q.v ~= 'u') then
    how = entry.s == 's' and 'settled' or 'late'
    entry.fh = true
    record = apply_status(S, R, q.t, q.m, entry, q.v, q.rs, now)
    if q.v == 'a' then
      entry.pb = { k = q.at, v = entry.rv }
      save_entry(S, q.t, q.m, entry)
    end
    if call and (call.st == 'g' or call.st == 'u') then
      call.rf = q.cd
      end_attempted_call(R, q.i, q.v, q.res)
    end
  else
    -- A late report that it does not know either still says that the attempt is over (C-91).
    if entry.s == 'u' and not entry.fh then
      entry.fh = true
      save_entry(S, q.t, q.m, entry)
    end
    how = 'repeated'
  end
  if record == '' then record = outcome_record(turn_id(S, q.t), hex(q.m), entry) end
  revision = entry.rv
end

local function settle_unprotected()
  if not in_flight then how = 'repeated' return end
  local call = R and call_of(R, q.i)
  if call and call.st == 'g' then
    R.state.sk, call.rf = nil, q.cd
    end_attempted_call(R, q.i, q.v, q.res)
  end
end

-- Never fails: the settlement above has been written, and its caller must hear of it.
local function begin_more()
  if not owned then return cmsgpack.pack(gave_up(S, q.tk, q.st) or { k = 'lost' }), '' end
  local ok, answer = pcall(continue_session, S, q, now)
  if ok then return cmsgpack.pack(answer), '' end
  return '', caught_code(answer) or 'UNREADABLE'
end

if q.m then settle_mutation() else settle_unprotected() end
local cleared = owned and in_flight
if cleared then S.current = nil end

-- The run is written once, with what the next begin makes of it.
local work, next_refusal = '', ''
if q.nx then work, next_refusal = begin_more() end
if R and not R.saved then save_run(R) end
if cleared and S.owner and not S.current then drop(S, 'c') end
save_session(S)
return { raise_seq(seq_key), how, record, revision, work, next_refusal }

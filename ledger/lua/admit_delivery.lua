-- Admits one delivery: session, delivery, run, calls, approval requests and queue place in one step (C-40, C-60..C-64).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {tn s sid a u p d di au c run no k h oe ce cm ss ap pd pv be cn calls lim tb td lk jr in tp tx}:
--   tenant, session id, sid, agent, user, principal, delivery identity (raw), delivery id, made here (no id given),
--   content digest (raw), run id, nonce for a new session, kind, handler, on_error, ceiling ms from now, but at
--   most until (store ms), session clock ms, approval timeout ms, policy digest, version of the declared tools, budget of
--   a handler run {t ex ce}, turn id to continue, calls, limits {q p}, tombstone member and life ms, coalescing digest
--   (raw; absent when only the delivery id names the request), journal life ms, inactivity ms, traceparent, text and
--   input JSON of a handler run
--   a call: {t m a pr lv ru ap el ut ai}: tool, mutation (raw), arguments JSON, protected, level, rule, approval id, eligible
--     for the worker's budget (true) or for this allowance (ms), why its server would not know the tool, or not take
--     the arguments
-- Reply: {n, 'new'|'attached'|'redelivered', wake 0|1, view}
-- Errors: STORE_WENT_BACK STORE_CHANGED DELIVERY_RETIRED DELIVERY_MISMATCH LOGICAL_TURN_UNAVAILABLE DELIVERY_LIMIT
--   QUEUE_FULL APPROVALS_FULL POLICY_STALE UNKNOWN_TOOL ARGUMENTS_INVALID
-- Guarantees: a refusal changes nothing; the same delivery never makes a second live run.
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
--!include expire
--!include retire
--!include erase
--!include view
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

local DELIVERIES_MAX, MUTATIONS_MAX, EARLIER_MAX = 50, 32, 50

local version = guard(seq_key, store_id, seen)
local now = store_now()
if redis.call('ZSCORE', K.retired, q.tb) then refuse('DELIVERY_RETIRED', 'this delivery was retired') end

local S = load_session(q.sid)
local known = S and read_delivery(redis.call('HGET', S.key, 'd' .. q.d) or nil)
local outlived
if S and expired(S, now) then
  -- Its sweep would leave a tombstone for this delivery.
  if known and known.t then refuse('DELIVERY_RETIRED', 'its session has expired') end
  outlived, S, known = S, nil, nil
end
if not S then
  S = { sid = q.sid, key = K.session(q.sid), fresh = true, live = {},
        meta = { tn = q.tn, s = q.s, no = q.no, at = now, tc = 0, an = 0, lm = now, ia = q['in'], lv = 0, ts = {} } }
end

local function reply(how, R, fields)
  return { raise_seq(seq_key), how, WAKE, run_view(S, R, fields) }
end

if known then
  if known.c ~= q.c then refuse('DELIVERY_MISMATCH', 'same delivery_id, other content') end
  -- The run that this very request made, or attached to without a delivery id, when it is sent again (C-22).
  local R = load_run(known.at and known.r or q.run, now)
  local how = R and (known.at and 'attached' or R.meta.hw)
  if not R then
    R = load_run(known.r, now)
    how = R and not R.state.en and 'attached'
  end
  if how then
    if not R.state.en then expire_due(S, R) end
    return reply(how, R)
  end
elseif q.lk and not S.fresh then
  local live = redis.call('HGET', S.key, 'l' .. q.lk)
  local R = live and load_run(live, now)
  if R and not R.state.en then
    expire_due(S, R)
    -- Remembered, so that the same request sent again after that run's end starts nothing (C-61).
    redis.call('HSET', S.key, 'd' .. q.d, pack_delivery({ r = live, c = q.c, tb = q.tb, at = true }))
    redis.call('ZADD', K.forget, R.meta.ce + q.jr, S.sid .. q.d .. live)
    return reply('attached', R)
  end
end

require_policy(version, q.pv)
local turn_no = known and known.t or nil
local turn
if turn_no then
  turn = load_turn(S, turn_no)
  if not turn then refuse('LOGICAL_TURN_UNAVAILABLE', 'its logical turn is gone') end
elseif q.cn then
  turn_no = turn_number(S, q.cn)
  turn = turn_no and load_turn(S, turn_no)
  if not turn or turn.a ~= q.a or turn.u ~= q.u then refuse('LOGICAL_TURN_UNAVAILABLE', 'unknown logical turn') end
  if #turn.d >= DELIVERIES_MAX then refuse('DELIVERY_LIMIT', 'the logical turn holds 50 deliveries') end
end
if S.meta.lv >= q.lim.q then refuse('QUEUE_FULL', 'too many live runs in this session') end

-- What is recorded in the delivery's turn is refused here, before anybody is asked (C-60).
local asked, fresh_mutations, seen_here, protected, room = 0, 0, {}, false, nil
for _, call in ipairs(q.calls) do
  if call.pr then
    protected = true
    local entry = turn_no and load_entry(S, turn_no, call.m)
    if entry and REFUSAL[entry.s] then
      call.rf = REFUSAL[entry.s]
    elseif not entry and not seen_here[call.m] then
      fresh_mutations = fresh_mutations + 1
      if (turn and #turn.ms or 0) + fresh_mutations > MUTATIONS_MAX then call.rf = 'mutation_limit' end
      if room == nil then room = turn_no ~= nil or room_for_turn(S) end
      if not room then call.rf = 'turn_limit' end
    end
    -- A repeat inside one plan is never asked about: its first occurrence decides.
    if seen_here[call.m] then call.ap = nil end
    seen_here[call.m] = true
    if call.rf then call.ap = nil end
    if call.ap then asked = asked + 1 end
  end
  -- What its server lists may have changed since it was called: then the ledger's answer counts (C-60, C-64).
  local proposal = call -- what only the request holds, no record
  if proposal.ut and not call.rf then refuse('UNKNOWN_TOOL', proposal.ut) end
  if proposal.ai and not call.rf then refuse('ARGUMENTS_INVALID', proposal.ai) end
end
if asked > 0 and tonumber(redis.call('HGET', K.asked, q.sid) or '0') + asked > q.lim.p then
  refuse('APPROVALS_FULL', 'too many pending approvals in this session')
end

-- From here on nothing is refused.
if outlived then retire_session(outlived, now, q.td, false) end
S.out = {}
if S.fresh then S.meta.g = redis.call('INCR', K.fence) end
S.meta.an = S.meta.an + 1
S.meta.lv = S.meta.lv + 1
S.meta.ia = q['in']
if not known and protected then S.meta.lm = now end

local ceiling = math.min(now + q.ce, q.cm or math.huge)
local R = { id = q.run, key = K.run(q.run), journal = K.journal(q.run), calls = {}, dirty = {}, events = {}, out = {},
  now = now,
  meta = { tn = q.tn, s = q.s, sid = q.sid, a = q.a, u = q.u, p = q.p, d = q.d, di = q.di, n = S.meta.an,
           g = S.meta.g, k = q.k, h = q.h, oe = q.oe, ce = ceiling, ss = q.ss, pd = q.pd, be = q.be, ta = turn_no,
           co = #q.calls, tb = q.tb, jr = q.jr, lk = q.lk, tp = q.tp, at = now,
           hw = known and 'redelivered' or 'new' },
  state = { st = 'queued', i = 0, t = turn_no, su = 0, co = q.k == 'handler' and 0 or nil } }
journal_add(R, { a = R.now, e = 'run_started' })

local arguments, expires = {}, math.min(now + q.ap, ceiling)
for index, call in ipairs(q.calls) do
  local i = index - 1
  local status = call.rf and 'r' or (call.ap and 'w' or 'q')
  R.calls[i] = { t = call.t, m = call.m, st = status, pr = call.pr or nil, lv = call.lv, ap = call.ap, ru = call.ru,
                 rf = call.rf, ex = call.ap and expires or nil, el = call.el or nil }
  touch(R, i)
  if not call.rf then
    arguments[#arguments + 1] = q.run .. ':' .. i
    arguments[#arguments + 1] = call.a
  end
end
if #arguments > 0 then redis.call('HSET', K.args(q.sid), unpack(arguments)) end
save_meta(S)

-- The first error of a plan that stops may already be known; then nobody is asked about the rest.
local need, pending = advance(R), 0
for i = 0, R.meta.co - 1 do
  local call = R.calls[i]
  if call.st == 'w' then
    redis.call('HSET', K.approval(call.ap), 'a', pack_approval({ st = 'pending', tn = q.tn, s = q.s, sid = q.sid, run = q.run,
      i = i, tl = call.t, m = call.m, lv = call.lv, p = q.p, u = q.u, at = now, ex = expires }))
    redis.call('ZADD', K.approvals, expires, call.ap)
    redis.call('ZADD', K.pending(q.tn), now + i / 1000, call.ap)
    pending = pending + 1
    journal_add(R, { a = R.now, e = 'approval_requested', i = i, m = call.m, ap = call.ap })
  elseif call.ap then
    call.ap, call.ex = nil, nil
  elseif call.ru and call.st == 'q' then
    answered_by_rule(R, i, call)
  end
end

if pending > 0 then count_asked(q.sid, pending) end
-- Earlier runs of the delivery are remembered while their journals are kept, so that erasure finds them.
local earlier = {}
if known then
  for _, run in ipairs(known.er or {}) do
    if redis.call('EXISTS', K.run(run)) == 1 then earlier[#earlier + 1] = run end
  end
  earlier[#earlier + 1] = known.r
  if #earlier > EARLIER_MAX then erase_run(table.remove(earlier, 1)) end
end
put(S, 'd' .. q.d, { r = q.run, t = turn_no, c = q.c, tb = q.tb, er = #earlier > 0 and earlier or nil })
if q.lk then put(S, 'l' .. q.lk, q.run) end
redis.call('ZADD', K.sessions(q.tn), now, q.sid)
redis.call('ZADD', K.expiry, S.meta.lm + S.meta.ia, q.sid)
R.out = { 'm', pack_run_meta(R.meta) }
if q.tx then redis.call('HSET', K.args(q.sid), q.run .. ':in', q.tx) end
if turn then
  turn.lv = turn.lv + 1
  if not known then table.insert(turn.d, q.d) end
  save_turn(S, turn_no, turn)
end
if need == 'end' then
  finish_run(S, R)
else
  place_run(S, R)
end
save_session(S)
return reply(R.meta.hw, R, R.saved)

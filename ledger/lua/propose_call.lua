-- A live handler asks for a call: the call is added, refused by the record or by a limit, or found again (C-40, C-44).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tk run o t m a pr lv ru ap el pd pv bc to lp}: sid, owner token, run, how many calls this
--   start asked for before, tool, mutation (raw), arguments JSON, protected, level, rule, approval id, budget eligible,
--   policy digest, version of the declared tools, budget ceiling ms, approval timeout ms, most pending approvals of a
--   session
-- Reply: {n, packed {i st rf ap lf now turn res o}}: the call's index, status, refusal code, approval id, session clock
--   left ms, store time, turn id, result JSON, record JSON
-- Errors: STORE_WENT_BACK STORE_CHANGED LEASE_LOST RUN_ENDED CALL_IN_FLIGHT CALL_LIMIT REPLAY_DIVERGED
--   POLICY_STALE
-- Guarantees: the same proposal finds the same call, also after another owner started the handler anew: nobody is asked
--   twice. A start that takes another way cannot leave an intent behind it.
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
--!include ask
--!include handler
--!include begin
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

local CALLS_MAX = 256

local version = guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid)
local R = own_handler(S, q.tk, q.run, now)
local s = R.state
if s.cx then refuse('RUN_ENDED', 'the run was cancelled') end
require_policy(version, q.pv)

-- The index of the call that this start made as its `o`-th, or that an earlier start made in its place.
local function index_at(o)
  if s.tp then return s.tp[o + 1] end
  return o < call_count(R) and o or nil
end

-- What an earlier start asked for and this one does not: it is left behind, unless something may have happened.
local function leave_behind()
  if holds_intent(S, R) then refuse('REPLAY_DIVERGED', 'another call than on record') end
  local kept = {}
  for o = 0, q.o - 1 do kept[o + 1] = index_at(o) end
  end_rest(R, s.i, 'k')
  s.i, s.tp = call_count(R), kept
end

-- Why nobody is asked and nothing begun, or nil.
local function limited(call)
  if not call.pr then return nil end
  local code, entry = recorded(S, R, call)
  if code or entry then return code end
  local turn = s.t and load_turn(S, s.t)
  if turn and #turn.ms >= MUTATIONS_MAX then return 'mutation_limit' end
  if not turn and not room_for_turn(S) then return 'turn_limit' end
  return nil
end

-- The budget that came with the delivery goes before the worker's own (C-52).
local function eligible()
  local mine = R.meta.be
  return mine and not q.ru and mine.t[q.t] and mine.ex or q.el
end

local function add_call()
  local i = call_count(R)
  local call = { t = q.t, m = q.m, st = 'q', pr = q.pr, lv = q.lv, ru = q.ru, el = eligible(), pd = q.pd }
  R.calls[i], s.co = call, i + 1
  if s.tp then table.insert(s.tp, i) end
  touch(R, i)
  local code = limited(call)
  local ask = q.lv and not q.ru
  if not code and ask and tonumber(redis.call('HGET', K.asked, S.sid) or '0') >= q.lp then code = 'approvals_full' end
  if code then
    refuse_call(R, i, code)
  else
    if q.ru then answered_by_rule(R, i, call) end
    redis.call('HSET', K.args(S.sid), R.id .. ':' .. i, q.a)
    if ask then ask_person(S, R, i, q.ap, math.min(now + q.to, budget_ceiling(R, call, q.bc))) end
  end
  return i
end

local i = index_at(q.o)
local call = i and call_of(R, i)
if call and (call.t ~= q.t or call.m ~= q.m) then
  leave_behind()
  i = nil
elseif not i and call_count(R) >= CALLS_MAX then
  refuse('CALL_LIMIT', 'too many calls in one run')
elseif not i and s.on and handler_need(R) ~= 'idle' then
  refuse('CALL_IN_FLIGHT', R.id .. ':' .. s.i)
end
if not i then i = add_call() end

-- The handler hears of a call that has ended from the reply; only an open one is a matter for the owner. Past the
-- ended ones first: a call that was settled without asking for the next still stands before this one.
handler_need(R)
if not ENDED[call_of(R, i).st] then
  s.on = true
  local need = handler_need(R)
  if need == 'wait' then
    clock_stop(R)
    s.st = 'waiting_for_approval'
  elseif need == 'begin' then
    clock_start(R)
    s.st = 'running'
    redis.call('ZADD', K.queue(S.sid), R.meta.n, R.id)
  end
end
save_run(R)
return { raise_seq(seq_key), cmsgpack.pack(call_report(S, R, i)) }

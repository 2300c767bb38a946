-- Begin: every check and the intent in one atomic step (C-13, C-30, C-60, C-63, C-70). Needs guard, keys, pack,
-- session, ready, journal, entry, outcome, run, retire, handler.
--
-- `q` is the owner's request: tk owner token, st step, pd policy digest, pv version of the declared tools it was made
-- under, pn the store's, {to dr le wr ex bc tb} the policy in ms (tool timeout, drain, lease, wrap-up, budget execution and
-- its ceiling, tombstone life), pp optional {run i pr lv} re-resolved protection, hd what handlers may be started (see
-- handler.lua), ol only calls of handlers that live.

local MUTATIONS_MAX = 32

-- An owner's step number must grow; the same step is a repeat only with the same attempt (C-23).
local function check_step(S, token, step, kind)
  if S.owner ~= token then refuse('LEASE_LOST', 'another owner or none') end
  local last, last_kind = string.match(S.step or '0b', '^(%d+)(%a)$')
  last = tonumber(last)
  if step > last then return false end
  if step == last and kind == last_kind then return true end
  refuse('STALE_STEP', tostring(last))
end

local function arguments_of(R, i)
  return redis.call('HGET', K.args(R.meta.sid), R.id .. ':' .. text(i))
end

-- The call to begin, a list: session hash, run, call, tool, arguments, attempt, step, mutation (raw), turn number and id,
-- deadline, store time, session, agent, user, delivery id, traceparent. Other work is a map with its kind `k`.
local function work_reply(S, R, current, arguments)
  local call = call_of(R, current.i)
  local m = R.meta
  return { S.sid, R.id, current.i, call.t, arguments, current.at, current.st, call.m, current.t or false,
    current.t and turn_id(S, current.t) or false, current.dl, R.now, m.s, m.a, m.u, m.di or false, m.tp or false }
end

-- A handler's run is not known to make an eligible call before it does, so a budget's own ceiling holds from then (C-50).
local function budget_ceiling(R, call, known)
  if not (call.el and is_handler(R)) then return R.meta.ce end
  local mine = R.meta.be
  return math.min(R.meta.ce, R.meta.at + (mine and mine.ce or known or math.huge))
end

-- Without a budget: tool timeout, what is left of the session clock, the ceiling (C-51). With one, for a call a
-- person approved: a fresh allowance inside the ceiling less wrap-up and drain (C-52).
local function call_deadline(R, call, q)
  local allowance = call.hd and call.el
  if allowance == true then allowance = q.ex end
  if allowance then
    -- A handler waits for the answer, so its allowance runs from then; a plan's from now.
    local from = is_handler(R) and call.da or R.now
    return math.min(from + allowance, budget_ceiling(R, call, q.bc) - q.wr - q.dr)
  end
  return math.min(R.now + q.to, R.now + clock_left(R), R.meta.ce)
end

local function refuse_call(R, i, code)
  local call = call_of(R, i)
  call.rf = code
  journal_add(R, { a = R.now, e = 'tool_result', i = i, m = call.m, x = code })
  end_call(R, i, 'r')
end

-- The approval of this very call: decided in this run, unconsumed, unvoided (C-13). Answers nil when there is none,
-- false when a call without a human level needs none.
local function fresh_approval(call)
  if not call.ap then
    if call.lv and not call.ru then return nil end
    return false
  end
  local approval = read_approval(redis.call('HGET', K.approval(call.ap), 'a') or nil)
  if not approval or approval.st ~= 'approved' or approval.us then return nil end
  return approval
end

-- The refusal that the ledger's record of this call asks for (C-60), and the entry if there is one.
local function recorded(S, R, call)
  local entry = R.state.t and load_entry(S, R.state.t, call.m)
  return entry and REFUSAL[entry.s], entry
end

-- The turn is made here, lazily, and only for a run admitted without one whose delivery still has none (C-62, C-63).
local function turn_for(S, R, q)
  local s, m = R.state, R.meta
  if S.meta.g ~= m.g then return nil, 'logical_turn_unavailable' end
  if s.t then
    local turn = load_turn(S, s.t)
    if not turn then return nil, 'logical_turn_unavailable' end
    return turn
  end
  local delivery = get_record(S, 'd' .. m.d, read_delivery)
  if m.ta or not delivery or delivery.t then return nil, 'logical_turn_unavailable' end
  if not make_room(S, R.now, q.tb) then return nil, 'turn_limit' end
  S.meta.tc = S.meta.tc + 1
  s.t, delivery.t = S.meta.tc, S.meta.tc
  table.insert(S.meta.ts, s.t)
  put(S, 'd' .. m.d, delivery)
  save_meta(S)
  return { a = m.a, u = m.u, d = { m.d }, rv = 0, ms = {}, lv = 1, at = R.now }
end

-- Admission cannot see that a handler will change something; its first intent moves the inactivity clock (C-80).
local function keep_session(S, R)
  if R.state.mu or R.meta.hw ~= 'new' then return end
  R.state.mu, S.meta.lm = true, R.now
  save_meta(S)
  redis.call('ZADD', K.expiry, S.meta.lm + S.meta.ia, S.sid)
end

local function start_call(S, R, i, current, step, arguments)
  local call = call_of(R, i)
  call.st = 'g'
  touch(R, i)
  R.state.st = 'running'
  S.current, S.voided, S.step = current, nil, text(step) .. 'b'
  put(S, 'p', S.step)
  put(S, 'c', current)
  journal_add(R, { a = R.now, e = 'tool_execution_started', i = i, m = call.m })
  save_run(R)
  return work_reply(S, R, current, arguments)
end

-- Begins call `i` of the run, or ends it with a refusal and answers nil. Nothing is written before the last refusal.
local function begin_call(S, R, i, q, step)
  local call = call_of(R, i)
  local deadline = call_deadline(R, call, q)
  if R.now >= R.meta.ce or deadline <= R.now then
    journal_add(R, { a = R.now, e = 'tool_result', i = i, m = call.m, x = 'deadline' })
    end_call(R, i, 'n')
    return nil
  end
  local arguments = arguments_of(R, i)
  if not arguments then return refuse_call(R, i, 'arguments_changed') end
  local attempt = q.tk .. '-' .. text(step)
  local current = { k = 'u', r = R.id, i = i, at = attempt, st = step, dl = deadline }
  if not call.pr then return start_call(S, R, i, current, step, arguments) end

  local code, known = recorded(S, R, call)
  if code then return refuse_call(R, i, code) end
  if R.state.t and not known then
    local turn = load_turn(S, R.state.t)
    if turn and #turn.ms >= MUTATIONS_MAX then return refuse_call(R, i, 'mutation_limit') end
  end
  local approval = fresh_approval(call)
  if approval == nil then return refuse_call(R, i, 'approval_not_fresh') end
  local turn, unavailable = turn_for(S, R, q)
  if not turn then return refuse_call(R, i, unavailable) end
  if is_handler(R) then keep_session(S, R) end
  if approval then
    approval.us = true
    redis.call('HSET', K.approval(call.ap), 'a', pack_approval(approval))
  end

  local entry = known or { s = nil, tl = call.t, at = nil, na = nil, rv = nil, o = #turn.ms + 1, ri = nil, x = nil, fh = nil }
  if not known then table.insert(turn.ms, call.m) end
  -- The last attempt that somebody reconciled may still report, however many were put back since (C-91).
  if entry.rc then entry.pa, entry.pc, entry.pl = entry.at, entry.rc, entry.ls end
  entry.s, entry.at, entry.na, entry.ri = 's', attempt, deadline + q.dr + q.le, R.id .. ':' .. text(i)
  -- What an earlier attempt left says nothing about this one.
  entry.r, entry.rc, entry.ls, entry.vo, entry.fh, entry.rb = nil, nil, nil, nil, nil, nil
  revise(turn, entry)
  turn.f = nil
  save_entry(S, R.state.t, call.m, entry)
  save_turn(S, R.state.t, turn)
  current.k, current.t, current.m = 'm', R.state.t, call.m
  return start_call(S, R, i, current, step, arguments)
end

-- A start mark that no owner holds any more is not a reason to start again.
local function end_orphan(R, i)
  journal_add(R, { a = R.now, e = 'tool_result', i = i, m = call_of(R, i).m, x = 'u' })
  end_call(R, i, 'u')
end

local PASSED_OVER = {}

-- Starts the handler of a queued run. `PASSED_OVER`: the worker has no place for it now, it stays queued.
local function start_or_end(S, R, q, step)
  if R.now >= R.meta.ce then
    end_rest(R, R.state.i, 'k')
    return finish_run(S, R, 'request_ceiling')
  end
  if not may_start(R, q.hd) then return PASSED_OVER end
  return start_handler(S, R, q.hd, step)
end

-- What the head run of the session needs: nil when it ended, parked or was refused, else work for the owner.
local function head_work(S, R, q, step)
  local need = advance(R)
  if need == 'end' then return finish_run(S, R) end
  if need == 'wait' then return place_run(S, R) end
  if need == 'start' then return start_or_end(S, R, q, step) end
  if need == 'idle' then
    rest_handler(S, R)
    return save_run(R)
  end
  local i = R.state.i
  local call = call_of(R, i)
  local checked = q.pp and q.pp.run == R.id and q.pp.i == i
  local work
  if call.st == 'g' then
    end_orphan(R, i)
  elseif (call.pd or R.meta.pd) ~= q.pd and not checked and not (call.pr and recorded(S, R, call)) then
    work = { k = 'check', run = R.id, i = i, tl = call.t, pr = call.pr or false, lv = call.lv or false,
      args = arguments_of(R, i) or false }
  else
    work = begin_call(S, R, i, q, step)
    if work then return work end
  end
  save_run(R)
  -- Ended without having begun: the handler that waits for it must hear of that.
  if is_handler(R) and not work then tell(S) end
  return work
end

-- The next thing this owner does in its session; ends, parks and skips runs on the way. Without any: nil, and whether
-- runs stay queued that it passed over.
local function next_work(S, q, step, now)
  local place = 0
  for _ = 1, 200 do
    local head = redis.call('ZRANGE', K.queue(S.sid), place, place)[1]
    if not head then return nil, place > 0 end
    local R = S.at_hand and S.at_hand.id == head and S.at_hand or load_run(head, now, 0)
    if not R or R.state.en then
      redis.call('ZREM', K.queue(S.sid), head)
    elseif q.ol and not live_place(S, head) then
      place = place + 1
    else
      local work = head_work(S, R, q, step)
      if work == PASSED_OVER then place = place + 1 elseif work then return work end
    end
  end
  return { k = 'again' }
end

-- The work of the attempt in flight, for a begin that is sent again; nil once it was settled, put back or reconciled.
local function same_work(S, attempt, now)
  local current = S.current
  if not current or current.at ~= attempt then return nil end
  local R = load_run(current.r, now)
  local arguments = R and call_of(R, current.i).st == 'g' and arguments_of(R, current.i)
  if not arguments then return nil end
  if current.k == 'm' then
    local entry = load_entry(S, current.t, current.m)
    if not entry or entry.s ~= 's' or entry.at ~= attempt then return nil end
  end
  return work_reply(S, R, current, arguments)
end

-- Whether this owner may begin now. Answers what a repeat is answered; nil when it is no repeat. Refuses before any
-- write: a second attempt while one is in flight would lose the first (C-31).
local function answered_before(S, q, now)
  local gone = gave_up(S, q.tk, q.st)
  if gone then return gone end
  if check_step(S, q.tk, q.st, 'b') then
    local attempt = q.tk .. '-' .. text(q.st)
    local work = same_work(S, attempt, now)
    work = work or same_handler(S, q.st, q.hd, now)
    if work then return work end
    refuse('ATTEMPT_VOIDED', attempt)
  end
  if S.current then refuse('CALL_IN_FLIGHT', S.current.at) end
  require_policy(q.pn, q.pv)
  return nil
end

-- Begins the next call, or gives the session up: into `ready` when work is left, else into nothing; it stays owned
-- while a handler lives or waits for a place (C-31).
local function begin_or_give_up(S, q, now)
  if q.yd and #S.live == 0 and redis.call('ZCARD', K.ready) > 0 and redis.call('ZCARD', K.queue(S.sid)) > 0 then
    local answer = give_up(S, q.tk, q.st, 'y')
    make_ready(S.sid, now)
    return answer
  end
  local work, left = next_work(S, q, q.st, now)
  if work then return work end
  if left or #S.live > 0 then return { k = 'parked', w = count_news(S) } end
  return give_up(S, q.tk, q.st, 'r')
end

local function continue_session(S, q, now)
  return answered_before(S, q, now) or begin_or_give_up(S, q, now)
end

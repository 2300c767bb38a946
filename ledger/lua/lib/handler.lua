-- Handler runs in an owner's hands (C-31, C-33): started by begin, listed in the session while they live, put back or
-- ended when their owner is gone. Needs session, ready, run, entry.
--
-- `hd` in a begin request is what the worker may start: {n y sy rp}: handlers, synchronous ones among them, names of
-- synchronous handlers, names of replayable ones (both as keys, absent if there are none).

local RERUNS_MAX = 3

local function clock_left(R)
  local s = R.state
  return R.meta.ss - s.su - (s.sr and (R.now - s.sr) or 0)
end

local function is_sync(R, hd)
  return hd.sy and hd.sy[R.meta.h]
end

local function take_place(R, hd)
  hd.n, hd.y = hd.n - 1, hd.y - (is_sync(R, hd) and 1 or 0)
end

-- Takes one place of those the worker offers. Without one the run stays queued.
local function may_start(R, hd)
  if not hd or hd.n < 1 or (is_sync(R, hd) and hd.y < 1) then return false end
  take_place(R, hd)
  return true
end

local function handler_reply(S, R, step)
  local m, s = R.meta, R.state
  return { k = 'handler', run = R.id, h = m.h, st = step, s = m.s, a = m.a, u = m.u, p = m.p, di = m.di or false,
    tp = m.tp or false, turn = s.t and turn_id(S, s.t) or false, ce = m.ce, lf = clock_left(R), now = R.now,
    rn = s.rn or 0, w = tonumber(S.news), sid = S.sid,
    args = redis.call('HGET', K.args(S.sid), R.id .. ':in') or false }
end

-- From now on the owner counts the news of this session.
local function count_news(S)
  S.news = redis.call('HINCRBY', S.key, 'w', 0)
  return S.news
end

local function start_handler(S, R, hd, step)
  local s = R.state
  s.hs, s.on, s.st = true, nil, 'running'
  s.rp = hd.rp and hd.rp[R.meta.h]
  clock_start(R)
  redis.call('ZREM', K.queue(S.sid), R.id)
  table.insert(S.live, { r = R.id, st = step })
  save_live(S)
  S.step = text(step) .. 'b'
  put(S, 'p', S.step)
  count_news(S)
  save_run(R)
  return handler_reply(S, R, step)
end

-- The live handler run that this step started, or nil.
local function started_in(S, step)
  for _, live in ipairs(S.live) do
    if live.st == step then return live.r end
  end
  return nil
end

-- The start that this step made, when it is asked for again; it takes its place again.
local function same_handler(S, step, hd, now)
  local run = started_in(S, step)
  local R = run and load_run(run, now)
  if not R or R.state.en then return nil end
  if hd then take_place(R, hd) end
  return handler_reply(S, R, step)
end

local function queue_handler(S, R)
  local s = R.state
  s.hs, s.on, s.st = nil, nil, 'queued'
  clock_start(R)
  redis.call('ZADD', K.queue(S.sid), R.meta.n, R.id)
  save_run(R)
end

-- Takes back the start of a handler whose begin was not confirmed in time (C-23).
local function unstart_handler(S, step, now)
  local run = started_in(S, step)
  if not run then return end
  drop_live(S, run)
  local R = load_run(run, now)
  if R and not R.state.en then queue_handler(S, R) end
end

-- Whether an intent of the run's delivery stands in its turn; one that was put back does not.
local function holds_intent(S, R)
  local turn = R.state.t and load_turn(S, R.state.t)
  if not turn then return false end
  local delivery = get_record(S, 'd' .. R.meta.d, read_delivery)
  local mine = { [R.id] = true }
  for _, run in ipairs(delivery and delivery.er or {}) do mine[run] = true end
  for _, mutation in ipairs(turn.ms) do
    local entry = load_entry(S, R.state.t, mutation)
    if entry and entry.s ~= 'a' and mine[string.match(entry.ri, '^%x+')] then return true end
  end
  return false
end

-- What becomes of a live handler run whose owner is gone: run again, or ended at once with what it still asked.
local function leave_handler(S, R)
  local s = R.state
  if s.cx then
    end_rest(R, s.i, 'k')
    finish_run(S, R)
  elseif (s.rn or 0) < RERUNS_MAX and (s.rp or not holds_intent(S, R)) then
    s.rn = (s.rn or 0) + 1
    queue_handler(S, R)
  else
    end_rest(R, s.i, 'k')
    finish_run(S, R, 'interrupted')
  end
end

local function leave_handlers(S, now)
  local left = S.live
  S.live = {}
  for _, live in ipairs(left) do
    local R = load_run(live.r, now)
    if R and not R.state.en then leave_handler(S, R) end
  end
end

-- A live handler run of this owner; refuses when either is not (any more).
local function own_handler(S, token, run, now)
  if not S or S.owner ~= token then refuse('LEASE_LOST', 'another owner or none') end
  local R = load_run(run, now)
  if not R or R.state.en or not live_place(S, run) then refuse('RUN_ENDED', 'the run has ended') end
  return R
end

local ATTEMPTED = { c = true, f = true, u = true, n = true }

-- What the handler may be told of one of its calls. A refusal shows the record, never a stored result (C-11).
local function call_report(S, R, i)
  local call = call_of(R, i)
  local entry = call.pr and R.state.t and load_entry(S, R.state.t, call.m) or nil
  local shown = entry and (ATTEMPTED[call.st] or (call.st == 'r' and REFUSAL[entry.s] == call.rf))
  local result = ATTEMPTED[call.st] and redis.call('HGET', R.key, 'r' .. text(i))
  return { i = i, st = call.st, rf = call.rf or false, ap = call.ap or false, lf = clock_left(R), now = R.now,
    turn = R.state.t and turn_id(S, R.state.t) or false, res = result or false,
    o = shown and outcome_record(turn_id(S, R.state.t), hex(call.m), entry) or false }
end

-- Runs. The hash of a run: `m` packed meta, `s` packed state, `0`.. packed calls, `r0`.. tool results, `nr` narration
-- JSON of a handler run, `cx` set when cancelled, `tr` set when its journal was truncated.
--   meta  {tn s sid a u p d di n g k h oe ce ss pd be ta co tb tp jr lk at hw}: tenant, session, sid, agent, user, principal,
--         delivery identity, delivery id, admission number, generation, kind, handler, on_error, ceiling,
--         session clock, policy digest, budget {t ex ce} of its host (tools, allowance, ceiling), turn admitted under,
--         calls, tombstone member, traceparent, journal life, coalescing digest, admitted at, how it was admitted
--   state {st i t su sr er cx en sk ec}: status, next call, turn number, session clock used, running since,
--         had an error, cancel asked, ended at, strikes, end code
--         of a handler run also {co hs on rn rp tp by mu rb}: calls so far, started by the present owner, the open call
--         was proposed by this start, times put back after a lost owner, declared replayable, indices of the calls
--         that this start repeats (absent: all of them in order), owner token that ended it, had an intent, bytes of results
--   call  {t m st pr lv ap ru rf ex el hd pd da}: tool, mutation id, status, protected, level, approval, rule, refusal,
--         approval expiry, budget eligible, decided by a human; in a handler run also policy digest, decided at
-- Call status: q queued, w waiting_for_approval, d denied, x expired, k cancelled, g running, c completed,
--   f failed, u outcome_unknown, n not_executed, r refused, z skipped

local ENDED = { d = true, x = true, k = true, c = true, f = true, u = true, n = true, r = true, z = true }

-- `ahead` may name the call that is needed first, which is then read in the same command.
local function load_run(run, now, ahead)
  local key = K.run(run)
  local f = ahead and redis.call('HMGET', key, 'm', 's', text(ahead)) or redis.call('HMGET', key, 'm', 's')
  if not f[1] then return nil end
  return { id = run, key = key, journal = K.journal(run), meta = read_run_meta(f[1]),
           state = read_run_state(f[2]), calls = {}, dirty = {}, events = {}, out = {}, now = now,
           ahead = ahead, call_ahead = f[3] }
end

-- For those who show all of a run: its hash is read once, and given as second answer.
local function load_whole_run(run, now)
  local key = K.run(run)
  local fields, f = redis.call('HGETALL', key), {}
  for at = 1, #fields, 2 do f[fields[at]] = fields[at + 1] end
  if not f.m then return nil end
  local R = { id = run, key = key, journal = K.journal(run), meta = read_run_meta(f.m), state = read_run_state(f.s),
              calls = {}, dirty = {}, events = {}, out = {}, now = now, ahead = nil, call_ahead = nil }
  for i = 0, (R.state.co or R.meta.co) - 1 do R.calls[i] = read_call(f[text(i)]) end
  return R, fields
end

-- The session of a run; nil when it was erased or has expired, even if a new one took its name (C-81, C-82).
local function session_of(R)
  local S = visible_session(R.meta.sid, R.now)
  return S and S.meta.g == R.meta.g and S or nil
end

local function call_of(R, i)
  local call = R.calls[i]
  if not call then
    local raw = R.call_ahead
    if i ~= R.ahead then raw = redis.call('HGET', R.key, text(i)) end
    call = read_call(raw or nil)
    R.calls[i] = call
  end
  return call
end

-- A plan has its calls from the start, a handler run those that its handler asked for so far.
local function call_count(R)
  return R.state.co or R.meta.co
end

local function is_handler(R)
  return R.meta.k == 'handler'
end

local function touch(R, i)
  R.dirty[i] = true
end

-- Writes the state, every call that was touched and what else is in `R.out` (field, value, ...), then the events.
local function save_run(R)
  local args = R.out
  args[#args + 1] = 's'
  args[#args + 1] = pack_run_state(R.state)
  for i in pairs(R.dirty) do
    args[#args + 1] = text(i)
    args[#args + 1] = pack_call(R.calls[i])
  end
  redis.call('HSET', R.key, unpack(args))
  R.dirty, R.out, R.saved = {}, {}, args
  journal_flush(R)
end

-- The session clock stands still while the run waits for a person (C-51).
local function clock_stop(R)
  local s = R.state
  if s.sr then s.su, s.sr = s.su + (R.now - s.sr), nil end
end

local function clock_start(R)
  if not R.state.sr then R.state.sr = R.now end
end

local function drop_arguments(R, i)
  redis.call('HDEL', K.args(R.meta.sid), R.id .. ':' .. text(i))
end

-- Pending requests are counted per session (C-71).
local function count_asked(sid, by)
  if redis.call('HINCRBY', K.asked, sid, by) <= 0 then redis.call('HDEL', K.asked, sid) end
end

local function close_approval(R, call, state)
  local key = K.approval(call.ap)
  local approval = read_approval(redis.call('HGET', key, 'a') or nil)
  if approval and approval.st == 'pending' then
    approval.st = state
    redis.call('HSET', key, 'a', pack_approval(approval))
    redis.call('ZREM', K.approvals, call.ap)
    redis.call('ZREM', K.pending(R.meta.tn), call.ap)
    count_asked(R.meta.sid, -1)
    journal_add(R, { a = R.now, e = 'approval_decided', i = approval.i, m = call.m, ap = call.ap, x = state })
  end
end

local function end_call(R, i, status)
  local call = call_of(R, i)
  if call.ap and call.st == 'w' then close_approval(R, call, status == 'x' and 'expired' or 'cancelled') end
  call.st = status
  touch(R, i)
  -- Kept while the outcome is unknown, so that a person can see what was tried (C-83).
  if status ~= 'u' or not call.pr then drop_arguments(R, i) end
end

local function end_rest(R, from, status)
  for i = from, call_count(R) - 1 do
    if not ENDED[call_of(R, i).st] then end_call(R, i, status) end
  end
end

-- The only refusal a plan passes over is that the mutation is already done.
local function is_error(call)
  if call.st == 'r' then return call.rf ~= 'mutation_completed' end
  return call.st == 'd' or call.st == 'x' or call.st == 'f' or call.st == 'u' or call.st == 'n'
end

-- A handler run has at most one open call. Until the handler of the present start has asked for it (again), nobody
-- begins it: a start that takes another way leaves it behind.
local function handler_need(R)
  local s = R.state
  while s.i < call_count(R) do
    local call = call_of(R, s.i)
    if call.st == 'w' and call.ex <= R.now then end_call(R, s.i, 'x') end
    if not ENDED[call.st] then
      if s.on then return call.st == 'w' and 'wait' or 'begin' end
      break
    end
    s.i, s.on = s.i + 1, nil
  end
  if s.cx then return 'end' end
  return s.hs and 'idle' or 'start'
end

-- Moves past every ended call, and past a request whose time is over, whoever meets it (C-41). Answers what the run
-- needs next: 'begin', 'wait' or 'end'; for a handler run also 'start', or 'idle' while its handler is at work.
local function advance(R)
  if is_handler(R) then return handler_need(R) end
  local s = R.state
  while s.i < R.meta.co do
    local call = call_of(R, s.i)
    if call.st == 'w' and call.ex <= R.now then end_call(R, s.i, 'x') end
    if not ENDED[call.st] then
      return call.st == 'w' and 'wait' or 'begin'
    end
    if is_error(call) then
      s.er = true
      if R.meta.oe == 'stop' then end_rest(R, s.i + 1, 'z') end
    end
    s.i = s.i + 1
  end
  return 'end'
end

-- Ends the run: its status, journal, queue place, turn, and the time its journal is kept.
local function finish_run(S, R, code)
  local s = R.state
  clock_stop(R)
  s.st = s.cx and 'cancelled' or ((s.er or code) and 'failed' or 'completed')
  s.ec, s.en = code, R.now
  redis.call('ZREM', K.queue(S.sid), R.id)
  if s.t then
    local turn = load_turn(S, s.t)
    if turn then
      turn.lv = math.max(0, turn.lv - 1)
      if not is_handler(R) or R.narrated then turn.f = true end
      save_turn(S, s.t, turn)
    end
  end
  if is_handler(R) then
    redis.call('HDEL', K.args(S.sid), R.id .. ':in')
    if drop_live(S, R.id) and not s.by then tell(S) end
  end
  if R.meta.lk then drop(S, 'l' .. R.meta.lk) end
  S.meta.lv = math.max(0, S.meta.lv - 1)
  -- A turn without a mutation moves the inactivity clock when it completes; others did at admission (C-80).
  if not s.t then
    S.meta.lm = R.now
    redis.call('ZADD', K.expiry, S.meta.lm + S.meta.ia, S.sid)
  end
  save_meta(S)
  journal_add(R, { a = R.now, e = s.st == 'failed' and 'run_failed' or 'run_completed', x = code or s.st })
  save_run(R)
  if not s.t then
    redis.call('ZADD', K.forget, R.now + R.meta.jr, S.sid .. R.meta.d .. R.id)
  end
  redis.call('PEXPIRE', R.key, R.meta.jr)
  redis.call('PEXPIRE', R.journal, R.meta.jr)
  for i = 0, call_count(R) - 1 do
    local approval = call_of(R, i).ap
    if approval then redis.call('PEXPIRE', K.approval(approval), R.meta.jr) end
  end
end

-- Nothing to do for the owner until the handler asks for its next call or ends.
local function rest_handler(S, R)
  clock_start(R)
  R.state.st = 'running'
  redis.call('ZREM', K.queue(S.sid), R.id)
end

-- After something changed in a run that is not in an owner's hands: queue it, park it, or end it.
local function place_run(S, R)
  local need = advance(R)
  if need == 'end' then
    finish_run(S, R)
    return
  end
  if need == 'wait' then
    clock_stop(R)
    R.state.st = 'waiting_for_approval'
    redis.call('ZREM', K.queue(S.sid), R.id)
  elseif need == 'idle' then
    rest_handler(S, R)
    tell(S)
  else
    clock_start(R)
    if R.state.st ~= 'running' then R.state.st = R.state.hs and 'running' or 'queued' end
    redis.call('ZADD', K.queue(S.sid), R.meta.n, R.id)
    offer(S, R.now)
  end
  save_run(R)
end

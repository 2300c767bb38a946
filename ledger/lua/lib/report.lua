-- Writing down what happened to an attempt: the one place where an entry leaves `execution_started` (C-10).

local CALL_STATUS = { c = 'c', f = 'f', u = 'u', a = 'n' }

local function apply_status(S, R, number, mutation, entry, status, reason, now)
  local turn = load_turn(S, number)
  local before = entry.s
  entry.s, entry.r = status, reason
  revise(turn, entry)
  local record = publish(S, number, mutation, entry, now, before)
  save_entry(S, number, mutation, entry)
  save_turn(S, number, turn)
  -- Without its run nobody ends the call any more, so what was kept for the unknown goes here (C-83).
  if not R and status ~= 'u' then redis.call('HDEL', K.args(S.sid), entry.ri) end
  if R then journal_add(R, { a = R.now, e = 'mutation_outcome', m = mutation, o = record, rv = entry.rv, i = R.at_call }) end
  return record
end

-- A plan has 32 calls; a handler may make more, and its run must stay readable in one piece (C-71).
local RESULTS_MAX = 32 * 1024 * 1024

local function keeps_result(R, result)
  if not result or not is_handler(R) then return result end
  R.state.rb = (R.state.rb or 0) + #result
  return R.state.rb <= RESULTS_MAX
end

-- Ends call `i` in its run with what its mutation came to, and keeps the tool's own content for the journal's life.
local function end_attempted_call(R, i, status, result)
  if keeps_result(R, result) then
    R.out[#R.out + 1] = 'r' .. text(i)
    R.out[#R.out + 1] = result
  end
  journal_add(R, { a = R.now, e = 'tool_result', i = i, m = call_of(R, i).m, x = status })
  end_call(R, i, CALL_STATUS[status])
end

-- An unprotected call may run again, until the third owner it takes down (C-33); never after a cancel (C-55).
local function requeue_unprotected(S, R, i)
  R.state.sk = (R.state.sk or 0) + 1
  if R.state.cx then
    end_attempted_call(R, i, 'u')
  elseif R.state.sk >= 3 then
    end_attempted_call(R, i, 'u')
    end_rest(R, i + 1, 'z')
    R.state.er = true
    finish_run(S, R, 'poison_call')
  else
    call_of(R, i).st = 'q'
    touch(R, i)
  end
end

-- What an owner left behind: a started mutation is published unknown and never dispatched again (C-33).
local function abandon_current(S, now)
  local current = S.current
  if not current then return end
  local R = load_run(current.r, now)
  local running = R and call_of(R, current.i).st == 'g'
  if R then R.at_call = current.i end
  if current.k == 'm' then
    local entry = load_entry(S, current.t, current.m)
    if entry and entry.s == 's' and entry.at == current.at then
      apply_status(S, R, current.t, current.m, entry, 'u', nil, now)
    end
    -- Also when somebody reconciled in between: a call that was out once is never begun again.
    if running then end_attempted_call(R, current.i, entry and entry.s or 'u') end
  elseif running then
    requeue_unprotected(S, R, current.i)
  end
  if R then
    if R.state.st == 'running' then R.state.st = 'queued' end
    save_run(R)
  end
end

-- Takes a session from its owner: into `ready` when work is left, else into nothing (C-31).
local function reclaim(S, now)
  abandon_current(S, now)
  leave_handlers(S, now)
  disown(S)
  if redis.call('ZCARD', K.queue(S.sid)) > 0 then make_ready(S.sid, now) end
end

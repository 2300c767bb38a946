-- Writing down what happened to an attempt: the one place where an entry leaves `execution_started` (C-10).

local CALL_STATUS = { c = 'c', f = 'f', u = 'u', a = 'n' }

local function apply_status(S, R, number, mutation, entry, status, reason, now)
  local turn = load_turn(S, number)
  entry.s, entry.r = status, reason
  revise(turn, entry)
  local record = publish(S, number, mutation, entry, now)
  save_entry(S, number, mutation, entry)
  save_turn(S, number, turn)
  if R then journal_add(R, { e = 'mutation_outcome', m = mutation, o = record, rv = entry.rv, i = R.at_call }) end
end

-- Ends call `i` in its run with what its mutation came to, and keeps the tool's own content for the journal's life.
local function end_attempted_call(R, i, status, result)
  if result then redis.call('HSET', R.key, 'r' .. i, result) end
  journal_add(R, { e = 'tool_result', i = i, m = call_of(R, i).m, x = status })
  end_call(R, i, CALL_STATUS[status])
end

-- What an owner left behind: a started mutation is published unknown and never dispatched again (C-33). An unprotected
-- call may run again, until the third owner it takes down.
local function abandon_current(S, now)
  local current = S.current
  if not current then return nil end
  local R = load_run(current.r, now)
  if current.k == 'm' then
    local entry = load_entry(S, current.t, current.m)
    if entry and entry.s == 's' and entry.at == current.at then
      if R then R.at_call = current.i end
      apply_status(S, R, current.t, current.m, entry, 'u', nil, now)
      if R and call_of(R, current.i).st == 'g' then end_attempted_call(R, current.i, 'u') end
    end
  elseif R and call_of(R, current.i).st == 'g' then
    R.state.sk = (R.state.sk or 0) + 1
    if R.state.sk >= 3 then
      end_call(R, current.i, 'u')
      end_rest(R, current.i + 1, 'z')
      R.state.er = true
      finish_run(S, R, 'poison_call')
    else
      call_of(R, current.i).st = 'q'
      touch(R, current.i)
    end
  end
  if R and not R.state.en then
    if R.state.st == 'running' then R.state.st = 'queued' end
    save_run(R)
  end
  return R
end

-- Takes a session from its owner: into `ready` when work is left, else into nothing (C-31).
local function reclaim(S, now)
  abandon_current(S, now)
  disown(S)
  if redis.call('ZCARD', K.queue(S.sid)) > 0 then make_ready(S.sid, now) end
end

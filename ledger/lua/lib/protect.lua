-- Protection found only at begin: the stricter of admission's and the worker's answer wins, and a call that needs a
-- person now gets its approval request now (C-05).

local STRICTNESS = { approve = 1, confirm = 2 }

-- Whether the worker's level asks for more than this call already has: a rule's answer stands, a person's answer to
-- a weaker question does not.
local function asks_more(call, level)
  return level and not call.ru and STRICTNESS[level] > (STRICTNESS[call.lv] or 0)
end

local function ask_now(S, R, q, call)
  local pp = q.pp
  local expires = math.min(R.now + pp.to, R.meta.ce)
  -- The weaker answer pays for nothing any more; nothing would find it to delete it later.
  if call.ap then redis.call('DEL', K.approval(call.ap)) end
  call.lv, call.hd = pp.lv, nil
  ask_person(S, R, pp.i, q.ap, expires)
end

local function protect_more(S, q, now)
  local pp = q.pp
  local R = load_run(pp.run, now)
  if not R or R.state.en or R.state.i ~= pp.i then return end
  local call = call_of(R, pp.i)
  if call.st ~= 'q' then return end
  call.pr = call.pr or pp.pr or (pp.lv and true)
  -- Nobody is asked about what begin refuses by the record anyway (C-60).
  if asks_more(call, pp.lv) and not recorded(S, R, call) then ask_now(S, R, q, call) end
  touch(R, pp.i)
  save_run(R)
end

-- Protection found only at begin: the stricter of admission's and the worker's answer wins, and a call that needs a
-- person now gets its approval request now (C-05).

local function protect_more(S, q, now)
  check_step(S, q.tk, q.st, 'b')
  local pp = q.pp
  local R = load_run(pp.run, now)
  if not R or R.state.en or R.state.i ~= pp.i then return end
  local call = call_of(R, pp.i)
  if call.st ~= 'q' then return end
  if pp.pr and not call.pr then call.pr = true end
  if pp.lv and not call.ap and not call.ru then
    local expires = math.min(now + pp.to, R.meta.ce)
    call.lv, call.ap, call.ex, call.st = pp.lv, q.ap, expires, 'w'
    redis.call('HSET', K.approval(q.ap), 'a', pack({ st = 'pending', tn = R.meta.tn, s = R.meta.s, sid = S.sid,
      run = R.id, i = pp.i, tl = call.t, m = call.m, lv = pp.lv, p = R.meta.p, u = R.meta.u, at = now, ex = expires }))
    redis.call('ZADD', K.approvals, expires, q.ap)
    redis.call('ZADD', K.pending(R.meta.tn), now, q.ap)
    count_asked(S.sid, 1)
    journal_add(R, { e = 'approval_requested', i = pp.i, m = call.m, ap = q.ap })
  end
  touch(R, pp.i)
  save_run(R)
end

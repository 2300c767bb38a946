-- Asking a person about one exact call (C-40). Needs run.

local function ask_person(S, R, i, approval, expires)
  local call = call_of(R, i)
  call.ap, call.ex, call.st = approval, expires, 'w'
  redis.call('HSET', K.approval(approval), 'a', pack_approval({ st = 'pending', tn = R.meta.tn, s = R.meta.s, sid = S.sid,
    run = R.id, i = i, tl = call.t, m = call.m, lv = call.lv, p = R.meta.p, u = R.meta.u, at = R.now, ex = expires }))
  redis.call('ZADD', K.approvals, expires, approval)
  redis.call('ZADD', K.pending(R.meta.tn), R.now, approval)
  count_asked(S.sid, 1)
  journal_add(R, { a = R.now, e = 'approval_requested', i = i, m = call.m, ap = approval })
  touch(R, i)
end

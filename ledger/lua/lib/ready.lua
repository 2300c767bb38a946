-- Sessions with work and no owner, and the promise that some worker looks soon (architecture, step 3).

local WAKE
--!each-call WAKE = 0

-- `awake` is the store time until which a worker promised to look; past it, the caller must wake one.
local function make_ready(sid, now)
  local added = redis.call('ZADD', K.ready, 'NX', now, sid)
  if tonumber(redis.call('GET', K.awake) or '0') < now then
    redis.call('SET', K.awake, string.format('%.0f', now + 2000))
    WAKE = 1
  end
  -- Whoever heard of the first one looks until nothing is left, so the others need no hint.
  if added == 1 and redis.call('ZCARD', K.ready) == 1 then redis.call('SPUBLISH', K.signal, 'r') end
end

-- The hint may be lost; an owner that waits finds the number changed at its next renewal.
local function tell(S)
  if S.news then redis.call('HINCRBY', S.key, 'w', 1) end
  redis.call('SPUBLISH', K.signal, 'n' .. S.sid)
end

-- An owned session is told instead: its owner looks at the queue when it settles or renews.
local function offer(S, now)
  if S.owner then
    tell(S)
  else
    make_ready(S.sid, now)
  end
end

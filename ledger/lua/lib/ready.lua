-- Sessions with work and no owner, and the promise that some worker looks soon (architecture, step 3).

local WAKE
--!each-call WAKE = 0

local PROMISE_MS = 2000

-- `awake` is the store time until which a worker promised to look. One further ahead than anybody promises was left by
-- a clock that was set back, and means nothing.
local function nobody_awake(now)
  local promised = tonumber(redis.call('GET', K.awake) or '0')
  return promised < now or promised > now + PROMISE_MS
end

local function promise_to_look(now)
  redis.call('SET', K.awake, string.format('%.0f', now + PROMISE_MS))
end

-- Whether another sweep was made less than `ms` ago; if not, this one is noted. By value, not by the key's life alone:
-- that would last for hours after a clock was set back.
local function swept_lately(mark, now, ms)
  local last = tonumber(redis.call('GET', mark) or '0')
  if last <= now and now - last < ms then return true end
  redis.call('SET', mark, string.format('%.0f', now), 'PX', ms)
  return false
end

local function make_ready(sid, now)
  local added = redis.call('ZADD', K.ready, 'NX', now, sid)
  if nobody_awake(now) then
    promise_to_look(now)
    WAKE = 1
  end
  -- Whoever heard of the first one looks until nothing is left, so the others need no hint. Beside one that cannot be
  -- read none is the first; then whoever is awake finds it at the next look, within a second.
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

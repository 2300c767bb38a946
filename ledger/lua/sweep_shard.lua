-- One bounded sweep of a shard; at most one a second whoever asks (architecture, step 9).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {le iv mx}: lease ms, least ms between sweeps, most items of each kind
-- Reply: {n or -1 when another sweep was just made, claim 0|1, reclaimed sids, expired approvals, leases corrected}
--   claim: sessions are ready and nobody promised to look; the caller now has
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: what an owner left started becomes unknown, never dispatched again (C-33); expiry is written (C-41).
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include outcome
--!include run
--!include expire
--!include handler
--!include report
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
if swept_lately(K.swept, now, q.iv) then return { -1, 0, {}, 0, 0 } end

-- Each item by itself: one that cannot be read (a newer version wrote it) is looked at again a lease later.
local function each_due(index, work)
  for _, item in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, q.mx)) do
    if not pcall(work, item) then redis.call('ZADD', index, now + q.le, item) end
  end
end

local reclaimed = {}
each_due(K.owned, function(sid)
  local S = load_session(sid)
  if S and S.owner then
    reclaim(S, now)
    reclaimed[#reclaimed + 1] = sid
  else
    redis.call('ZREM', K.owned, sid)
  end
end)

if #reclaimed > 0 then redis.call('HINCRBY', K.counts, 'reclaimed', #reclaimed) end

-- The length of the lease that an owner claims and renews with stands in its token (C-30); workers may differ.
local function lease_of(sid)
  local ok, S = pcall(load_session, sid)
  local length = ok and S and string.match(S.owner or '', '^%d+%-%x+x(%x+)x%x+$')
  return length and tonumber(length, 16) or q.le
end

-- A clock that was set back would leave leases far ahead; none ends more than two of its own length from now (C-30).
local corrected = 0
local far = redis.call('ZRANGE', K.owned, '+inf', now + 2 * q.le + 1, 'BYSCORE', 'REV', 'LIMIT', 0, q.mx, 'WITHSCORES')
for place = 1, #far, 2 do
  local lease = lease_of(far[place])
  if tonumber(far[place + 1]) > now + 2 * lease then
    redis.call('ZADD', K.owned, now + lease, far[place])
    corrected = corrected + 1
  end
end

local expired = 0
each_due(K.approvals, function(id)
  local approval = read_approval(redis.call('HGET', K.approval(id), 'a') or nil)
  local R = approval and load_run(approval.run, now)
  local S = R and session_of(R)
  if not S or not expire_due(S, R) then redis.call('ZREM', K.approvals, id) end
  expired = expired + 1
end)

local claim = 0
if redis.call('ZCARD', K.ready) > 0 and nobody_awake(now) then
  promise_to_look(now)
  claim = 1
end
if WAKE == 1 then claim = 1 end
local wrote = #reclaimed + expired + corrected + claim > 0
return { wrote and raise_seq(seq_key) or -1, claim, reclaimed, expired, corrected }

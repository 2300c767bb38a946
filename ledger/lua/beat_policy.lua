-- A living process says which policy it follows; the store's is replaced when nobody follows it any more (C-05).
-- KEYS[1] seq hash of shard 0
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {d c p ls bye}: digest, description JSON, process, ms after which a silent process counts as
--   gone, leaving now
-- Reply: {n or -1 when only the heartbeat was noted, 'held'|'replaced'|'other'|'left', the store's description or ''}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: two policies are never the store's at once; a living process keeps its own from being replaced.
--!include guard
--!include keys
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local member = q.d .. ' ' .. q.p
if q.bye then
  redis.call('ZREM', K.policies, member)
  return { -1, 'left', '' }
end
redis.call('ZADD', K.policies, now, member)
-- Also what a clock that was set back left ahead of now.
redis.call('ZREMRANGEBYSCORE', K.policies, '-inf', now - q.ls)
redis.call('ZREMRANGEBYSCORE', K.policies, now + 1, '+inf')

local function followed(digest)
  for _, alive in ipairs(redis.call('ZRANGE', K.policies, 0, -1)) do
    if string.match(alive, '^%S+') == digest then return true end
  end
  return false
end

local current = redis.call('HGET', K.policy, 'digest')
if current == q.d then return { -1, 'held', '' } end
if current and followed(current) then return { -1, 'other', redis.call('HGET', K.policy, 'content') } end
redis.call('HSET', K.policy, 'digest', q.d, 'content', q.c)
return { raise_seq(seq_key), 'replaced', '' }

-- Retention sweep of a shard, in bounded pieces, at most one a second whoever asks (C-81 to C-84, C-111).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {iv mx td ml}: least ms between sweeps, most items of each kind, tombstone life ms, stream bound
-- Reply: {n or -1, expired sessions, erased sessions gone, trimmed stream entries, dirty, more 0|1}
--   dirty: 0, or the mark of erased data that is still in the AOF while nothing is left to delete: a rewrite is due
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: the floor is written before the stream is trimmed, in one step; nothing is scanned.
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include outcome
--!include run
--!include retire
--!include erase
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
if swept_lately(K.swept_retention, now, q.iv) then return { -1, 0, 0, 0, 0, 0 } end

local expired_count = 0
local function expire_session(sid)
  local S = load_session(sid)
  if S and expired(S, now) then
    retire_session(S, now, q.td, false)
    expired_count = expired_count + 1
  elseif S then
    -- A live run holds it; its end sets the clock again.
    redis.call('ZADD', K.expiry, math.max(now, S.meta.lm) + S.meta.ia, sid)
  else
    redis.call('ZREM', K.expiry, sid)
  end
end

-- What cannot be read (a newer version wrote it) is looked at again later and holds up nothing.
local LATER_MS = 60000
for _, sid in ipairs(redis.call('ZRANGEBYSCORE', K.expiry, '-inf', now, 'LIMIT', 0, q.mx)) do
  if not pcall(expire_session, sid) then redis.call('ZADD', K.expiry, now + LATER_MS, sid) end
end

local gone = 0
local member = redis.call('ZRANGE', K.erase, 0, 0)[1]
if member then
  local ok, done = pcall(erase_piece, member, q.mx * 4)
  if not ok then redis.call('ZADD', K.erase, now + LATER_MS, member) end
  if ok and done then gone = 1 end
end

local function forget(member_of_list)
  local key, field = K.session(string.sub(member_of_list, 1, 32)), 'd' .. string.sub(member_of_list, 33, 64)
  local delivery = read_delivery(redis.call('HGET', key, field) or nil)
  if delivery and not delivery.t and delivery.r == string.sub(member_of_list, 65) then redis.call('HDEL', key, field) end
end
for _, forgotten in ipairs(redis.call('ZRANGEBYSCORE', K.forget, '-inf', now, 'LIMIT', 0, q.mx)) do
  if pcall(forget, forgotten) then
    redis.call('ZREM', K.forget, forgotten)
  else
    redis.call('ZADD', K.forget, now + LATER_MS, forgotten)
  end
end
redis.call('ZREMRANGEBYSCORE', K.retired, '-inf', now)

local trimmed = 0
local excess = math.min(redis.call('XLEN', K.outcomes) - q.ml, q.mx * 20)
if excess > 0 then
  local oldest = redis.call('XRANGE', K.outcomes, '-', '+', 'COUNT', excess)
  local last = oldest[#oldest][1]
  local ms, sequence = string.match(last, '^(%d+)-(%d+)$')
  redis.call('SET', K.floor, last)
  trimmed = redis.call('XTRIM', K.outcomes, 'MINID', ms .. '-' .. string.format('%.0f', tonumber(sequence) + 1))
end

local more = (redis.call('ZCARD', K.erase) > 0 or excess >= q.mx * 20) and 1 or 0
local dirty = more == 0 and tonumber(redis.call('GET', K.dirty) or '0') or 0
local wrote = expired_count + gone + trimmed + more > 0
return { wrote and raise_seq(seq_key) or -1, expired_count, gone, trimmed, dirty, more }

-- Erases a session, first step (C-82): invisible at once, tombstones written, live runs ended, pending approvals cancelled.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tn td rq ls}: sid, tenant, tombstone life ms, request token, ms for which
--   a repeat is known as one
-- Reply: {n, 'erased'|'unknown'}: unknown when this tenant has no such session and none of it is left to delete
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: no worker can write anything back; a redelivery is refused from here on. A request that is sent again
--   erases no session that took the name since (C-22).
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
--!include erasing
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local mark = q.rq and K.erasure(q.rq)
local told = mark and redis.call('GET', mark)
if told then return { raise_seq(seq_key), told } end

local function answer(what)
  if mark then redis.call('SET', mark, what, 'PX', q.ls) end
  return { raise_seq(seq_key), what }
end

local now = store_now()
local S = visible_session(q.sid, now)
-- An erasure that is asked for again is still one, as long as something is left of it.
if not S or S.meta.tn ~= q.tn then return answer(not S and erasing(q.sid) and 'erased' or 'unknown') end
retire_session(S, now, q.td, true)
return answer('erased')

-- Gives sessions back at a clean stop: into `ready` when work is left, else into nothing (C-31, C-33, C-34).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {rows}: rows {sid, owner token}
-- Reply: {n, wake 0|1, sessions released}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: only the owner releases; what it left started is published unknown.
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include outcome
--!include run
--!include handler
--!include report
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local function release(sid, token)
  local S = load_session(sid)
  if not S or S.owner ~= token then return 0 end
  reclaim(S, now)
  return 1
end

local released = 0
for _, row in ipairs(q.rows) do
  -- What cannot be read stays owned until its lease ends; the others are not held up.
  local ok, count = pcall(release, row[1], row[2])
  if ok then released = released + count end
end
return { raise_seq(seq_key), WAKE, released }

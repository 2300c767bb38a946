-- Renews the leases one worker holds in a shard and brings news of each session (C-30, C-31).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {le rows}: lease ms, rows {sid, owner token}
-- Reply: {n, {lease end or 0 when lost, cancelled step or 0, news or -1, ...}} three values a row, in the rows' order
--   cancelled step: of the call in flight, if its run was cancelled; news is counted once an owner was answered `parked`
--   or `handler`
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: a lease that another owner holds is never extended; one session that cannot be read costs no other lease.
--!include guard
--!include keys
--!include pack
--!include session
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local answers = {}
for _, row in ipairs(q.rows) do
  local ok, S = pcall(load_session, row[1])
  if not ok then S = nil end
  local ends, cancelled, news = 0, 0, -1
  if S and S.owner == row[2] then
    ends, news = now + q.le, tonumber(S.news or -1)
    redis.call('ZADD', K.owned, ends, row[1])
    if S.current and redis.call('HEXISTS', K.run(S.current.r), 'cx') == 1 then cancelled = S.current.st end
  end
  answers[#answers + 1] = ends
  answers[#answers + 1] = cancelled
  answers[#answers + 1] = news
end
return { raise_seq(seq_key), answers }

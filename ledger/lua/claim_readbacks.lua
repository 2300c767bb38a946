-- Takes unknown outcomes of one shard that may be looked up now, for one process (C-91).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {no tn tools skip mx hd cap}: asker's nonce, its tenant (absent: any), canonical tools that have
--   a readback, how many to pass over in each, most in all, ms until somebody else may ask, most tries
-- Reply: {n or -1, {packed question, ...}, {how many to pass over next time, for each tool}}
--   question {k sid tn s a u t m at tl args md n}: token, session hash, tenant, session, agent, user, turn id, mutation
--   (raw), attempt, tool, arguments JSON or false, metadata JSON or false, number of this try
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: one question at a time for a mutation, whoever asks; none before the attempt's `not_after`. An answer that
--   is lost costs a try: the question is asked again when its time is over.
--!include guard
--!include keys
--!include pack
--!include session
--!include entry
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local LATER_MS = 60000
local questions, wrote = {}, false

local function raw(text)
  return (string.gsub(text, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end))
end

local function loaded(member)
  local sid, number, mutation = string.match(member, '^(%x+):(%d+):(%x+)$')
  local S = visible_session(sid, now)
  number = tonumber(number)
  local turn = S and load_turn(S, number)
  return S, number, turn, raw(mutation), turn and load_entry(S, number, raw(mutation))
end

-- Answers 'gone', 'foreign' or 'taken'.
local function take(index, member)
  local S, number, turn, mutation, entry = loaded(member)
  local asked = entry and entry.rb or { n = 0 }
  if not entry or entry.s ~= 'u' or asked.n >= q.cap then return 'gone' end
  if q.tn and S.meta.tn ~= q.tn then return 'foreign' end
  asked.n, asked.k = asked.n + 1, q.no .. '-' .. #questions + 1
  entry.rb = asked
  save_entry(S, number, mutation, entry)
  redis.call('ZADD', index, now + q.hd, member)
  questions[#questions + 1] = cmsgpack.pack({ k = asked.k, sid = S.sid, tn = S.meta.tn, s = S.meta.s, a = turn.a,
    u = turn.u, t = turn_id(S, number), m = mutation, at = entry.at, tl = entry.tl, md = entry.md or false,
    args = redis.call('HGET', K.args(S.sid), entry.ri) or false, n = asked.n })
  return 'taken'
end

local skip = {}
for place, tool in ipairs(q.tools) do
  local index, foreign, met = K.readback(tool), 0, 0
  local left = q.mx - #questions
  local due = left > 0 and redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', q.skip[place], left) or {}
  for _, member in ipairs(due) do
    met = met + 1
    local ok, what = pcall(take, index, member)
    if not ok then redis.call('ZADD', index, now + LATER_MS, member) end
    if what == 'gone' then redis.call('ZREM', index, member) end
    if what == 'foreign' then foreign = foreign + 1 else wrote = true end
  end
  -- Those of other tenants are passed over the next time; from the start again when nothing lies behind them.
  skip[place] = met == left and met > 0 and q.skip[place] + foreign or 0
end
return { wrote and raise_seq(seq_key) or -1, questions, skip }

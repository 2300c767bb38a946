-- Claims ready sessions of one shard for one worker and begins the first call in each (C-30, C-31).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {no mx pd pv to dr le wr ex bc tb aw hd}: claimer's nonce, most sessions, policy
--   digest, version of the declared tools, begin policy (see lib/begin.lua), whether to promise to look again within
--   2 s, what handlers may be started in all
-- Reply: {n or -1, ready left, {{sid, owner token, lease end ms, packed work}, ...}}
--   work as begin_next answers it, or k = unreadable: a newer version wrote in this session, it is tried again when the
--   lease ends
-- Errors: STORE_WENT_BACK STORE_CHANGED POLICY_STALE
-- Guarantees: a session has one owner; the same nonce gets the same sessions and the same work; one session that cannot
--   be read takes nothing from the others.
--!function
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
--!include handler
--!include begin
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], read_claim_request(ARGV[3])

local WITHOUT_WORK_MAX = 16
local BEHIND_MS = 60000

local version = guard(seq_key, store_id, seen)
local now = store_now()
local claim_key = K.claim(q.no)
local before = redis.call('LRANGE', claim_key, 0, -1)
-- A repeat gets what it got; whoever claims anew must know what is protected.
if #before == 0 and q.mx > 0 then require_policy(version, q.pv) end
if q.aw then promise_to_look(now) end

local function own(sid)
  local S = load_session(sid)
  redis.call('ZREM', K.ready, sid)
  if not S or S.owner or redis.call('ZCARD', K.queue(sid)) == 0 then return nil end
  S.owner, S.step, S.out = string.format('%.0f', redis.call('INCR', K.fence)) .. '-' .. q.no, '0b', {}
  put(S, 'o', S.owner)
  put(S, 'p', S.step)
  redis.call('ZADD', K.owned, now + q.le, sid)
  return S
end

-- What the session's first step is, or was when the claim is repeated; nil when its owner went on or lost it since.
local function first_work(S, token)
  local request = { tk = token, st = 1, pd = q.pd, pv = q.pv, pn = version, hd = q.hd, to = q.to, dr = q.dr, le = q.le,
    wr = q.wr, ex = q.ex, bc = q.bc, tb = q.tb }
  if S and S.owner == token then return continue_session(S, request, now) end
  return S and gave_up(S, token, 1)
end

local taken, wrote = {}, false
if #before > 0 then
  wrote = true
  for _, line in ipairs(before) do
    local sid, token = string.match(line, '^(%x+) (%S+)$')
    taken[#taken + 1] = { sid, token, ends = redis.call('ZSCORE', K.owned, sid) or '0' }
  end
else
  -- Those found without work take no place; past a few of them the next claim goes on.
  for _ = 1, q.mx > 0 and q.mx + WITHOUT_WORK_MAX or 0 do
    local sid = #taken < q.mx and redis.call('ZRANGE', K.ready, 0, 0)[1]
    if not sid then break end
    wrote = true
    local ok, S = pcall(own, sid)
    if not ok then
      -- Behind those that become ready in the next minute too: many of its kind would hold up a new one else.
      redis.call('ZADD', K.ready, now + BEHIND_MS, sid)
    elseif S then
      redis.call('RPUSH', claim_key, sid .. ' ' .. S.owner)
      taken[#taken + 1] = { sid, S.owner, S = S, ends = string.format('%.0f', now + q.le) }
    end
  end
  if #taken > 0 then redis.call('PEXPIRE', claim_key, q.le) end
end

local rows = {}
for _, pair in ipairs(taken) do
  local ok, S = true, pair.S
  if not S then ok, S = pcall(load_session, pair[1]) end
  local work = S
  if ok and S then
    S.out = S.out or {}
    ok, work = pcall(first_work, S, pair[2])
    save_session(S)
  end
  if not ok then
    local went_on = caught_code(work) == 'STALE_STEP' or caught_code(work) == 'ATTEMPT_VOIDED'
    work = not went_on and { k = 'unreadable' }
  end
  if work then
    rows[#rows + 1] = { pair[1], pair[2], pair.ends, cmsgpack.pack(work) }
  end
end
return { wrote and raise_seq(seq_key) or -1, redis.call('ZCARD', K.ready), rows }

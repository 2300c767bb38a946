-- The session hash. Fields:
--   meta            packed {tn s g no at tc an lm ia lv ts}: tenant, session id, generation, turn nonce, created,
--                   turns made, admissions made, last message, inactivity ms, live runs, turn numbers
--   o               owner token `<n>-<nonce>` while owned (C-30)
--   p               last step of this owner token and its kind, `<step>b|v` (C-23)
--   c               packed {k r i t m at}: what is in flight: kind m|u, run, call, turn number, mutation, attempt
--   t<no>           packed turn {a u d rv ms f lv at}: agent, user, deliveries, revision, mutation ids, finished,
--                   live runs, created
--   m<no>:<raw id>  packed entry, see entry.lua
--   d<raw identity> packed delivery {r t c tb er}: run, turn number, content digest, tombstone member,
--                   earlier runs
--   l<raw digest>   run that identical requests without a delivery id attach to while it lives (C-61)

local function load_session(sid)
  local key = K.session(sid)
  local f = redis.call('HMGET', key, 'meta', 'o', 'p', 'c')
  if not f[1] then return nil end
  return { sid = sid, key = key, meta = unpack_record(f[1]), owner = f[2] or nil, step = f[3] or nil,
           current = unpack_record(f[4] or nil) }
end

-- A session past its inactivity deadline is invisible at once, unless a run is live in it (C-81).
local function expired(S, now)
  return S.meta.lv == 0 and S.meta.lm + S.meta.ia <= now
end

local function visible_session(sid, now)
  local S = load_session(sid)
  if S and expired(S, now) then return nil end
  return S
end

local function save_meta(S)
  redis.call('HSET', S.key, 'meta', pack(S.meta))
end

-- A logical turn id names its session's nonce and the turn's number: nothing to look up, nothing to guess.
local function turn_id(S, number)
  return string.match(P, '{(%x+)}') .. S.meta.no .. string.format('%08x', number)
end

local function turn_number(S, id)
  if #id ~= 34 or string.sub(id, 3, 26) ~= S.meta.no then return nil end
  return tonumber(string.sub(id, 27), 16)
end

local function load_turn(S, number)
  return unpack_record(redis.call('HGET', S.key, 't' .. number) or nil)
end

local function save_turn(S, number, turn)
  redis.call('HSET', S.key, 't' .. number, pack(turn))
end

local function disown(S)
  redis.call('HDEL', S.key, 'o', 'p', 'c')
  redis.call('ZREM', K.owned, S.sid)
  S.owner, S.step, S.current = nil, nil, nil
end

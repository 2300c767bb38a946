-- The session hash. Fields:
--   meta            packed {tn s g no at tc an lm ia lv ts}: tenant, session id, generation, turn nonce, created,
--                   turns made, admissions made, last message, inactivity ms, live runs, turn numbers
--   o               owner token `<n>-<nonce>` while owned (C-30)
--   p               last step of this owner token and its kind, `<step>b|v` (C-23); once the owner gave the session
--                   up itself, how: `<step>r|y<n of its token>` (C-22)
--   c               packed {k r i t m at st dl}: what is in flight: kind m|u, run, call, turn number, mutation, attempt,
--                   step, deadline; kind v: the attempt that was put back last
--   h               packed list of {r st}: handler runs that this owner started and that have not ended, and the step
--                   that started each
--   w               news counted for an owner that waits; its renewals carry the number (C-31)
--   t<no>           packed turn {a u d rv ms f lv at}: agent, user, deliveries, revision, mutation ids, finished,
--                   live runs, created
--   m<no>:<raw id>  packed entry, see entry.lua
--   d<raw identity> packed delivery {r t c tb er at}: run, turn number, content digest, tombstone member,
--                   earlier runs, attached only (no delivery id was given)
--   l<raw digest>   run that identical requests without a delivery id attach to while it lives (C-61)

-- Fields that are needed next may be named: read in the same command, they wait in `S.ahead`.
local function load_session(sid, one, other)
  local key = K.session(sid)
  local f = one and redis.call('HMGET', key, 'meta', 'o', 'p', 'c', 'h', 'w', one, other)
    or redis.call('HMGET', key, 'meta', 'o', 'p', 'c', 'h', 'w')
  if not f[1] then return nil end
  -- What most scripts add is named here, so that the table is made at its size.
  local S = { sid = sid, key = key, meta = read_session(f[1]), owner = f[2] or nil, step = f[3] or nil,
              live = unpack_record(f[5] or nil) or {}, news = f[6] or nil, current = nil, voided = nil, out = nil,
              at_hand = nil, ahead = one and { [one] = f[7], [other] = f[8] } }
  local current = read_current(f[4] or nil)
  if current and current.k == 'v' then S.voided = current else S.current = current end
  return S
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

local PACKERS = { meta = pack_session, c = pack_current, t = pack_turn, m = pack_entry, d = pack_delivery }

local function packed(field, value)
  if type(value) ~= 'table' then return value end
  return (PACKERS[field] or PACKERS[string.sub(field, 1, 1)] or pack)(value)
end

-- With `S.out` set, what a script writes into the session's hash is kept there until `save_session` writes all of it
-- at once: fields are texts, or records that are packed then.
local function put(S, field, value)
  if S.ahead then S.ahead[field] = nil end
  if S.out then
    S.out[field] = value
  else
    redis.call('HSET', S.key, field, packed(field, value))
  end
end

local function get_record(S, field, read)
  local kept = S.out and S.out[field]
  if kept then return kept end
  local raw = S.ahead and S.ahead[field]
  if raw == nil then raw = redis.call('HGET', S.key, field) end
  return read(raw or nil)
end

local function drop(S, field)
  if S.ahead then S.ahead[field] = nil end
  if S.out then S.out[field] = nil end
  redis.call('HDEL', S.key, field)
end

local function save_session(S)
  local args = {}
  for field, value in pairs(S.out) do
    args[#args + 1] = field
    args[#args + 1] = packed(field, value)
  end
  S.out = {}
  if #args > 0 then redis.call('HSET', S.key, unpack(args)) end
end

local function save_meta(S)
  put(S, 'meta', S.meta)
end

-- A logical turn id names its session's nonce and the turn's number: nothing to look up, nothing to guess.
local function turn_id(S, number)
  if S.id_of ~= number then
    S.id_of, S.id = number, string.match(P, '{(%x+)}') .. S.meta.no .. string.format('%08x', number)
  end
  return S.id
end

-- Only the very text that `turn_id` makes names a turn: number parsing alone would take other spellings too.
local function turn_number(S, id)
  local number = #id == 34 and tonumber(string.sub(id, 27), 16)
  if number and turn_id(S, number) == id then return number end
  return nil
end

local function turn_field(number)
  return 't' .. text(number)
end

local function load_turn(S, number)
  return get_record(S, turn_field(number), read_turn)
end

local function save_turn(S, number, turn)
  put(S, turn_field(number), turn)
end

local function disown(S)
  for _, field in ipairs(S.out and { 'o', 'p', 'c', 'h', 'w' } or {}) do S.out[field] = nil end
  redis.call('HDEL', S.key, 'o', 'p', 'c', 'h', 'w')
  redis.call('ZREM', K.owned, S.sid)
  S.owner, S.step, S.current, S.voided, S.live, S.news = nil, nil, nil, nil, {}, nil
end

local function save_live(S)
  if #S.live > 0 then put(S, 'h', S.live) else drop(S, 'h') end
end

-- The place of a run among the live handler runs, or nil.
local function live_place(S, run)
  for place, live in ipairs(S.live) do
    if live.r == run then return place end
  end
  return nil
end

-- Takes an ended or put-back handler run off the list; answers whether it was there.
local function drop_live(S, run)
  local place = live_place(S, run)
  if not place then return false end
  table.remove(S.live, place)
  save_live(S)
  return true
end

local GIVEN_UP = { r = 'released', y = 'yielded' }

-- The owner gives the session up in its step `step`; `how` is r or y.
local function give_up(S, token, step, how)
  disown(S)
  put(S, 'p', step .. how .. string.match(token, '^%d+'))
  return { k = GIVEN_UP[how] }
end

-- What a repeat of the step that gave the session up is answered, until somebody claims it again (C-22).
local function gave_up(S, token, step)
  if S.owner then return nil end
  local last, how, n = string.match(S.step or '', '^(%d+)([ry])(%d+)$')
  if last == tostring(step) and n == string.match(token, '^%d+') then return { k = GIVEN_UP[how] } end
  return nil
end

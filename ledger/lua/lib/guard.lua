-- First thing in every script: refuses when the store lost confirmed writes (C-27), then gives the store's time.
-- KEYS[1] is the shard's seq hash; its slot is the slot of every key the script touches.

local function refuse(code, detail)
  error({ err = code .. ' ' .. (detail or '') })
end

-- The code of what a pcall caught: a table in Redis, its text in Valkey; nil for an error that is none of ours.
local function caught_code(caught)
  local text = type(caught) == 'table' and caught.err or caught
  return type(text) == 'string' and string.match(text, '^([A-Z_]+) ') or nil
end

-- Refusing on a foreign store id or a lower counter is itself remembered, so that every process stops.
-- A store id that `store accept` retired is answered STORE_CHANGED: that process adopts the new id.
-- Answers the version of the declared tools (C-05).
local function guard(seq_key, store_id, seen)
  local seq = redis.call('HMGET', seq_key, 'store', 'n', 'refused', 'pv')
  if seq[3] then refuse('STORE_WENT_BACK', 'refused until accepted') end
  if seq[1] == store_id and tonumber(seq[2] or '0') >= tonumber(seen) then return tonumber(seq[4] or '0') end
  if seq[1] ~= store_id and seq[1] and redis.call('HEXISTS', seq_key, 'was:' .. store_id) == 1 then
    refuse('STORE_CHANGED', seq[1])
  end
  redis.call('HSET', seq_key, 'refused', store_id)
  refuse('STORE_WENT_BACK', 'confirmed writes are missing')
end

-- Who resolved a call under fewer declared tools than there are must look again, before anything is written (C-05).
local function require_policy(version, known)
  if version ~= (known or 0) then refuse('POLICY_STALE', string.format('%d', version)) end
end

local function store_now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- What was written is hinted in one message, at the end: a line for each journal (see journal.lua).
local HINTS, HINTS_CHANNEL
--!each-call HINTS = nil

local function say_hints()
  if HINTS then
    redis.call('SPUBLISH', HINTS_CHANNEL, HINTS)
    HINTS = nil
  end
end

-- Every write raises the counter, also a repeat, so that the WAITAOF after it has something to wait for (C-22).
local function raise_seq(seq_key)
  say_hints()
  return redis.call('HINCRBY', seq_key, 'n', 1)
end

-- A whole number, or one that is spelled out already, as text. Lua spells each number as if it had a fraction, which
-- costs more than a look-up by far.
local SPELLED, SPELLED_MAX = {}, 1000

local function text(number)
  local spelled_out = SPELLED[number]
  if not spelled_out then
    if type(number) == 'string' then return number end
    spelled_out = string.format('%d', number)
    if number < SPELLED_MAX then SPELLED[number] = spelled_out end
  end
  return spelled_out
end

-- Run journal: a list numbered by position; nothing leaves its head (C-112). Events are packed
-- {e a i m ap o rv x}: type, store time, call index, mutation id, approval id, outcome JSON, revision, extra word.

local JOURNAL_MAX = 1000
local TERMINAL_EVENT = { run_completed = true, run_failed = true, mutation_outcome = true }

local function journal_add(R, event)
  R.events[#R.events + 1] = event
end

-- A rule's answer is recorded as such: by its name, and as no person's (C-43).
local function answered_by_rule(R, i, call)
  journal_add(R, { a = R.now, e = 'approval_decided', i = i, m = call.m, x = 'rule:' .. call.ru })
end

-- What of the events has room behind the first `length`, packed. At its bound a journal says `truncated` once (the run's
-- field `tr`), then keeps only what ends something.
local function with_room(R, length)
  local out = {}
  for _, event in ipairs(R.events) do
    if length + #out < JOURNAL_MAX - 1 or TERMINAL_EVENT[event.e] then
      out[#out + 1] = pack_event(event)
    elseif redis.call('HSETNX', K.run(R.id), 'tr', '1') == 1 then
      out[#out + 1] = pack_event({ e = 'truncated', a = event.a })
    end
  end
  return out
end

-- A hint says `<run id> <length>`, and ` end` when the run has ended; a script's hints are the lines of one message.
local function journal_flush(R)
  local count = #R.events
  if count == 0 then return end
  local out = {}
  for i = 1, count do out[i] = pack_event(R.events[i]) end
  local length = redis.call('RPUSH', R.journal, unpack(out))
  if length >= JOURNAL_MAX then
    redis.call('RPOP', R.journal, count)
    out = with_room(R, length - count)
    length = #out > 0 and redis.call('RPUSH', R.journal, unpack(out))
  end
  if length then
    local hint = R.id .. ' ' .. text(length) .. (R.state and R.state.en and ' end' or '')
    HINTS, HINTS_CHANNEL = HINTS and (HINTS .. '\n' .. hint) or hint, K.journal_signal
  end
  R.events = {}
end

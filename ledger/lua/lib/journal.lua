-- Run journal: a list numbered by position; nothing leaves its head (C-112). Events are packed
-- {e a i m ap o rv x}: type, store time, call index, mutation id, approval id, outcome JSON, revision, extra word.

local JOURNAL_MAX = 1000
local TERMINAL_EVENT = { run_completed = true, run_failed = true, mutation_outcome = true }

local function journal_add(R, event)
  event.a = R.now
  R.events[#R.events + 1] = event
end

-- A hint says `<run id> <length>`, and ` end` when the run has ended.
-- At its bound a journal says `truncated` once (the run's field `tr`), then keeps only what ends something.
local function journal_flush(R)
  local count = #R.events
  if count == 0 then return end
  local length = redis.call('LLEN', R.journal)
  local out = {}
  for i = 1, count do
    local event = R.events[i]
    if length + #out < JOURNAL_MAX - 1 or TERMINAL_EVENT[event.e] then
      out[#out + 1] = pack(event)
    elseif redis.call('HSETNX', K.run(R.id), 'tr', '1') == 1 then
      out[#out + 1] = pack({ e = 'truncated', a = event.a })
    end
  end
  if #out > 0 then
    length = redis.call('RPUSH', R.journal, unpack(out))
    redis.call('SPUBLISH', K.journal_signal, R.id .. ' ' .. length .. (R.state and R.state.en and ' end' or ''))
  end
  R.events = {}
end

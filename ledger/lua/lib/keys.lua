-- The only place where scripts build key names. `P` is the shard prefix, for instance `ml:{07}:`.

local P

local function fixed_keys()
  return {
  ready = P .. 'ready', owned = P .. 'owned', awake = P .. 'awake', fence = P .. 'fence',
  signal = P .. 'signal', journal_signal = P .. 'journal-signal', approvals = P .. 'approvals',
  outcomes = P .. 'outcomes', floor = P .. 'outcomes:floor', expiry = P .. 'expiry', erase = P .. 'erase',
  retired = P .. 'retired', asked = P .. 'asked', forget = P .. 'forget', swept = P .. 'swept',
  policy = P .. 'policy', policies = P .. 'policy:alive',
  dirty = P .. 'dirty', swept_retention = P .. 'swept:retention', declared = P .. 'declared',
  counts = P .. 'counts',
  }
end

-- Where the script is a function, names without an id are made once a shard.
local K, FIXED = {}, {}

local function name_keys(seq_key)
  P = string.sub(seq_key, 1, -4)
  FIXED[P] = FIXED[P] or fixed_keys()
  for name, key in pairs(FIXED[P]) do K[name] = key end
end
--!each-call name_keys(KEYS[1])

function K.session(sid) return P .. 'session:' .. sid end
function K.queue(sid) return P .. 'queue:' .. sid end
function K.args(sid) return P .. 'args:' .. sid end
function K.erased(generation) return P .. 'erased:' .. generation end
function K.run(run) return P .. 'run:' .. run end
function K.journal(run) return P .. 'run:' .. run .. ':journal' end
function K.approval(id) return P .. 'approval:' .. id end
function K.claim(nonce) return P .. 'claim:' .. nonce end
function K.pending(tenant) return P .. 'pending:' .. tenant end
function K.unknowns(tenant) return P .. 'unknowns:' .. tenant end
function K.readback(tool) return P .. 'readback:' .. tool end
function K.counted(process) return P .. 'counted:' .. process end
function K.sessions(tenant) return P .. 'sessions:' .. tenant end

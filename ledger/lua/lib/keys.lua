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
  counts = P .. 'counts', catalogs = P .. 'catalogs', catalogs_listed = P .. 'catalogs:listed',
  }
end

local NAMES = {}

function NAMES.session(sid) return P .. 'session:' .. sid end
function NAMES.queue(sid) return P .. 'queue:' .. sid end
function NAMES.args(sid) return P .. 'args:' .. sid end
function NAMES.erased(generation) return P .. 'erased:' .. generation end
function NAMES.pruned(sid) return P .. 'pruned:' .. sid end
function NAMES.erasure(token) return P .. 'erasure:' .. token end
function NAMES.run(run) return P .. 'run:' .. run end
function NAMES.journal(run) return P .. 'run:' .. run .. ':journal' end
function NAMES.approval(id) return P .. 'approval:' .. id end
function NAMES.claim(nonce) return P .. 'claim:' .. nonce end
function NAMES.pending(tenant) return P .. 'pending:' .. tenant end
function NAMES.unknowns(tenant) return P .. 'unknowns:' .. tenant end
function NAMES.readback(tool) return P .. 'readback:' .. tool end
function NAMES.counted(process) return P .. 'counted:' .. process end
function NAMES.sessions(tenant) return P .. 'sessions:' .. tenant end

-- Where the script is a function, names without an id are made once a shard.
local K, OF_SHARD = nil, {}

local function name_keys(seq_key)
  P = string.sub(seq_key, 1, -4)
  K = OF_SHARD[P]
  if K then return end
  K = fixed_keys()
  for name, make in pairs(NAMES) do K[name] = make end
  OF_SHARD[P] = K
end
--!each-call name_keys(KEYS[1])

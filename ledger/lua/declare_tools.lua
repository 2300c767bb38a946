-- Adds tools that a host declares as mutations to the protected set of one shard, and answers the set (C-05).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed list of canonical tool names; empty to read only
-- Reply: {n or -1, version, {tool, ...}}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: the version rises with every addition, and whoever admits or begins under another one is told so.
--!include guard
--!include keys
local seq_key, store_id, seen, tools = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

local version = guard(seq_key, store_id, seen)
local n = -1
if #tools > 0 then
  n = raise_seq(seq_key)
  if redis.call('SADD', K.declared, unpack(tools)) > 0 then version = redis.call('HINCRBY', seq_key, 'pv', 1) end
end
return { n, version, redis.call('SMEMBERS', K.declared) }

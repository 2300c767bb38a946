-- Packed records: a leading format byte, then MessagePack. A newer format is refused, never guessed at.
-- Records that every mutation touches have a layout each (`ledger/store/layouts.py`), others are maps.

local FORMAT = 1

local function pack(record)
  return cmsgpack.pack(FORMAT, record)
end

local function unpack_record(bytes)
  if not bytes then return nil end
  if string.byte(bytes) ~= FORMAT then refuse('FORMAT_TOO_NEW', 'a newer version wrote this record') end
  local _, record = cmsgpack.unpack(bytes)
  return record
end

--!layouts

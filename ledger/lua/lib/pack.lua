-- Packed records: a leading format byte, then MessagePack. A newer format is refused, never guessed at.

local FORMAT = '\1'

local function pack(record)
  return FORMAT .. cmsgpack.pack(record)
end

local function unpack_record(bytes)
  if not bytes then return nil end
  if string.sub(bytes, 1, 1) ~= FORMAT then refuse('FORMAT_TOO_NEW', 'a newer version wrote this record') end
  return cmsgpack.unpack(string.sub(bytes, 2))
end

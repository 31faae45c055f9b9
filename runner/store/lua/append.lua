-- Appends one batch of chunks as one stream entry, exactly once.
-- KEYS 1 run  2 stream
-- ARGV 1 epoch  2 first seq  3 last seq  4 batch (JSON array)  5 credited chunks  6 alive ms
-- Returns {OK | FENCED | CANCELLED | TERMINAL | GAP | UNKNOWN, last seq stored}
-- Why: the epoch is checked where the chunk is written; the first seq tells a repeated append from a new one.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'seq', 'cancel_at', 'progress')
local seq = tonumber(held[3])
if not seq then return {UNKNOWN, 0} end
if held[1] ~= 'running' or held[2] ~= ARGV[1] then
  if ENDED[held[1]] then return {TERMINAL, seq} end
  return {FENCED, seq}
end
if seq >= tonumber(ARGV[3]) then return {OK, seq} end
if held[4] then return {CANCELLED, seq} end
if seq + 1 ~= tonumber(ARGV[2]) then return {GAP, seq} end
redis.call('XADD', KEYS[2], ARGV[3] .. '-0', 'e', ARGV[1], 'c', ARGV[4])
if ARGV[5] == '0' then
  redis.call('HSET', KEYS[1], 'seq', ARGV[3])
else
  redis.call('HSET', KEYS[1], 'seq', ARGV[3], 'progress', int(held[5] + ARGV[5]), 'progress_at', int(clock()))
end
redis.call('PEXPIRE', KEYS[2], ARGV[6])
return {OK, tonumber(ARGV[3])}

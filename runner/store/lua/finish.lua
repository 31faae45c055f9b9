-- Ends a run: the last chunks, the terminal entry, the reason, and a lifetime for every key it leaves.
-- KEYS 1 run  2 stream  3 snapshot  4 ledger  5 children  6 due  7 events  8 owned
-- ARGV 1 run id  2 epoch  3 by (owner | supervisor | canceller)  4 state  5 reason  6 error  7 retention ms
-- ARGV 8 first seq  9 last seq  10 batch ('' = none)  11 credited chunks  12 terminal (JSON)  13 snapshot ('' = keep)
-- ARGV 14 progress that was judged ('' = the verdict is about the lease)
-- Returns {OK, last seq} | {FENCED, seq} | {CANCELLED, seq} | {TERMINAL, seq} | {GAP, seq} | {UNKNOWN, 0}
-- Why: the one door to finality. Whoever ends a run ends it here, once; a cancel that came first wins; a verdict about
-- silence holds only while the run is still as silent as when it was judged, one about a loss only while it is lost.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'seq', 'cancel_at', 'progress', 'ended_by', 'lease_until')
local seq = tonumber(held[3])
if not seq then return {UNKNOWN, 0} end
local me = ARGV[3] .. ':' .. ARGV[2] .. ':' .. ARGV[4]
if ENDED[held[1]] then
  if held[6] == me then return {OK, seq} end
  return {TERMINAL, seq}
end
if held[2] ~= ARGV[2] then return {FENCED, seq} end
if ARGV[3] == 'owner' and held[1] ~= 'running' then return {FENCED, seq} end
if ARGV[3] == 'canceller' and held[1] ~= 'queued' then return {FENCED, seq} end
if held[4] and ARGV[4] ~= 'cancelled' then return {CANCELLED, seq} end
if ARGV[14] ~= '' and ARGV[14] ~= held[5] then return {FENCED, seq} end
local now = clock()
local lives = held[1] == 'running' and tonumber(held[7]) > now
if ARGV[3] == 'supervisor' and ARGV[14] == '' and lives then return {FENCED, seq} end
if ARGV[10] ~= '' then
  if seq + 1 ~= tonumber(ARGV[8]) then return {GAP, seq} end
  redis.call('XADD', KEYS[2], ARGV[9] .. '-0', 'e', ARGV[2], 'c', ARGV[10])
  seq = tonumber(ARGV[9])
  redis.call('HINCRBY', KEYS[1], 'progress', ARGV[11])
end
redis.call('XADD', KEYS[2], int(seq) .. '-1', 'e', ARGV[2], 't', ARGV[12])
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'reason', ARGV[5], 'error', ARGV[6], 'seq', int(seq),
  'ended_at', int(now), 'ended_by', me, 'dispatch', '')
redis.call('HDEL', KEYS[1], 'claim', 'lease_until')
if ARGV[13] ~= '' then redis.call('SET', KEYS[3], ARGV[13]) end
redis.call('ZREM', KEYS[6], ARGV[1])
redis.call('SREM', KEYS[8], ARGV[1])
note(KEYS[7], ARGV[4], ARGV[2], ARGV[5])
for _, key in ipairs({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[7]}) do
  redis.call('PEXPIRE', key, ARGV[7])
end
return {OK, seq}

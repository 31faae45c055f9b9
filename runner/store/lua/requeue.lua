-- Takes a running run back to the queue with a dispatch entry: a hand-over, a retry, or an attempt after a loss.
-- KEYS 1 run  2 due  3 events  4 owned  5 sweep
-- ARGV 1 run id  2 epoch  3 by (owner | supervisor)  4 what  5 detail  6 due in ms  7 silent ms ('' = since progress)
-- ARGV 8.. field, value of the incident
-- Returns {OK} | {FENCED} | {CANCELLED} | {TERMINAL}
-- Why: only the owner may give a live lease away; a supervisor needs it to be over, whatever it saw a moment ago.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'cancel_at', 'lease_until', 'progress_at')
if ENDED[held[1]] then return {TERMINAL} end
if held[1] ~= 'running' or held[2] ~= ARGV[2] then return {FENCED} end
if held[3] then return {CANCELLED} end
local now = clock()
if ARGV[3] == 'supervisor' and tonumber(held[4]) > now then return {FENCED} end
local silent = ARGV[7]
if silent == '' then
  local fresh_from = tonumber(redis.call('HGET', KEYS[5], 'fresh_from') or '0')
  silent = int(math.max(0, now - math.max(tonumber(held[5]), fresh_from)))
end
for i = 8, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], 'state', 'queued', 'dispatch', 'pending', 'queued_at', int(now), 'silent_ms', silent)
redis.call('HDEL', KEYS[1], 'owner', 'claim', 'lease_until')
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[2], int(now + ARGV[6]), ARGV[1])
note(KEYS[3], ARGV[4], ARGV[2], ARGV[5])
return {OK}

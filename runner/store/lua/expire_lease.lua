-- Ends the lease of a run whose owner is known to be gone, with the cause, and makes the run due at once.
-- KEYS 1 run  2 due  3 events
-- ARGV 1 run id  2 owner  3 cause
-- Returns {OK} | {FENCED} when that owner does not hold the run
-- Why: a process death that its parent saw need not wait for the lease to run out.
local held = redis.call('HMGET', KEYS[1], 'state', 'owner', 'epoch')
if held[1] ~= 'running' or held[2] ~= ARGV[2] then return {FENCED} end
local now = int(clock())
redis.call('HSET', KEYS[1], 'lease_until', now, 'lost_cause', ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
note(KEYS[3], 'owner-gone', held[3], ARGV[3])
return {OK}

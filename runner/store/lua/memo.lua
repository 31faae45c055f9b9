-- Keeps one value of a turn across its attempts: the result of a step (first write wins) or the author's stash.
-- KEYS 1 run  2 ledger
-- ARGV 1 epoch  2 field  3 value (JSON)  4 keep (first | last)
-- Returns {OK, value stored} | {FENCED} | {CANCELLED} | {TERMINAL} | {UNKNOWN}
-- Why: a step that was recorded is never run again, and a zombie cannot record one.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'cancel_at')
if not held[1] then return {UNKNOWN} end
if ENDED[held[1]] then return {TERMINAL} end
if held[1] ~= 'running' or held[2] ~= ARGV[1] then return {FENCED} end
if ARGV[4] == 'last' then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
else
  redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3])
end
if held[3] then return {CANCELLED} end
return {OK, redis.call('HGET', KEYS[2], ARGV[2])}

-- Stores the message so far and the seq it covers, at the end of a step.
-- KEYS 1 run  2 snapshot
-- ARGV 1 epoch  2 snapshot (JSON)  3 seq that it covers
-- Returns {OK} | {FENCED} | {CANCELLED} | {TERMINAL} | {GAP} | {UNKNOWN}
-- Why: recovery and late readers then read a bounded tail; a finished step is also what clears lost-worker strikes.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'cancel_at', 'seq')
if not held[1] then return {UNKNOWN} end
if ENDED[held[1]] then return {TERMINAL} end
if held[1] ~= 'running' or held[2] ~= ARGV[1] then return {FENCED} end
if tonumber(ARGV[3]) > tonumber(held[4]) then return {GAP} end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], 'step_at', int(clock()))
if held[3] then return {CANCELLED} end
return {OK}

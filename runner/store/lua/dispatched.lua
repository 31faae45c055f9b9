-- Clears the dispatch entry of a queued run: its RQ job is in the queue.
-- KEYS 1 run  2 due
-- ARGV 1 run id  2 epoch  3 queue check ms
-- Returns {OK} | {FENCED} when the run has moved on meanwhile
-- Why: the next look is a check that RQ still holds the job, because RQ can lose one in several ways.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch')
if held[1] ~= 'queued' or held[2] ~= ARGV[2] then return {FENCED} end
redis.call('HSET', KEYS[1], 'dispatch', 'sent')
redis.call('HINCRBY', KEYS[1], 'dispatches', 1)
redis.call('ZADD', KEYS[2], int(clock() + ARGV[3]), ARGV[1])
return {OK}

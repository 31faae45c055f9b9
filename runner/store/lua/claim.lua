-- Makes one attempt the owner of a queued run: epoch + 1, lease, a full window minus the silence already spent.
-- KEYS 1 run  2 due  3 events  4 owned
-- ARGV 1 run id  2 expected epoch  3 owner  4 claim token  5 lease ms
-- Returns {OK, record as field, value..} | {FENCED, state} | {CANCELLED} | {TERMINAL, state} | {UNKNOWN}
-- Why: a duplicate job finds another epoch or state and does nothing; the token makes a repeated claim the same claim.
local held = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'claim', 'cancel_at', 'silent_ms', 'no_progress_ms')
local state = held[1]
if not state then return {UNKNOWN} end
if ENDED[state] then return {TERMINAL, state} end
if state == 'running' and held[3] == ARGV[4] then return {OK, redis.call('HGETALL', KEYS[1])} end
if state ~= 'queued' or held[2] ~= ARGV[2] then return {FENCED, state} end
if held[4] then return {CANCELLED} end
local now = clock()
local lease_until = now + ARGV[5]
local progress_at = now - (tonumber(held[5]) or 0)
local epoch = int(held[2] + 1)
redis.call('HSET', KEYS[1], 'state', 'running', 'epoch', epoch, 'owner', ARGV[3], 'claim', ARGV[4],
  'lease_until', int(lease_until), 'progress_at', int(progress_at), 'claimed_at', int(now), 'dispatch', '')
redis.call('HSETNX', KEYS[1], 'started_at', int(now))
redis.call('HINCRBY', KEYS[1], 'attempts', 1)
redis.call('HDEL', KEYS[1], 'lost_cause', 'silent_ms')
redis.call('SADD', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[2], next_look(lease_until, progress_at, held[6]), ARGV[1])
note(KEYS[3], 'claimed', epoch, ARGV[3])
return {OK, redis.call('HGETALL', KEYS[1])}

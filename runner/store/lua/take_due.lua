-- Takes what is due in one partition, and notices when nobody could look for a while.
-- KEYS 1 due  2 sweep
-- ARGV 1 limit  2 hold ms  3 gap ms
-- Returns {now, fresh from, run id..}
-- Why: a taken run is put off by the hold, so that two supervisors share the work. When the last sweep is longer ago
-- than the gap, the server (or every supervisor) was away: deadlines are judged from its return on.
local now = clock()
local held = redis.call('HMGET', KEYS[2], 'at', 'fresh_from')
local fresh_from = tonumber(held[2]) or 0
if held[1] and now - held[1] > tonumber(ARGV[3]) then
  fresh_from = now
  redis.call('HSET', KEYS[2], 'fresh_from', int(now))
end
redis.call('HSET', KEYS[2], 'at', int(now))
local answer = {int(now), int(fresh_from)}
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', 0, ARGV[1])
for i, id in ipairs(due) do
  redis.call('ZADD', KEYS[1], int(now + ARGV[2]), id)
  answer[i + 2] = id
end
return answer

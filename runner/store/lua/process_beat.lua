-- Says that a process lives and what it is doing.
-- KEYS 1 processes
-- ARGV 1 process id  2 facts (JSON)  3 stale ms
-- Returns now in ms
-- Why: for people and `doctor` only; no decision about a run reads it. Processes that fell silent are removed.
local now = clock()
redis.call('HSET', KEYS[1], ARGV[1], int(now) .. ' ' .. ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^%d+'))
  if not at or now - at > tonumber(ARGV[3]) then redis.call('HDEL', KEYS[1], all[i]) end
end
return now

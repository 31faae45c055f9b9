-- Renews the leases of all turns that one process runs in this partition, and flushes credits that no append carried.
-- KEYS 1 due  2.. run, stream of each turn
-- ARGV 1 lease ms  2 alive ms  3.. run id, epoch, credits of each turn
-- Returns one code per turn: OK | FENCED | CANCELLED | TERMINAL | UNKNOWN
-- Why: a heartbeat says that the process lives and touches no progress, except for credits it is handed.
local now = clock()
local lease_until = now + ARGV[1]
local answers = {}
for turn = 1, (#KEYS - 1) / 2 do
  local run, stream = KEYS[turn * 2], KEYS[turn * 2 + 1]
  local id, epoch, credits = ARGV[turn * 3], ARGV[turn * 3 + 1], ARGV[turn * 3 + 2]
  local held = redis.call('HMGET', run, 'state', 'epoch', 'cancel_at', 'progress_at', 'no_progress_ms')
  if held[1] == 'running' and held[2] == epoch then
    local progress_at = held[4]
    if credits ~= '0' then
      progress_at = int(now)
      redis.call('HINCRBY', run, 'progress', credits)
    end
    redis.call('HSET', run, 'lease_until', int(lease_until), 'progress_at', progress_at)
    redis.call('PEXPIRE', stream, ARGV[2])
    redis.call('ZADD', KEYS[1], next_look(lease_until, progress_at, held[5]), id)
    answers[turn] = held[3] and CANCELLED or OK
  elseif not held[1] then
    answers[turn] = UNKNOWN
  else
    answers[turn] = ENDED[held[1]] and TERMINAL or FENCED
  end
end
return answers

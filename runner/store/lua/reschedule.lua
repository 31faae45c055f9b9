-- Sets when a run must be looked at next; forgets a run that has ended or is gone.
-- KEYS 1 run  2 stream  3 due
-- ARGV 1 run id  2 at ms  3 alive ms  4 time until which the looker held it ('' = set it in any case)
-- Returns {OK} | {FENCED} when somebody else set another time meanwhile | {TERMINAL}
-- Why: the index is a hint; a hint about nothing must not be looked at for ever, and a look that ends must not hide
-- what happened to the run while it was looked at.
local state = redis.call('HGET', KEYS[1], 'state')
if not state or ENDED[state] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return {TERMINAL}
end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
if ARGV[4] ~= '' and tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0') ~= tonumber(ARGV[4]) then
  return {FENCED}
end
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
return {OK}

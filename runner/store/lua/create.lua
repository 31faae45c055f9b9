-- Records a run with its dispatch entry, once per idempotency key.
-- KEYS 1 run  2 due  3 events  4 idempotency (left out when the submission has no key)
-- ARGV 1 run id  2 dispatch grace ms  3 payload digest  4 idempotency ms  5.. field, value of the record
-- Returns {OK, run id} | {TAKEN, run id that holds the key} | {CONFLICT, run id that holds the key}
-- Why: record and dispatch entry are one act, so a crash right after it loses nothing: the sweep finds the entry.
if redis.call('EXISTS', KEYS[1]) == 1 then return {OK, ARGV[1]} end
if KEYS[4] then
  local held = redis.call('GET', KEYS[4])
  if held then
    local holder, digest = string.match(held, '^(%S+) (%S+)$')
    if digest == ARGV[3] then return {TAKEN, holder} end
    return {CONFLICT, holder}
  end
  redis.call('SET', KEYS[4], ARGV[1] .. ' ' .. ARGV[3], 'PX', ARGV[4])
end
local now = clock()
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], 'state', 'queued', 'epoch', 0, 'seq', 0, 'progress', 0, 'attempts', 0,
  'dispatch', 'pending', 'created_at', int(now), 'queued_at', int(now))
redis.call('ZADD', KEYS[2], int(now + ARGV[2]), ARGV[1])
note(KEYS[3], 'created', 0, '')
return {OK, ARGV[1]}

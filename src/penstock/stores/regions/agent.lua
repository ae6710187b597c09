-- What only the site's agent does: it takes the demand of all instances, and notes what the home
-- said. Counterpart of site_calls.py.
--
-- KEYS     the state of the site, its demand
-- ARGV     the fence; then fields of the state and their values in turn: if there are none, the
--          demand is taken
--
-- Answers 'stale' if there is a newer agent; else the demand, as keys and units in turn

if tonumber(ARGV[1]) ~= tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then
  return 'stale'
end
if #ARGV > 1 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 2))
  return {}
end
local demand = redis.call('HGETALL', KEYS[2])
redis.call('DEL', KEYS[2])
return demand

-- What every instance of a site does once in a while: it passes on the demand that it has seen, and
-- stands for election as the site's agent. Counterpart of site_calls.py.
--
-- KEYS     the agent's lease, the state of the site, its demand; all in one slot
-- ARGV     the instance's name, how long the agent's lease lasts in ms; then keys and units in turn
--
-- Answers the server's time in microseconds, whether this instance is the agent, the fence, and the
-- fields of the state.
--
-- The fence counts elections. What an agent that was replaced still sends has a lower one, and
-- does nothing: see agent.lua and home.lua.

local time = redis.call('TIME')
local name, lease = ARGV[1], ARGV[2]
for at = 3, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[3], ARGV[at], ARGV[at + 1])
end
if #ARGV > 2 then redis.call('PEXPIRE', KEYS[3], 60000) end
redis.call('HSETNX', KEYS[2], 'site', name)
local agent = redis.call('GET', KEYS[1])
if not agent then
  redis.call('SET', KEYS[1], name, 'PX', lease)
  redis.call('HINCRBY', KEYS[2], 'fence', 1)
  agent = name
elseif agent == name then
  redis.call('PEXPIRE', KEYS[1], lease)
end
return {
  tonumber(time[1]) * 1000000 + tonumber(time[2]), agent == name and 1 or 0,
  tonumber(redis.call('HGET', KEYS[2], 'fence') or 0), redis.call('HGETALL', KEYS[2]),
}

-- The driver: does a batch of requests in order, each by its policy. Its counterpart is
-- stores/redis/wire.py.
--
-- KEYS     one a request; a key may come twice and then sees what came before
-- ARGV[1]  the time, in microseconds since 1970, after which nothing is to be done; 0: none
-- ARGV[2]  where in ARGV the requests begin
-- ARGV     then the policies, packed; then for each key, P being where its policy lies in ARGV:
--            P                        a hit of cost 1
--            hit P cost, peek P cost, charge P cost      costs are at most 2^53
--            attempt P cost patience  a hit whose refusal is no violation; it may not wait for
--                                     its place for longer than patience, -1 if it may
--            reserve P cost patience  of a bucket: take for later, at most that much later
--            refund P cost s ns kept  s and ns are the mark of the decision that took it, s -1
--                                     if that is not known; kept, the units that stay taken
--            cancel P cost s ns kept  the same for what was reserved
--            reset
--            all n                    a group: the next n keys' requests, each a hit of its
--                                     own key or an
--                                     attempt, pass as a whole or not at all
--
-- Answers the server's time in microseconds. If that is not after ARGV[1], then for each key
--   for a plain bucket's hits and looks  tat - now, as it was before; -1 - that if refused
--   for others  {1 allowed + 2 overrun, room, reset, mark - now}, then retry (-1: never) if
--               it was refused; all of these, delay and unit, if delay is not 0 or unit
--               not the policy's
--               for a reservation all of these
--   for charge, refund, cancel and reset 1
--   'refresh' where the policy's windows do not cover the server's time; nothing was done
--   {that} for a member that would have passed, of a group that did not: what a look tells
--   'spared' for the others of a group in which one had an error
--   an error where the key's value is not one of ours, or could not be written; DAMAGED where
--   it was ours and made no sense: then it was forgotten, and must be asked for anew
-- Nothing is left behind that means nothing: what has run out is deleted, the rest expires.

local deadline = tonumber(ARGV[1])
if deadline > 0 and time_us > deadline then
  return {time_us}
end

local answers, at, index = {time_us}, tonumber(ARGV[2]), 1
while index <= #KEYS do
  local key, word, answer = KEYS[index], ARGV[at], nil
  if word == 'hit' or word == 'peek' then
    answer = ask(policy_at(ARGV[at + 1]), key, tonumber(ARGV[at + 2]), word == 'hit' and HIT)
    at = at + 3
  elseif word == 'attempt' then
    local patience = tonumber(ARGV[at + 3])
    answer = ask(policy_at(ARGV[at + 1]), key, tonumber(ARGV[at + 2]), ATTEMPT,
      patience >= 0 and patience)
    at = at + 4
  elseif word == 'reserve' then
    answer = ask(policy_at(ARGV[at + 1]), key, tonumber(ARGV[at + 2]), RESERVE,
      tonumber(ARGV[at + 3]))
    at = at + 4
  elseif word == 'charge' or word == 'refund' or word == 'cancel' then
    answer = book(policy_at(ARGV[at + 1]), key, word, at + 2)
    at = at + (word == 'charge' and 3 or 6)
  elseif word == 'reset' then
    answer = forget(key) or 1
    at = at + 1
  elseif word == 'all' then
    local size = tonumber(ARGV[at + 1])
    at = all(answers, index, size, at + 2)
    index = index + size - 1
    answer = answers[index + 1] -- of its last member: it has answered for all of them
  else
    answer = ask(policy_at(word), key, 1, HIT)
    at = at + 1
  end
  index = index + 1
  answers[index] = answer
end
return answers

-- Hits that pass as a whole or not at all: twin of hit_each in stores/_pure.py.
--
-- Every member is decided on once, as a hit, on a row of its own. Then the rows of all are
-- stored; or if some refused, only those of these, which took nothing, but a lockout wants
-- to know. If one fails, nothing of the group stays written.
--
-- The members' keys begin at KEYS[first], their arguments at ARGV[at]. Fills in their
-- answers, and returns where their arguments end.
local function all(answers, first, size, at)
  local members, outdated = {}, false
  for number = 1, size do
    local place, cost, take = ARGV[at], 1, HIT
    if place == 'hit' or place == 'attempt' then
      take = place == 'hit' and HIT or ATTEMPT
      place, cost = ARGV[at + 1], tonumber(ARGV[at + 2])
      at = at + (take == HIT and 2 or 3)
    end
    at = at + 1
    local p = policy_at(place)
    local key = KEYS[first + number - 1]
    members[number] = {p = p, cost = cost, take = take, key = key, row = {}, out = {}}
    outdated = outdated or p.outdated
  end

  local passed, culprit, failed = not outdated, nil, nil
  for number, member in ipairs(outdated and {} or members) do
    member.value, failed = fetch(member.p, member.row, member.key)
    if failed then
      passed, culprit = false, number
      break
    end
    member.finish = finish_of(member.row)
    passed = decide(member.p, member.row, member.cost, member.take, member.out) and passed
    if is_damaged(member.row) then
      passed, culprit, failed = false, number, damaged(member.key)
      break
    end
  end

  for number, member in ipairs(culprit and {} or members) do
    if member.row.dirty and (passed or not member.out.allowed) then
      failed = store(member.p, member.row, member.key, member.value)
      if failed then
        culprit = number
        break
      end
      member.written = true
    end
  end

  for number, member in ipairs(members) do
    local answer = 'spared'
    if outdated then
      answer = 'refresh'
    elseif number == culprit then
      answer = failed
    elseif culprit and member.written then
      if member.value then
        put(member.key, member.value, member.finish)
      else
        forget(member.key)
      end
    elseif not culprit and (passed or not member.out.allowed) then
      answer = reply(member.p, member.out)
    elseif not culprit then
      -- What it would have been: decided once more, as a look at what is still there.
      fill(member.p, member.row, member.value)
      decide(member.p, member.row, member.cost, false, member.out)
      answer = {reply(member.p, member.out)}
    end
    answers[first + number] = answer
  end
  return at
end

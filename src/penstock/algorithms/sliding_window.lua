-- Twin of sliding_window.py. Words: end sum newest counter1 ... counterN
--
-- Exact: 4 * (amount + overrun) * ticks is below 2^52, so every weight is. For that the
-- policy's shift is worked out for 52 bits, where Python has 62: where the two shifts
-- differ, ticks here are coarser and cells wider by less than one tick. The memory,
-- (cells + 1) * width, is below 2^56, with a shift of at least 3 where it is above 2^53.

local function read(text, at)
  local amount, cells, most_used, tick, ticks, round_by, after = words('<dddddd', text, at)
  local width = ticks * tick
  return {
    most = amount, unit = 1, amount = amount, cells = cells, most_used = most_used,
    tick = tick, ticks = ticks, width = width, memory = (cells + 1) * width,
    round_by = round_by,
    counters = '<' .. string.rep('d', cells + 1),
  }, after
end

-- row = {end, sum, newest, ring}; counters are numbered from 1 on here
local function load(p, row, value, at, shift)
  row.dirty = false
  if not value then
    local ring = {}
    for index = 1, p.cells + 1 do
      ring[index] = 0
    end
    row[1], row[2], row[3], row[4] = NONE, 0, 1, ring
    return true
  end
  if #value ~= at + 8 * (4 + p.cells) - 1 then
    return false
  end
  local finish, sum, newest, after = words('<ddd', value, at)
  row[1], row[2], row[3] = finish + shift, sum, newest
  local ring = {words(p.counters, value, after)}
  row[4] = ring
  if not (is_time(row[1]) and is_count(newest) and newest >= 1 and newest <= p.cells + 1) then
    return nil
  end
  -- The sum is of all but the one that slides out.
  for index = 1, p.cells + 1 do
    local count = ring[index]
    if not (count >= 0 and count <= MOST_COUNT and count % 1 == 0) then
      return nil -- a call of is_count for each cell would be felt
    end
    sum = sum - count
  end
  return sum + ring[newest % (p.cells + 1) + 1] == 0 or nil
end

local function save(p, row, before)
  local own = pack('<c0ddd', before, row[1] + elapsed, row[2], row[3])
  return own .. pack(p.counters, unpack(row[4], 1, p.cells + 1))
end

-- The counters lie in a ring.
local function place(p, index)
  return (index - 1) % (p.cells + 1) + 1
end

-- When the newest cell began; a new key's begins now.
local function began(p, row, now)
  if row[1] <= now then
    return now
  end
  local begin = row[1] - p.memory
  return begin < now and begin or now
end

-- Make the cell that holds `now` the newest one.
local function roll(p, row, now)
  local ring = row[4]
  if row[1] <= now then
    for index = 1, p.cells + 1 do
      ring[index] = 0
    end
    row[2] = 0
    row[3] = 1
    row[1] = now + p.memory
    row.dirty = true
    return
  end
  local begin = row[1] - p.memory
  if now < begin then
    row[1] = now + p.memory
    row.dirty = true
    return
  end
  while now - begin >= p.width do
    begin = begin + p.width
    row[3] = place(p, row[3] + 1)
    ring[row[3]] = 0
    row[2] = row[2] - ring[place(p, row[3] + 1)]
    -- Also of a refused hit: after a step back it must not look as if they had not passed.
    row.dirty = true
  end
  row[1] = begin + p.memory
end

-- How long until the newest counter that is not zero has slid out.
local function reset_after(p, row, begin, now)
  if row[1] <= now then
    return 0
  end
  local finish = begin + p.memory
  for age = 0, p.cells do
    if row[4][place(p, row[3] + p.cells + 1 - age)] > 0 then
      break
    end
    finish = finish - p.width
  end
  return finish > now and finish - now or 0
end

local function ticks_left(p, spare, oldest)
  if spare < 0 then
    return 0
  end
  if oldest <= spare then
    return p.ticks
  end
  return math.floor((spare * p.ticks + p.ticks - 1 - p.round_by) / oldest)
end

-- Slide forward, cell by cell, to the first tick at which `cost` fits.
local function retry_after(p, row, begin, age, full, oldest, cost, now, extra)
  local spare = p.amount + extra - cost - full
  local left = ticks_left(p, spare, oldest)
  while left == 0 and age < p.cells do
    age = age + 1
    oldest = row[4][place(p, row[3] + 1 + age)]
    spare = spare + oldest
    left = ticks_left(p, spare, oldest)
  end
  return begin + age * p.width + (p.ticks - left) * p.tick - now
end

local function decide(p, row, cost, now, extra, take, out)
  if take then
    roll(p, row, now)
  end
  local ring = row[4]
  local begin = began(p, row, now)
  local age = 0
  if now - begin >= p.width then
    age = math.floor((now - begin) / p.width)
  end
  local full, oldest = row[2], ring[place(p, row[3] + 1)]
  if row[1] <= now then
    full, oldest = 0, 0
  else
    for step = 1, age do
      oldest = ring[place(p, row[3] + 1 + step)]
      full = full - oldest
    end
  end
  local left = p.ticks - math.floor((now - begin - age * p.width) / p.tick)
  local used = full + math.floor((oldest * left + p.round_by) / p.ticks)
  out.unit = 1
  out.delay = 0
  out.mark = now
  if used + cost <= p.amount + extra then
    if take then
      ring[row[3]] = ring[row[3]] + cost
      row[2] = row[2] + cost
      row.dirty = true
      used = used + cost
    end
    out.allowed = true
    out.retry = 0
    out.room = p.amount - used
    out.reset = reset_after(p, row, begin, now)
    return true
  end
  out.allowed = false
  out.room = p.amount - used
  out.reset = reset_after(p, row, begin, now)
  out.retry = retry_after(p, row, begin, age, full, oldest, cost, now, extra)
  return false
end

-- Where there is more than can be counted, the oldest is forgotten: see Python.
local function charge(p, row, cost, now)
  roll(p, row, now)
  if cost > p.most_used then
    cost = p.most_used
  end
  local over = row[2] + cost - p.most_used
  if over > 0 then
    for age = p.cells - 1, 0, -1 do
      local cell = place(p, row[3] + p.cells + 1 - age)
      local back = over < row[4][cell] and over or row[4][cell]
      row[4][cell] = row[4][cell] - back
      row[2] = row[2] - back
      over = over - back
    end
  end
  row[4][row[3]] = row[4][row[3]] + cost
  row[2] = row[2] + cost
  row.dirty = true
end

-- From the cell that took it, or from the newest ones if that is not known.
local function refund(p, row, cost, now, mark, kept)
  if row[1] <= now then
    return
  end
  roll(p, row, now)
  row.dirty = true
  local begin = row[1] - p.memory
  for age = 0, p.cells do
    if mark == nil or mark >= begin then
      local cell = place(p, row[3] + p.cells + 1 - age)
      local back = cost < row[4][cell] and cost or row[4][cell]
      row[4][cell] = row[4][cell] - back
      cost = cost - back
      if age < p.cells then
        row[2] = row[2] - back
      end
      if mark ~= nil or cost == 0 then
        return
      end
    end
    begin = begin - p.width
  end
end

return {
  letter = 'W', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}

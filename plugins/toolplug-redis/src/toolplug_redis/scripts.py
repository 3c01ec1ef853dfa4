"""The scripts that run in the server, each atomic and on the keys of one record or one index.

Of a record with the key KEY in bucket BB there are: `PREFIX:{BB}:r:KEY`, a hash of its value `v`, revision `n`, end of
the log `p`, beginning of the log `o` and expiry `e`; `…:l:KEY`, a stream of its log, whose ids are positions; and for
an hour after a removal `…:t:KEY`, the revision and position above which a new record begins. Of a bucket there are two
sorted sets of keys: `PREFIX:{BB}:i`, all with the score 0, and `PREFIX:{BB}:x`, those that expire, by time.

The server expires records by itself, and an expired key leaves the index with a later change in the bucket. `e` is
compared too, since a test may set the clock. Times are milliseconds, empty for the server's clock; numbers are written
by `%.0f`, as Lua's own conversion has 14 digits.
"""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple


class Script(NamedTuple):
    """A script and its SHA-1, by which the server knows it once it was loaded."""

    text: str
    sha: str


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_CLOCK = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
"""

CHANGE = _script(
    _CLOCK
    + """
-- KEYS: record, log, index, expiries, left. ARGV: now, operation, key, expected, ttl, kept, inline, store, channel,
-- value, events…  Returns {revision, position}, with revision 0 for no record, or {revision} for a conflict.
local record, log, index, expiries, left = unpack(KEYS)
local operation, key, value = ARGV[2], ARGV[3], ARGV[10]
local expected, ttl, kept, inline = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local FIRST_EVENT, EPOCH_MS, LEFT_MS = 11, 1767225600000, 3600000

local function text(number) return string.format('%.0f', number) end

local function publish(revision, value, first)
  local lengths, total = {}, 0
  for i = FIRST_EVENT, #ARGV do
    lengths[#lengths + 1] = #ARGV[i]
    total = total + #ARGV[i]
  end
  local has_value, has_events = value and #value <= inline, total <= inline
  local header = {ARGV[8], #key, text(revision), has_value and #value or -1, text(first), has_events and 1 or 0}
  local body = {key, has_value and value or ''}
  if has_events then
    for i, length in ipairs(lengths) do
      header[#header + 1] = length
      body[#body + 1] = ARGV[FIRST_EVENT + i - 1]
    end
  end
  local message = table.concat(header, ' ') .. '\\n' .. table.concat(body)
  redis.call('PUBLISH', ARGV[9], message)
end

local head = redis.call('HMGET', record, 'n', 'p', 'e')
local revision, position, expires = tonumber(head[1]), tonumber(head[2]), tonumber(head[3])
local old_revision, old_position = revision or 0, position or 0
if expires and expires <= now then
  revision, expires = nil, nil
end
if expected and expected ~= (revision or 0) then return {revision or 0} end
if not revision and operation ~= 'write' then return {0, 0} end
if operation == 'extend' and not ttl and #ARGV < FIRST_EVENT then return {revision, position} end

if operation == 'remove' then
  revision = revision + 1
  -- DEL comes first, as a full server refuses a script whose first change needs memory.
  redis.call('DEL', record, log)
  redis.call('SET', left, text(revision) .. ' ' .. text(position), 'PX', LEFT_MS)
  redis.call('ZREM', index, key)
  redis.call('ZREM', expiries, key)
  publish(0, nil, 0)
  return {revision, position}
end

if not revision then
  local least_revision, least_position = string.match(redis.call('GET', left) or '0 0', '(%d+) (%d+)')
  revision = math.max(now * 1024, tonumber(least_revision), old_revision)
  position = math.max(now - EPOCH_MS, tonumber(least_position), old_position) + 1
  redis.call('HSET', record, 'o', text(position))
  redis.call('HDEL', record, 'e')
  redis.call('DEL', log)
  redis.call('ZADD', index, 0, key)
end
local first = position + 1
for i = FIRST_EVENT, #ARGV do
  position = position + 1
  redis.call('XADD', log, 'MAXLEN', kept, text(position) .. '-0', 'd', ARGV[i])
end
if operation == 'write' then
  revision = revision + 1
  redis.call('HSET', record, 'v', value, 'n', text(revision), 'p', text(position))
else
  redis.call('HSET', record, 'p', text(position))
end
if ttl then
  expires = now + ttl
  redis.call('HSET', record, 'e', text(expires))
  redis.call('ZADD', expiries, text(expires), key)
elseif operation == 'write' then
  expires = nil
  redis.call('HDEL', record, 'e')
  redis.call('ZREM', expiries, key)
end
for _, name in ipairs({record, log}) do
  if expires then
    redis.call('PEXPIRE', name, text(expires - now))
  else
    redis.call('PERSIST', name)
  end
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', text(now), 'LIMIT', 0, 20)) do
  redis.call('ZREM', index, gone)
  redis.call('ZREM', expiries, gone)
end
if operation == 'write' or #ARGV >= FIRST_EVENT then
  publish(revision, operation == 'write' and value or nil, first)
end
return {revision, position}
"""
)

EVENTS = _script(
    _CLOCK
    + """
-- KEYS: record, log. ARGV: now, after, limit. Returns {}, or {1, id, data, id, data…}.
local head = redis.call('HMGET', KEYS[1], 'p', 'o', 'e')
local position, origin, expires = tonumber(head[1]), tonumber(head[2]), tonumber(head[3])
if not position or (expires and expires <= now) then return {} end
local kept = redis.call('XLEN', KEYS[2])
local after = tonumber(ARGV[2])
if not after then
  after = position - kept
elseif after > position or after < origin or (position - origin > kept and after <= position - kept) then
  return {}
end
local page = {1}
if after < position then
  local from = string.format('%.0f', after + 1) .. '-0'
  for _, entry in ipairs(redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', ARGV[3])) do
    page[#page + 1] = entry[1]
    page[#page + 1] = entry[2][2]
  end
end
return page
"""
)

KEYS = _script(
    _CLOCK
    + """
-- KEYS: index, expiries. ARGV: now, first, last, limit. Returns {1 if there may be more, key…}.
local first, limit = ARGV[2], tonumber(ARGV[4])
local found = {1}
while #found <= limit do
  local page = redis.call('ZRANGEBYLEX', KEYS[1], first, ARGV[3], 'LIMIT', 0, limit)
  for _, key in ipairs(page) do
    local expires = redis.call('ZSCORE', KEYS[2], key)
    if not expires or tonumber(expires) > now then found[#found + 1] = key end
  end
  if #page < limit then
    found[1] = 0
    break
  end
  first = '(' .. page[#page]
end
return found
"""
)

REVISIONS = _script(
    _CLOCK
    + """
-- KEYS: records. ARGV: now. Returns the revision of each, 0 for none.
local revisions = {}
for i, record in ipairs(KEYS) do
  local head = redis.call('HMGET', record, 'n', 'e')
  local expires = tonumber(head[2])
  revisions[i] = (expires and expires <= now) and 0 or tonumber(head[1]) or 0
end
return revisions
"""
)

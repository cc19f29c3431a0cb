-- Which conversation a request without a session header belongs to. For docs/haproxy.cfg.
--
-- prompt_cache_key, a session id inside metadata.user_id, or else the opening: what stands before the
-- first message of the user and that message, cut where the message ends. What follows it grows from
-- turn to turn, so none of it may be in the key.

local AROUND = 600 -- bytes looked at before and behind the place

-- Where the text of a JSON string ends: the place behind its closing quote.
local function behind_string(body, at, limit)
  while at <= limit do
    local from = body:find('["\\]', at)
    if not from then return limit + 1 end
    if body:byte(from) == 34 then return from + 1 end
    at = from + 2 -- an escaped character
  end
  return at
end

-- Where the object ends that the place `at` lies in, but not beyond `limit`.
local function end_of_object(body, at, limit)
  local depth = 1
  while at <= limit do
    local from = body:find('[{}"]', at)
    if not from or from > limit then return limit end
    local char = body:sub(from, from)
    if char == '"' then
      at = behind_string(body, from + 1, limit)
    else
      depth = depth + (char == '{' and 1 or -1)
      if depth == 0 then return from end
      at = from + 1
    end
  end
  return limit
end

-- The session id in the JSON text of metadata.user_id, and in no other text.
local function named_session(body)
  local _, from = body:find('"metadata"%s*:%s*{[^{}]-"user_id"%s*:%s*"')
  if not from then return nil end
  local user = body:sub(from + 1, behind_string(body, from + 1, #body))
  return user:match('session_id\\*"%s*:%s*\\*"([%w%-_]+)')
end

core.register_fetches("flash_key", function(txn)
  local body = txn.f:req_body()
  if body == nil or #body == 0 then return "" end
  local key = body:match('"prompt_cache_key"%s*:%s*"([^"]+)"')
  if key then return "k:" .. key end
  key = named_session(body)
  if key then return "s:" .. key end
  local at = body:find('"role"%s*:%s*"user"')
  if at then
    local stop = end_of_object(body, at, math.min(#body, at + AROUND))
    return "u:" .. txn.c:xxh64(body:sub(math.max(1, at - AROUND), stop))
  end
  at = body:find('"input"%s*:') or body:find('"prompt"%s*:')
  if at then return "i:" .. txn.c:xxh64(body:sub(at, at + AROUND)) end
  return ""
end)

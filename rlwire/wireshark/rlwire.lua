-- Wireshark dissectors for RLX, RLlink and PERLERT.
--
-- A parser turns the bytes of a message into a tree of nodes, and `show` adds the nodes to Wireshark's
-- tree. Parsers compare each size with the bytes that are left before they use it. `fail` ends a parser:
-- what it has read is shown, and an expert info names the offset and the path.
--
-- A node has a kind (a key of `generic`), a value, offset and size, a key, its parent `up`, and its entries
-- as a sequence. An array has dtype, shape and first values, as texts.

local MESSAGE = 64 * 2 ^ 20 -- bytes of a message; Wireshark does not collect a longer one
local VALUES = 65536 -- values of a message that are read
local ENTRIES = 100 -- entries of a list or dictionary that are shown
local DEPTH = 64 -- levels of lists and dictionaries
local FIRST = 32 -- values of an array that are shown; also the most dimensions

local MAKERS = { -- of the field of a kind
    int = "int64", real = "double", text = "string", bool = "bool", null = "none",
    array = "string", list = "uint32", dict = "uint32",
}

-- Makes a protocol's fields of "path:kind ..."; a field has the name of its path's last word.
local function fields(proto, text)
    local own, all = {}, {}
    for path, kind in text:gmatch("(%S+):(%a+)") do
        local word = path:match("[^.]+$")
        own[path] = { kind = kind, field = ProtoField[MAKERS[kind]](proto.name:lower() .. "." .. word, word) }
        all[#all + 1] = own[path].field
    end
    proto.fields = all
    return own
end

local base = Proto("rlwire", "rlwire's values")
local generic = fields(base, "int:int real:real text:text bool:bool null:null array:array list:list "
    .. "dict:dict path:text dtype:text shape:text first:text")
local damaged = ProtoExpert.new("rlwire.damaged", "Damaged message", expert.group.MALFORMED,
    expert.severity.ERROR)
local unread = ProtoExpert.new("rlwire.unread", "Message over a limit of the dissector",
    expert.group.UNDECODED, expert.severity.WARN)
base.experts = { damaged, unread }

-- Reading

local function fail(at, text, ...) error({ at = at, text = text:format(...), info = damaged }, 0) end
local function over(at, text, ...) error({ at = at, text = text:format(...), info = unread }, 0) end

-- Moves past `size` bytes and returns their offset.
local function take(c, size, what)
    local at = c.at
    if size > c.stop - at then fail(at, "%s needs %.0f bytes, %d are left", what, size, c.stop - at) end
    c.at = at + size
    return at
end

local function unpack_one(c, format, what)
    return (Struct.unpack(format, c.s, take(c, Struct.size(format), what) + 1))
end

local UTF8 = { -- characters of more than one byte
    "[\194-\223][\128-\191]", "\224[\160-\191][\128-\191]", "[\225-\236\238\239][\128-\191][\128-\191]",
    "\237[\128-\159][\128-\191]", "\240[\144-\191][\128-\191][\128-\191]",
    "[\241-\243][\128-\191][\128-\191][\128-\191]", "\244[\128-\143][\128-\191][\128-\191]",
}

local function text_of(c, size, what)
    local at = take(c, size, what)
    local text = c.s:sub(at + 1, at + size)
    local rest = text
    for _, pattern in ipairs(rest:find("[\128-\255]") and UTF8 or {}) do rest = rest:gsub(pattern, " ") end
    if rest:find("[\128-\255]") then fail(at, "%s is not UTF-8", what) end
    return text
end

local function check_count(c, count, least, what)
    if count * least > c.stop - c.at then
        fail(c.at, "%s of %.0f entries, %d bytes are left", what, count, c.stop - c.at)
    end
    return count
end

-- Adds an entry to `up`. Its kind and value are what read(c, entry, ...) returns.
local function add(c, up, key, at, read, ...)
    local made = { at = at, key = key, up = up, depth = up.depth + 1 }
    if c.values == VALUES then over(c.at, "more than %d values", VALUES) end
    c.values = c.values + 1
    if made.depth > DEPTH then over(c.at, "more than %d levels", DEPTH) end
    up[#up + 1], c.last = made, made
    made.kind, made.value = read(c, made, ...)
    made.size, c.last = c.at - at, up
    return made
end

local function path_of(node)
    if not node.up then return "" end
    local before, key = path_of(node.up), node.key
    if type(key) == "number" then return ("%s[%d]"):format(before, key) end
    return before == "" and key or before .. "." .. key
end

-- An integer as text: tostring(3.0) depends on Lua's version.
local function plain(value) return type(value) == "number" and ("%.0f"):format(value) or tostring(value) end

local FORMATS = {
    b1 = "I1", i1 = "i1", i2 = "i2", i4 = "i4", i8 = "e",
    u1 = "I1", u2 = "I2", u4 = "I4", u8 = "E", f4 = "f", f8 = "d",
}
local DTYPES = {
    bool = "b1", int8 = "i1", int16 = "i2", int32 = "i4", int64 = "i8", uint8 = "u1", uint16 = "u2",
    uint32 = "u4", uint64 = "u8", float16 = "f2", float32 = "f4", float64 = "f8", complex64 = "c8",
    complex128 = "c16",
}

-- Reads an array's first values and compares its size. A dtype is ">f4", "float32" or "bool"; of others the
-- first bytes are shown.
local function array(c, made, dtype, shape, at, size)
    made.dtype, made.shape, made.first = dtype, shape, {}
    local order, code = dtype:match("^([<>=|]?)([biufc]%d+)$")
    code = code or DTYPES[dtype]
    local item, format = code and tonumber(code:sub(2)), FORMATS[code or ""]
    local kind = code and code:sub(1, 1)
    local count = size / (format and item or 1)
    for i = 0, math.min(FIRST, math.floor(count)) - 1 do
        local value = ("%02x"):format(c.s:byte(at + i + 1))
        if format then
            value = Struct.unpack((order == ">" and ">" or "<") .. format, c.s, at + i * item + 1)
            value = kind == "b" and tostring(value ~= 0) or kind ~= "f" and plain(value)
                or (item == 4 and "%.7g" or "%.15g"):format(value)
        end
        made.first[i + 1] = value
    end
    made.more = count > FIRST
    local wanted = item
    for _, n in ipairs(shape) do wanted = item and wanted * (tonumber(n) or 0) end
    if wanted and wanted ~= size then
        fail(at, "%s (%s) has %.0f bytes, not %.0f", dtype, table.concat(shape, ", "), size, wanted)
    end
    return "array"
end

-- Showing

local function cut(text, most)
    local short = #text <= most and text or text:sub(1, most):gsub("[\192-\255][\128-\191]*$", "") .. "..."
    return (short:gsub("%c", " "))
end

local function brief(node, depth)
    local kind, value = node.kind, node.value
    if kind == "array" then
        local first = table.concat(node.first, ", ", 1, math.min(4, #node.first))
        local more = (node.more or #node.first > 4) and ", ..." or ""
        local shape = #node.shape > 0 and " (" .. table.concat(node.shape, ", ") .. ")" or ""
        return ("%s%s %s%s"):format(node.dtype, shape, first, more)
    elseif kind == "list" or kind == "dict" then
        local parts = {}
        for i = 1, depth > 0 and math.min(#node, depth > 2 and 12 or 6) or 0 do
            parts[i] = (kind == "dict" and node[i].key .. "=" or "") .. brief(node[i], depth - 1)
        end
        if #node > #parts then parts[#parts + 1] = ("%d in all"):format(#node) end
        return (kind == "dict" and "{%s}" or "[%s]"):format(table.concat(parts, ", "))
    elseif value == nil then
        return kind or "?"
    end
    return kind == "text" and cut(value, 60) or kind == "real" and ("%.15g"):format(value) or plain(value)
end

-- Returns a range that lies within the buffer: a fault may be at its end.
local function range_of(tvb, at, size)
    at = math.min(at, math.max(tvb:len() - 1, 0))
    return tvb:range(at, math.min(size or tvb:len(), tvb:len() - at))
end

-- Adds a node. `own` has the fields that a protocol gives to paths.
local function show(tree, tvb, node, own)
    if not node.size and #node > 0 then -- damaged within
        node.kind = type(node[1].key) == "number" and "list" or "dict"
    end
    local path, kind, value = path_of(node), node.kind, node.value
    local mine = own[path] or {}
    if mine.kind == "real" and kind == "int" then kind, value = "real", tonumber(plain(value)) end
    local range = range_of(tvb, node.at, node.size)
    if kind == "list" or kind == "dict" then value = #node end
    if kind == "array" then value = brief(node, 0) end
    if kind == "text" then value = cut(value, 4096) end
    if kind == "int" then
        value = type(value) == "number" and Int64.new(value) or Int64.new(value:lower(), value:higher())
    end
    local field = (kind and mine.kind == kind and mine or generic[kind or "null"]).field
    local item = value == nil and tree:add(field, range) or tree:add(field, range, value)
    local index = type(node.key) == "number"
    item:set_text((index and ("[%d]: "):format(node.key) or node.key .. ": ") .. brief(node, 1))
    local function note(name, text) item:add(generic[name].field, range, text):set_generated() end
    if not index then note("path", path) end
    if kind == "array" then
        note("dtype", node.dtype)
        note("shape", "(" .. table.concat(node.shape, ", ") .. ")")
        note("first", table.concat(node.first, ", ") .. (node.more and ", ..." or ""))
    end
    for i = 1, math.min(#node, ENTRIES) do show(item, tvb, node[i], own) end
    if #node > ENTRIES then item:add(range, ("%d more are not shown"):format(#node - ENTRIES)) end
end

-- Returns a dissector of a message: parse(c, root) reads it, and what it has read is shown.
local function dissector(proto, parse, own)
    return function(tvb, pinfo, tree)
        local root = { kind = "dict", depth = 0 }
        local c = { s = tvb:raw(0, tvb:len()), at = 0, stop = tvb:len(), values = 0, last = root, pinfo = pinfo }
        local well, fault = pcall(parse, c, root)
        if not well and type(fault) ~= "table" then error(fault, 0) end -- a mistake of this file
        local item = tree:add(proto, tvb:range())
        for i = 1, math.min(#root, ENTRIES) do show(item, tvb, root[i], own) end
        local text = cut(brief(root, 3):sub(2, -2), 200)
        if not well then
            local path = path_of(c.last)
            local place = path == "" and "" or ", in " .. path
            local words = cut(("%s at offset %d%s"):format(fault.text, fault.at, place), 200)
            item:add(range_of(tvb, fault.at), words):add_proto_expert_info(fault.info, words)
            text = ("%s [%s]"):format(text, words)
        end
        item:append_text(": " .. text)
        pinfo.cols.protocol:clear_fence()
        pinfo.cols.protocol:set(proto.name)
        pinfo.cols.info:set(text .. "  ")
        pinfo.cols.info:fence() -- other messages of the packet follow
        return tvb:len()
    end
end

-- Registers a dissector for the ports of a preference, and for others where a message begins with a pattern.
local function register(proto, kind, ports, patterns)
    local tables, current = DissectorTable.get(kind .. ".port"), ""
    proto.prefs.ports = Pref.range("Ports", ports, "Ports of " .. proto.name, 65535)
    local function change()
        if current ~= "" then tables:remove(current, proto) end
        current = tostring(proto.prefs.ports)
        if current ~= "" then tables:add(current, proto) end
    end
    proto.prefs_changed = change
    change()
    proto:register_heuristic(kind, function(tvb, pinfo, tree)
        local bytes, found = tvb:raw(0, math.min(tvb:len(), 64)), false
        for _, pattern in ipairs(patterns) do found = found or bytes:find(pattern) end
        if not found then return false end
        pinfo.conversation = proto
        proto.dissector(tvb, pinfo, tree)
        return true
    end)
end

-- Returns a dissector of a stream of frames. A frame begins with what `pattern` matches: all of it, and the
-- digits of the body's size. `after` is the number of bytes that follow the body.
local function stream(pattern, after, dissect)
    local function size_of(tvb, _, at)
        local bytes = tvb:raw(at, math.min(20, tvb:len() - at))
        local head, digits = bytes:match(pattern)
        if not head and #bytes < 10 and bytes:find("^%d*$") then return 0 end -- more are needed
        if not head or tonumber(digits) > MESSAGE then return tvb:len() - at end
        return #head + tonumber(digits) + after
    end
    return function(tvb, _, tree)
        dissect_tcp_pdus(tvb, tree, 1, size_of, dissect)
        return tvb:len()
    end
end

-- RLX: netstrings with keys and typed values

local rlx = Proto("RLX", "RELAAX's Reinforcement Learning eXchange")

local function u32(c, what) return unpack_one(c, "<I4", what) end
local function rlx_text(c, what) return text_of(c, u32(c, what), what) end
local rlx_value

local function rlx_entry(c, up)
    local at = c.at
    add(c, up, rlx_text(c, "a key"), at, rlx_value)
end

local RLX = {
    [0] = { "null" }, { "null" }, { "int", "<i4" }, { "text" }, { "real", "<d" }, { "bool", "B" }, { "image" },
    { "array" }, { "list" }, { "int", "<I4" }, { "int", "<e" }, { "dict" },
}

function rlx_value(c, made)
    local type = unpack_one(c, "B", "a type")
    if not RLX[type] then fail(c.at - 1, "unknown type %d", type) end
    local kind, format = RLX[type][1], RLX[type][2]
    if format then
        local value = unpack_one(c, format, "a value")
        if kind ~= "bool" then return kind, value end
        if value > 1 then fail(c.at - 1, "a boolean of %d", value) end
        return kind, value == 1
    elseif kind == "text" then
        return kind, rlx_text(c, "a text")
    elseif kind == "list" then
        for i = 0, check_count(c, u32(c, kind), 1, kind) - 1 do add(c, made, i, c.at, rlx_value) end
    elseif kind == "dict" then
        for _ = 1, check_count(c, u32(c, kind), 5, kind) do rlx_entry(c, made) end
    elseif kind ~= "null" then
        local dtype, dims, shape = rlx_text(c, "a dtype"), kind == "image" and 2 or u32(c, "dimensions"), {}
        if dims > FIRST then fail(c.at - 4, "%.0f dimensions, over %d", dims, FIRST) end
        for i = 1, dims do shape[i] = plain(u32(c, "a dimension")) end
        if kind == "image" then dtype, shape = "image " .. dtype, { shape[2], shape[1] } end
        local size = u32(c, "a size")
        return array(c, made, dtype, shape, take(c, size, kind), size)
    end
    return kind
end

local function rlx_message(c, root)
    local head, digits = c.s:match("^((%d+):)")
    if not head then fail(0, "no size of a message") end
    if tonumber(digits) > MESSAGE then over(0, "a message of %s bytes", digits) end
    local stop = #head + tonumber(digits)
    c.at, c.stop = #head, math.min(c.stop, stop)
    if c.s:find("^0%d") then fail(0, "a size with a leading zero") end
    local version = u32(c, "the version")
    if version ~= 1 then fail(c.at - 4, "version %.0f, not 1", version) end
    while c.at < c.stop do rlx_entry(c, root) end
    if c.s:sub(stop + 1, stop + 1) ~= "," then fail(c.stop, "no comma ends the message") end
end

local rlx_own = fields(rlx, "command:text response:text message:text exploit:bool reward:real terminal:bool")
rlx.dissector = stream("^((%d+):)", 1, dissector(rlx, rlx_message, rlx_own))
register(rlx, "tcp", "7001", { "^[1-9]%d*:\1%z%z%z" })

-- RLlink: eight digits and a map in JSON or MessagePack, which Wireshark's own dissectors show

local rllink = Proto("RLlink", "RLlib's RLlink")
local rllink_type = ProtoField.string("rllink.type", "type")
rllink.fields = { rllink_type }

local function rllink_message(tvb, pinfo, tree)
    local text = tvb:raw(0, math.min(tvb:len(), 4096))
    local size, at = text:match("\164type([\160-\191])()")
    local kind = size and text:sub(at, at + size:byte() - 161) or text:match('"type"%s*:%s*"([^"]*)"')
    local item = tree:add(rllink, tvb:range())
    if kind then item:add(rllink_type, tvb:range(), kind) end
    item:append_text(": " .. (kind or "a message that has no type"))
    if kind then Dissector.get(size and "msgpack" or "json"):call(tvb:range(8):tvb(), pinfo, tree) end
    pinfo.cols.protocol:set("RLlink")
    pinfo.cols.info:set(kind or "")
    return tvb:len()
end

rllink.dissector = stream("^((%d%d%d%d%d%d%d%d))", 0, rllink_message)
register(rllink, "tcp", "5555", { "^%d%d%d%d%d%d%d%d[{\128-\143].?type" })

-- PERLERT: datagrams of text. A word in capitals is a field.

local perlert = Proto("PERLERT", "Protocol for Evaluating Reinforcement Learning Environments in Real Time")
local PERLERT = {
    { "lobby", "NAME:NUMBER;lobby" },
    { "register", "NAME:NUMBER;register=KEY,TAG" },
    { "ready", "NAME:NUMBER;ready=KEY,READY" },
    { "action", "NAME:NUMBER;action=ACTION" },
    { "registered", "NAME:NUMBER;registered=KEY" },
    { "message", "NAME:NUMBER;message=MESSAGE" },
    { "start", "NAME:NUMBER;start=port:PORT" },
    { "step", "NAME:NUMBER:TIMESTAMP:STEP;obs=OBSERVATION;reward=REWARD;done=DONE" },
    { "step", "NAME:NUMBER:TIMESTAMP:STEP;obs=OBSERVATION;reward=REWARD;done=DONE;extra=EXTRA" },
    { "slots", "NAME:NUMBER;SLOTS" },
}
local CLASSES = { ACTION = "[^:;=]*", TAG = "[^;,=]*", MESSAGE = ".*", OBSERVATION = "[^;=]*", REWARD = "[^;=]*", EXTRA = "[^;=]*",
    SLOTS = "[^:;,=]*=[oc][^:;,=]*,.*" }
local FLAGS = { ["true"] = true, ["false"] = false }
local perlert_own = fields(perlert, "kind:text name:text number:int timestamp:int step:int key:text tag:text "
    .. "ready:bool action:text message:text port:int observation:text reward:real done:bool extra:text slots:text")

local function perlert_value(c, _, kind, text)
    text = text_of(c, #text, "a field")
    if kind == "bool" then return kind, FLAGS[text] end
    if kind == "text" or not tonumber(text) then return "text", text end
    return kind, tonumber(text)
end

-- Reads a datagram as far as it has a form. Returns whether it has all of it.
local function read_form(c, root, kind, form)
    for i = #root, 1, -1 do root[i] = nil end
    c.at = 0
    add(c, root, "kind", 0, function() return "text", kind end)
    for word, literal in form:gmatch("(%u*)([^%u]*)") do
        local key = word:lower()
        if word ~= "" then
            local its = perlert_own[key].kind
            local text = c.s:match("^" .. (CLASSES[word] or its == "int" and "%d+" or "[^:;,=]*"), c.at + 1)
            if not text or its == "bool" and FLAGS[text] == nil then return false end
            add(c, root, key, c.at, perlert_value, its, text)
        end
        for char in literal:gmatch(".") do
            if c.s:sub(c.at + 1, c.at + 1) ~= char then return false end
            c.at = c.at + 1
        end
    end
    return c.at == c.stop or c.s:sub(c.at + 1, c.stop) == ";"
end

local function perlert_message(c, root)
    local best, reached = nil, -1
    for _, form in ipairs(PERLERT) do
        if read_form(c, root, form[1], form[2]) then return end
        if c.at > reached then best, reached = form, c.at end
    end
    read_form(c, root, "damaged", best[2])
    fail(reached, "no message of PERLERT, or a ciphered one,")
end

perlert.dissector = dissector(perlert, perlert_message, perlert_own)
register(perlert, "udp", "32322",
    { "^[^:;,=]+:%d+;lobby;?$", "^[^:;,=]+:%d+;[^:;,=]+=", "^[^:;,=]+:%d+:%d+:%d+;obs=" })

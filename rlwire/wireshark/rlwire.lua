-- Wireshark dissectors for RLX, RLlink, PERLERT, Universe's rewarder and dm_env_rpc.
--
-- A parser turns the bytes of a message into a tree of nodes, and `show` adds the nodes to Wireshark's
-- tree. Parsers compare each size with the bytes that are left before they use it. `fail` ends a parser:
-- what it has read is shown, and an expert info names the offset and the path.
--
-- A node has a kind (a key of `generic`), a value, offset and size, a key, its parent `up`, and its entries
-- as a sequence. The value of bytes is {offset, size}. An array has dtype, shape and first values, as texts.

local MESSAGE = 64 * 2 ^ 20 -- bytes of a message; Wireshark does not collect a longer one
local VALUES = 65536 -- values of a message that are read
local ENTRIES = 100 -- entries of a list or dictionary that are shown
local DEPTH = 64 -- levels of lists and dictionaries
local FIRST = 32 -- values of an array that are shown; also the most dimensions

local MAKERS = { -- of the field of a kind
    int = "int64", real = "double", text = "string", bool = "bool", null = "none", bytes = "bytes",
    array = "string", list = "uint32", dict = "uint32", uid = "uint64",
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
local generic = fields(base, "int:int real:real text:text bool:bool null:null bytes:bytes array:array list:list "
    .. "dict:dict path:text dtype:text shape:text first:text uid:uid")
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

local function count_value(c)
    if c.values == VALUES then over(c.at, "more than %d values", VALUES) end
    c.values = c.values + 1
end

-- Adds an entry to `up`. Its kind and value are what read(c, entry, ...) returns.
local function add(c, up, key, at, read, ...)
    local made = { at = at, key = key, up = up, depth = up.depth + 1 }
    count_value(c)
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

local function find(node, path)
    for key in path:gmatch("[^.]+") do
        local found
        for _, entry in ipairs(node or {}) do found = entry.key == key and entry or found end
        node = found
    end
    return node
end

-- An integer as an Int64 or UInt64.
local function whole(class, value)
    if type(value) == "number" then return class.new(value) end
    return class.new(value:lower(), value:higher())
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

-- Reads an array's first values and compares its size, which with `one` may be that of one element. A dtype
-- is ">f4", "float32" or "bool"; of others the first bytes are shown.
local function array(c, made, dtype, shape, at, size, one)
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
    if wanted and wanted ~= size and not (one and (size == item or wanted < 0)) then
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
    return kind == "text" and cut(value, 60) or kind == "bytes" and ("%.0f bytes"):format(value[2])
        or kind == "real" and ("%.15g"):format(value) or plain(value)
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
    if kind == "int" then value = whole(Int64, value) end
    if kind == "bytes" then range, value = range_of(tvb, value[1], value[2]), nil end
    local field = (kind and mine.kind == kind and mine or generic[kind or "null"]).field
    local item = value == nil and tree:add(field, range) or tree:add(field, range, value)
    local index = type(node.key) == "number"
    item:set_text((index and ("[%d]: "):format(node.key) or node.key .. ": ") .. brief(node, 1))
    local function note(name, text) item:add(generic[name].field, range, text):set_generated() end
    if not index then note("path", path) end
    if node.uid then note("uid", node.uid) end
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
        if own.joined then pinfo.cols.info:append(" " .. text) else pinfo.cols.info:set(text .. "  ") end
        pinfo.cols.info:fence() -- other messages of the packet follow
        return tvb:len()
    end
end

-- Registers a dissector for the ports of a preference, and for others where a message begins with a pattern.
local function register(proto, kind, ports, patterns, handler)
    local tables, current = DissectorTable.get(kind .. ".port"), ""
    proto.prefs.ports = Pref.range("Ports", ports, "Ports of " .. proto.name, 65535)
    local function change()
        if current ~= "" then tables:remove(current, handler or proto) end
        current = tostring(proto.prefs.ports)
        if current ~= "" then tables:add(current, handler or proto) end
    end
    proto.prefs_changed = change
    change()
    if not patterns then return end
    proto:register_heuristic(kind, function(tvb, pinfo, tree)
        local bytes, found = tvb:raw(0, math.min(tvb:len(), 64)), false
        for _, pattern in ipairs(patterns) do found = found or bytes:find(pattern) end
        if not found then return false end
        if kind ~= "ws" then pinfo.conversation = proto end
        proto.dissector(tvb, pinfo, tree)
        return true
    end)
end

-- Returns a dissector of a stream of frames. A frame begins with what `pattern` matches: all of it, and the
-- digits of the body's size. `after` is the number of bytes that follow the body.
local function stream(proto, pattern, after, parse, own)
    local dissect = dissector(proto, function(c, root)
        local head, digits = c.s:match(pattern)
        if not head then fail(0, "no size of a message") end
        if tonumber(digits) > MESSAGE then over(0, "a message of %s bytes", digits) end
        c.at = #head
        parse(c, root, #head + tonumber(digits))
    end, own)
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

local function rlx_message(c, root, stop)
    c.stop = math.min(c.stop, stop)
    if c.s:find("^0%d") then fail(0, "a size with a leading zero") end
    local version = u32(c, "the version")
    if version ~= 1 then fail(c.at - 4, "version %.0f, not 1", version) end
    while c.at < c.stop do rlx_entry(c, root) end
    if c.s:sub(stop + 1, stop + 1) ~= "," then fail(c.stop, "no comma ends the message") end
end

local rlx_own = fields(rlx, "command:text response:text message:text exploit:bool reward:real terminal:bool")
rlx.dissector = stream(rlx, "^((%d+):)", 1, rlx_message, rlx_own)
register(rlx, "tcp", "7001", { "^[1-9]%d*:\1%z%z%z" })

-- JSON

-- Skips spaces and returns the next character, which must be one of `wanted`.
local function json_next(c, wanted)
    local at = c.s:find("[^ \t\r\n]", c.at + 1) or c.stop + 1
    local char = c.s:sub(at, at)
    c.at = at - 1
    if char == "" or wanted and not wanted:find(char, 1, true) then
        fail(c.at, "%s, expected %s", char == "" and "the end" or "another character", wanted or "a value")
    end
    return char
end

-- Reads a text, as it is written: escapes are left in it.
local function json_text(c)
    local from, at = c.at, c.at + 1
    repeat
        at = c.s:find('["\\]', at + 1)
        if not at then fail(from, "a text without an end") end
        local escape = c.s:byte(at) == 92
        if escape then at = at + 1 end
    until not escape
    c.at = from + 1
    local text = text_of(c, at - from - 2, "a text")
    c.at = at
    return text
end

local json_value

local function json_entries(c, made, close)
    c.at = c.at + 1
    local char = json_next(c)
    if char == close then c.at = c.at + 1 end
    while char ~= close do
        json_next(c, close == "}" and '"' or nil)
        local at, key = c.at, #made
        if close == "}" then
            key = json_text(c)
            json_next(c, ":")
            c.at = c.at + 1
        end
        add(c, made, key, at, json_value)
        char = json_next(c, "," .. close)
        c.at = c.at + 1
    end
    return close == "}" and "dict" or "list"
end

function json_value(c, made)
    local char = json_next(c)
    if char == '"' then return "text", json_text(c) end
    if char == "{" or char == "[" then return json_entries(c, made, char == "{" and "}" or "]") end
    local word = c.s:match("^[%w.+-]*", c.at + 1)
    local number = word:find("^%-?%d[%d.eE+-]*$") and tonumber(word)
    if not number and word ~= "true" and word ~= "false" and word ~= "null" then fail(c.at, "no value") end
    c.at = c.at + #word
    if number then return (word:find("[.eE]") or #word > 15) and "real" or "int", number end
    if word ~= "null" then return "bool", word == "true" end
    return "null"
end

-- MessagePack, with the arrays of msgpack-numpy and of openpi

local MSGPACK = { -- what follows the byte: kind, format of a number or of a size
    [0xc0] = { "null" }, [0xc2] = { "bool", false }, [0xc3] = { "bool", true },
    [0xc4] = { "bytes", ">I1" }, [0xc5] = { "bytes", ">I2" }, [0xc6] = { "bytes", ">I4" },
    [0xc7] = { "extension", ">I1" }, [0xc8] = { "extension", ">I2" }, [0xc9] = { "extension", ">I4" },
    [0xca] = { "real", ">f" }, [0xcb] = { "real", ">d" },
    [0xcc] = { "int", ">I1" }, [0xcd] = { "int", ">I2" }, [0xce] = { "int", ">I4" }, [0xcf] = { "int", ">E" },
    [0xd0] = { "int", ">i1" }, [0xd1] = { "int", ">i2" }, [0xd2] = { "int", ">i4" }, [0xd3] = { "int", ">e" },
    [0xd4] = { "extension", 1 }, [0xd5] = { "extension", 2 }, [0xd6] = { "extension", 4 },
    [0xd7] = { "extension", 8 }, [0xd8] = { "extension", 16 },
    [0xd9] = { "text", ">I1" }, [0xda] = { "text", ">I2" }, [0xdb] = { "text", ">I4" },
    [0xdc] = { "list", ">I2" }, [0xdd] = { "list", ">I4" }, [0xde] = { "dict", ">I2" }, [0xdf] = { "dict", ">I4" },
}

local function msgpack_value(c, made)
    local byte = unpack_one(c, "B", "a value")
    if byte < 0x80 or byte >= 0xe0 then return "int", byte < 0x80 and byte or byte - 256 end
    local kind, size = byte < 0x90 and "dict" or byte < 0xa0 and "list" or "text", byte % 16
    if kind == "text" then size = byte % 32 end
    if byte >= 0xc0 then
        if not MSGPACK[byte] then fail(c.at - 1, "unknown byte 0x%02x", byte) end
        kind, size = MSGPACK[byte][1], MSGPACK[byte][2]
        if type(size) == "string" then size = unpack_one(c, size, "a number") end
    end
    if kind == "text" then
        return kind, text_of(c, size, "a text")
    elseif kind == "bytes" or kind == "extension" then -- which has its type before its bytes
        local at = take(c, size + (kind == "extension" and 1 or 0), "bytes")
        return "bytes", { at, c.at - at }
    elseif kind ~= "list" and kind ~= "dict" then
        return kind, size
    end
    for i = 0, check_count(c, size, kind == "dict" and 2 or 1, "a " .. kind) - 1 do
        local at, key = c.at, i
        if kind == "dict" then
            key = add(c, { up = made.up, key = made.key, depth = made.depth }, "key", at, msgpack_value)
            key = key.kind == "bytes" and c.s:sub(key.value[1] + 1, c.at):gsub("[\128-\255]", "?") or brief(key, 0)
        end
        add(c, made, key, at, msgpack_value)
    end
    -- A map may stand for an array.
    local mark = find(made, "nd") or find(made, "__ndarray__") or find(made, "__npgeneric__")
    local dtype, data, shape = find(made, "type") or find(made, "dtype"), find(made, "data"), {}
    if not (mark and dtype and data and dtype.kind == "text" and data.kind == "bytes") then return kind end
    if mark.key ~= "__npgeneric__" and mark.value and not find(made, "shape") then return kind end
    for i, n in ipairs(find(made, "shape") or {}) do shape[i] = plain(n.value) end
    for i = #made, 1, -1 do made[i] = nil end
    return array(c, made, dtype.value, shape, data.value[1], data.value[2])
end

-- Reads a map in JSON or MessagePack, told apart by the first byte.
local function map(c, root)
    local at, kind = c.at, nil
    if c.s:find("^[{ \t\r\n]", at + 1) then
        json_next(c, "{")
        kind = json_entries(c, root, "}")
        c.at = (c.s:find("[^ \t\r\n]", c.at + 1) or c.stop + 1) - 1
    else
        kind = msgpack_value(c, root)
    end
    if kind ~= "dict" then fail(at, "a message is a map") end
    if c.at < c.stop then fail(c.at, "%d bytes follow the message", c.stop - c.at) end
end

-- RLlink: eight digits and a map, which may be compressed

local rllink = Proto("RLlink", "RLlib's RLlink")
local rllink_own = fields(rllink, "type:text timesteps:int env_steps:int weights_seq_no:int state.weights_seq_no:int")

local function rllink_message(c, root)
    if c.s:sub(9, 12) ~= "\40\181\47\253" then return map(c, root) end
    add(c, root, "zstd", 8, function() return "bytes", { take(c, c.stop - 8, "zstd"), c.stop - 8 } end)
end

rllink.dissector = stream(rllink, "^((%d%d%d%d%d%d%d%d))", 0, rllink_message, rllink_own)
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

-- Universe's rewarder: JSON in WebSocket

local rewarder = Proto("Rewarder", "Universe's rewarder")
local rewarder_own = fields(rewarder, "method:text headers.episode_id:text headers.message_id:int headers.sent_at:real "
    .. "body.env_id:text body.env_state:text body.fps:real body.reward:real body.done:bool body.text:text body.message:text")
rewarder_own.joined = true

rewarder.dissector = dissector(rewarder, map, rewarder_own)
register(rewarder, "ws", "15900", { '"method"%s*:%s*"v0[.]' })

-- dm_env_rpc: Protocol Buffers in gRPC

local dm = Proto("dm_env_rpc", "DeepMind's dm_env_rpc")
local TENSORS = { -- by the number of the payload's field, which is also that of the DataType
    "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool", "string", "proto",
}
local STATES = { [0] = "INVALID_ENVIRONMENT_STATE", "RUNNING", "TERMINATED", "INTERRUPTED" }
local SCHEMA = {} -- of a message: key and kind by a field's number; a kind in capitals is a message
for name, text in ([[
Request: create_world:1:Settings join_world:2:World step:3:Step reset:4:Settings reset_world:5:World
    leave_world:6:Empty destroy_world:7:Name extension:15:Any;
Response: create_world:1:Name join_world:2:Joined step:3:Stepped reset:4:Joined reset_world:5:Empty
    leave_world:6:Empty destroy_world:7:Empty extension:15:Any error:16:Status;
Settings: settings:1:tensors; Name: world_name:1:text; World: world_name:1:text settings:2:tensors;
Step: actions:1:tensors requested_observations:2:uids; Stepped: state:1:state observations:2:tensors;
Joined: specs:1:Specs; Specs: actions:1:specs observations:2:specs; Empty:;
Any: type_url:1:text value:2:bytes; Status: code:1:int message:2:text;
]]):gmatch("(%u%l+):([^;]*);") do
    SCHEMA[name] = {}
    for key, number, kind in text:gmatch("(%S+):(%d+):(%a+)") do SCHEMA[name][tonumber(number)] = { key, kind } end
end

-- Reads a varint: a number below 2^53, else an Int64 or UInt64.
local function varint(c, class)
    local low, middle, high = 0, 0, 0 -- 28, 28 and 8 bits
    for i = 0, 9 do
        local byte = unpack_one(c, "B", "a varint")
        local bits = byte % 128 * 128 ^ (i % 4)
        if i < 4 then low = low + bits elseif i < 8 then middle = middle + bits else high = high + bits end
        if byte < 128 and (i < 9 or byte < 2) then
            if i < 7 then return low + middle * 2 ^ 28 end
            return class.new(low + middle % 16 * 2 ^ 28, math.floor(middle / 16) + high * 2 ^ 24)
        end
    end
    fail(c.at - 1, "a varint over 64 bits")
end

-- Calls read(number, size, value, wire type) for each field of a message, with the cursor at its value. The
-- value is that of a varint, else nil. The cursor is then at the message's end.
local function each_field(c, size, read)
    local outer, at = c.stop, take(c, size, "a message")
    c.at, c.stop = at, at + size
    while c.at < c.stop do
        count_value(c)
        local tag_at, tag = c.at, varint(c, UInt64)
        if type(tag) ~= "number" or tag < 8 or tag >= 2 ^ 32 then fail(tag_at, "no tag of a field") end
        local wire = tag % 8
        local value = wire == 0 and varint(c, Int64) or nil
        local length = ({ [0] = 0, [1] = 8, [2] = wire == 2 and varint(c, UInt64), [5] = 4 })[wire]
        if type(length) ~= "number" then fail(tag_at, "wire type %.0f", wire) end
        at = take(c, length, "a field")
        c.at = at
        read(math.floor(tag / 8), length, value, wire)
        c.at = at + length
    end
    c.stop = outer
end

-- Appends integers, packed or one, to a list of at most FIRST texts. Returns whether there are more.
local function integers(c, length, value, class, list, format)
    local outer, more = c.stop, false
    c.stop = c.at + length
    if value then list[#list + 1] = format(value) end
    while c.at < c.stop and not more do
        list[#list + 1] = format(varint(c, class))
        more = #list >= FIRST and c.at < c.stop
    end
    c.stop = outer
    return more
end

-- Reads an element, or all in one, of a tensor's payload. Returns offset and size of an array's data.
local function elements(c, made, length, value, wire)
    local dtype, first = made.dtype, made.first
    if wire == 2 and (dtype:find("float") or dtype:find("int8")) then
        return { c.at, length }
    elseif #first >= FIRST then
        made.more = true
    elseif wire == 1 or wire == 5 then
        first[#first + 1] = ("%.7g"):format((Struct.unpack(wire == 1 and "<d" or "<f", c.s, c.at + 1)))
    elseif dtype == "string" or dtype == "proto" then
        first[#first + 1] = dtype == "string" and cut(text_of(c, length, "a string"), 60) or plain(length) .. " bytes"
    else
        made.more = integers(c, length, value, dtype:find("^u") and UInt64 or Int64, first, function(one)
            return dtype == "bool" and tostring(one ~= 0) or plain(one)
        end)
    end
end

-- Reads a Tensor, or a TensorSpec, whose name becomes the key.
local function tensor(c, made, size, spec)
    made.kind, made.dtype, made.shape, made.first = "array", "?", {}, {}
    local data
    each_field(c, size, function(number, length, value)
        if number == (spec and 2 or 15) then
            if integers(c, length, value, Int64, made.shape, plain) or #made.shape > FIRST then
                fail(c.at, "more than %d dimensions", FIRST)
            end
        elseif spec and number == 1 then
            made.key = text_of(c, length, "a name"):match("^%S*") -- rlwire writes spaces after it
        elseif spec and number == 3 then
            made.dtype = TENSORS[value] or "?"
        elseif not spec and TENSORS[number] then
            made.dtype = TENSORS[number]
            each_field(c, length, function(inner, ...)
                if inner == 1 then data = elements(c, made, ...) or data end
            end)
        end
    end)
    if data then return array(c, made, made.dtype, made.shape, data[1], data[2], true) end
    return "array"
end

-- Reads an entry of a map: a UID or text, and a Tensor or TensorSpec.
local function map_entry(c, made, size, spec, names)
    each_field(c, size, function(number, length, value)
        if number == 1 and value then
            made.uid = whole(UInt64, value)
            made.key = names[plain(made.uid)] or "uid " .. plain(made.uid)
        elseif number == 1 then
            made.key = text_of(c, length, "a key")
        elseif number == 2 then
            tensor(c, made, length, spec)
        end
    end)
    return made.dtype and "array" or "null"
end

local function proto_message(c, up, size, name, names)
    each_field(c, size, function(number, length, value)
        local key, kind = table.unpack(SCHEMA[name][number] or {})
        local at = c.at
        -- Like protobuf, skip a known field of another wire type.
        if not key or kind ~= "uids" and (value ~= nil) ~= (kind == "int" or kind == "state") then return end
        if kind == "tensors" or kind == "specs" then
            local made = find(up, key) or add(c, up, key, at, function() return "dict" end)
            add(c, made, "?", at, map_entry, length, kind == "specs", names[key] or {})
            made.size = c.at - made.at
            return
        end
        add(c, up, key, at, function(_, made)
            if SCHEMA[kind] then
                proto_message(c, made, length, kind, names)
                return "dict"
            elseif kind == "uids" then
                made.dtype, made.shape, made.first = "uid", {}, {}
                made.more = integers(c, length, value, UInt64, made.first, function(uid)
                    return names.observations[plain(uid)] or plain(uid)
                end)
                return "array"
            elseif kind == "bytes" then
                return kind, { take(c, length, key), length }
            elseif kind == "text" then
                return kind, text_of(c, length, key)
            end
            return kind == "int" and kind or "text", kind == "int" and value or STATES[value] or plain(value)
        end)
    end)
end

-- Names of UIDs by call: the last specs that were seen.
local known, tcp_stream, http2_stream = {}, Field.new("tcp.stream"), Field.new("http2.streamid")
local dm_own = fields(dm, "step.state:text error.code:int error.message:text")
dm_own.joined = true

function dm.init() known = {} end

dm.dissector = dissector(dm, function(c, root)
    local name = c.pinfo.match_string:find(",request", 1, true) and "Request" or "Response"
    local streams, names = { http2_stream() }, { actions = {}, observations = {} }
    local call = tostring(tcp_stream()) .. ":" .. tostring(streams[#streams])
    proto_message(c, root, c.stop, name, known[call] or names)
    local specs = find(root, "join_world.specs") or find(root, "reset.specs")
    for _, domain in ipairs(specs or {}) do
        for _, spec in ipairs(domain) do
            if spec.uid then names[domain.key][plain(spec.uid)] = spec.key end
        end
    end
    known[call] = specs and names or known[call]
end, dm_own)

for _, direction in ipairs({ "request", "response" }) do
    DissectorTable.get("grpc_message_type"):add(
        "application/grpc,/dm_env_rpc.v1.Environment/Process," .. direction, dm)
end
register(dm, "tcp", "9911", nil, Dissector.get("http2"))

"""The C headers for Cython: declarations only, nothing to import at run time.

An outside module compiles with `rlwire.get_include()` on its include path and says
`from rlwire.kernels cimport rlw_cursor, ...`.
"""

from libc.stdint cimport int32_t, int64_t, int8_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "rlwire/status.h" nogil:
    ctypedef enum rlw_status:
        RLW_OK, RLW_NEED_MORE, RLW_BAD_VERSION, RLW_BAD_TYPE, RLW_BAD_COUNT, RLW_BAD_BOOLEAN
        RLW_BAD_TEXT, RLW_BAD_DTYPE, RLW_BAD_MODE, RLW_BAD_SHAPE, RLW_BAD_SIZE, RLW_BAD_PREFIX
        RLW_BAD_END, RLW_BAD_RESERVED, RLW_BAD_OPCODE, RLW_BAD_CONTROL, RLW_BAD_LENGTH
        RLW_BAD_MASK, RLW_BAD_VARINT, RLW_BAD_TAG, RLW_BAD_WIRE, RLW_BAD_PACKED, RLW_BAD_PAYLOAD
        RLW_BAD_UNKNOWN, RLW_BAD_ELEMENTS, RLW_BAD_EMPTY, RLW_BAD_CHARACTER, RLW_BAD_WORD
        RLW_BAD_INTEGER, RLW_BAD_NUMBER, RLW_BAD_DIMENSION, RLW_BAD_TIMESTAMP, RLW_BAD_PICKLE
        RLW_BAD_FRAME_SIZE, RLW_BAD_STREAM, RLW_BAD_PADDING, RLW_BAD_SETTING, RLW_BAD_INCREMENT
        RLW_BAD_WINDOW, RLW_BAD_PUSH, RLW_BAD_COMPRESSED
        RLW_BAD_PLACE, RLW_BAD_ENCODING, RLW_BAD_SUBENCODING, RLW_BAD_PALETTE, RLW_BAD_RUN
        RLW_BAD_INFLATED, RLW_BAD_ZLIB, RLW_BAD_JPEG
        RLW_TRAILING, RLW_OVER_MESSAGE, RLW_OVER_DEPTH, RLW_OVER_ITEMS
        RLW_OVER_DIMS, RLW_OVER_STRING, RLW_OVER_PIXELS, RLW_OVER_EXPANDED, RLW_OVER_DATAGRAM
        RLW_OVER_FRAME, RLW_NO_MEMORY
    ctypedef struct rlw_fault:
        rlw_status status
        const uint8_t *at
        uint64_t got, allowed
    const char *rlw_status_text(rlw_status status)

cdef extern from "rlwire/endian.h" nogil:
    uint32_t rlw_load_u32le(const uint8_t *p)
    uint32_t rlw_load_u32be(const uint8_t *p)
    int rlw_host_is_little()

cdef extern from "rlwire/cursor.h" nogil:
    ctypedef struct rlw_cursor:
        const uint8_t *at
        const uint8_t *end
        rlw_fault fault
    void rlw_cursor_init(rlw_cursor *c, const uint8_t *data, size_t size)
    size_t rlw_left(const rlw_cursor *c)
    rlw_status rlw_take(rlw_cursor *c, uint64_t size, const uint8_t **out)
    rlw_status rlw_fail(rlw_cursor *c, rlw_status status, const uint8_t *at, uint64_t got,
                        uint64_t allowed)

cdef extern from "rlwire/writer.h" nogil:
    ctypedef struct rlw_writer:
        uint8_t *start
        uint8_t *at
        uint8_t *end
        int on_heap
    void rlw_writer_init(rlw_writer *w, uint8_t *room, size_t size)
    void rlw_writer_free(rlw_writer *w)
    size_t rlw_written(const rlw_writer *w)
    rlw_status rlw_reserve(rlw_writer *w, size_t size)
    rlw_status rlw_put(rlw_writer *w, const void *data, size_t size)

cdef extern from "rlwire/netstring.h" nogil:
    int RLW_NETSTRING_ROOM
    rlw_status rlw_netstring_prefix(rlw_cursor *c, uint64_t limit, uint64_t *size)
    rlw_status rlw_netstring_read(rlw_cursor *c, uint64_t limit, const uint8_t **body, size_t *size)
    uint8_t *rlw_netstring_prefix_before(uint8_t *end, uint64_t size)

cdef extern from "rlwire/utf8.h" nogil:
    size_t rlw_utf8_check(const uint8_t *p, size_t size)
    bint rlw_is_ascii(const uint8_t *p, size_t size)
    ctypedef struct rlw_utf8_state:
        uint8_t more, low, high
    size_t rlw_utf8_feed(rlw_utf8_state *s, const uint8_t *p, size_t size)

cdef extern from "rlwire/websocket.h" nogil:
    int RLW_WS_TEXT, RLW_WS_BINARY, RLW_WS_CONTROL_MOST
    ctypedef struct rlw_ws_header:
        uint64_t size
        uint8_t opcode, fin, masked
        uint8_t key[4]
    rlw_status rlw_ws_read_header(rlw_cursor *c, int masked, uint64_t limit, rlw_ws_header *out)
    size_t rlw_ws_header_size(uint64_t size, int masked)
    uint8_t *rlw_ws_write_header(uint8_t *to, int fin, unsigned opcode, uint64_t size,
                                 const uint8_t *key)
    void rlw_ws_mask_copy(uint8_t *to, const uint8_t *from_, size_t size, const uint8_t *key,
                          size_t phase)
    void rlw_ws_mask(uint8_t *data, size_t size, const uint8_t *key, size_t phase)
    bint rlw_ws_is_close_code(unsigned code)

cdef extern from "rlwire/rfb.h" nogil:
    int RLW_RFB_RAW, RLW_RFB_COPY_RECT, RLW_RFB_HEXTILE, RLW_RFB_TIGHT, RLW_RFB_ZRLE
    int RLW_RFB_LAST_RECT, RLW_RFB_HEAD, RLW_RFB_JPEG
    ctypedef struct rlw_rfb_screen:
        uint8_t *pixels
        size_t stride
        uint32_t width
        uint32_t height
    ctypedef struct rlw_rfb_rectangle:
        uint32_t x, y, width, height
        int32_t encoding
    ctypedef struct rlw_rfb_progress:
        pass
    ctypedef struct rlw_rfb_tight:
        uint8_t resets
        uint8_t kind
        uint8_t stream
        uint8_t packed
        uint64_t need
        const uint8_t *data
        size_t size
    void rlw_rfb_rows(const rlw_rfb_screen *s, uint32_t x, uint32_t y, const uint8_t *from_,
                      size_t from_stride, unsigned size, uint32_t width, uint32_t height)
    rlw_status rlw_rfb_read_head(rlw_cursor *c, rlw_rfb_rectangle *out)
    bint rlw_rfb_paints(int32_t encoding)
    rlw_status rlw_rfb_check_place(rlw_cursor *c, const uint8_t *head, const rlw_rfb_screen *s,
                                   const rlw_rfb_rectangle *r)
    uint64_t rlw_rfb_work(const rlw_cursor *c, const rlw_rfb_rectangle *r)
    rlw_status rlw_rfb_measure(rlw_cursor *c, const rlw_rfb_screen *s, rlw_rfb_progress *progress,
                               uint64_t *size)
    rlw_status rlw_rfb_read_tight(rlw_cursor *c, const rlw_rfb_rectangle *r,
                                  rlw_rfb_tight *t)
    rlw_status rlw_rfb_paint_raw(rlw_cursor *c, const rlw_rfb_screen *s,
                                 const rlw_rfb_rectangle *r)
    rlw_status rlw_rfb_paint_copy(rlw_cursor *c, const rlw_rfb_screen *s,
                                  const rlw_rfb_rectangle *r)
    rlw_status rlw_rfb_paint_rre(rlw_cursor *c, const rlw_rfb_screen *s,
                                 const rlw_rfb_rectangle *r)
    rlw_status rlw_rfb_paint_hextile(rlw_cursor *c, const rlw_rfb_screen *s,
                                     const rlw_rfb_rectangle *r)
    rlw_status rlw_rfb_paint_zrle_tiles(rlw_cursor *c, const rlw_rfb_screen *s,
                                        const rlw_rfb_rectangle *r)
    uint64_t rlw_rfb_zrle_most(uint32_t width, uint32_t height)
    rlw_status rlw_rfb_paint_tight(rlw_cursor *c, const rlw_rfb_screen *s,
                                   const rlw_rfb_rectangle *r, const rlw_rfb_tight *t)

cdef extern from "rlwire/ucs4.h" nogil:
    size_t RLW_NOT_UNICODE
    size_t rlw_ucs4_trim(const uint32_t *text, size_t count)
    size_t rlw_ucs4_size(const uint32_t *text, size_t count)
    uint8_t *rlw_ucs4_to_utf8(uint8_t *to, const uint8_t *end, const uint32_t *text, size_t count)
    size_t rlw_utf8_length(const uint8_t *data, size_t size)
    size_t rlw_utf8_to_ucs4(const uint8_t *data, size_t size, uint32_t *out, size_t room)

cdef extern from "rlwire/dtype.h" nogil:
    ctypedef struct rlw_dtype:
        char kind, order
        uint32_t itemsize
    bint rlw_dtype_parse(const uint8_t *text, size_t size, rlw_dtype *out)

cdef extern from "rlwire/image.h" nogil:
    ctypedef struct rlw_image_mode:
        const char *name
        uint8_t channels, itemsize
        char kind, order
        uint8_t scaled
    const rlw_image_mode *rlw_image_mode_find(const uint8_t *name, size_t size)
    uint64_t rlw_image_bytes(const rlw_image_mode *mode, uint32_t width, uint32_t height)
    void rlw_unit_floats(const uint8_t *pixels, size_t count, float *out)
    void rlw_unpack_bits(const uint8_t *bits, uint32_t width, uint32_t height, uint8_t *out)

cdef extern from "rlwire/protobuf.h" nogil:
    ctypedef enum rlw_wire:
        RLW_WIRE_VARINT, RLW_WIRE_FIXED64, RLW_WIRE_BYTES, RLW_WIRE_GROUP, RLW_WIRE_END_GROUP
        RLW_WIRE_FIXED32
    ctypedef struct rlw_field:
        uint32_t number, wire
        const uint8_t *at
        uint64_t value
        const uint8_t *data
        size_t size
    int RLW_VARINT_ROOM
    size_t rlw_varint_size(uint64_t value)
    uint8_t *rlw_store_varint(uint8_t *to, uint64_t value)
    rlw_status rlw_take_varint(rlw_cursor *c, uint64_t *out)
    rlw_status rlw_take_field(rlw_cursor *c, rlw_field *f)

cdef extern from "rlwire/varint.h" nogil:
    bint rlw_bools_are_plain(const uint8_t *data, size_t size)

cdef extern from "rlwire/dm_env_rpc.h" nogil:
    int RLW_TENSOR_DIMS
    int RLW_TENSOR_VALUE_OFFSET
    ctypedef enum rlw_tensor_kind:
        RLW_TENSOR_NONE, RLW_TENSOR_FLOAT, RLW_TENSOR_DOUBLE, RLW_TENSOR_INT8, RLW_TENSOR_INT32
        RLW_TENSOR_INT64, RLW_TENSOR_UINT8, RLW_TENSOR_UINT32, RLW_TENSOR_UINT64, RLW_TENSOR_BOOL
        RLW_TENSOR_STRING, RLW_TENSOR_PROTO
    ctypedef struct rlw_tensor:
        uint32_t kind, dims
        int64_t shape[32]
        uint64_t count, total
        uint32_t segments
        const uint8_t *data
        size_t size
        uint32_t field
        const uint8_t *at
        const uint8_t *end
        const uint8_t *shape_at
    ctypedef struct rlw_tensor_sizes:
        uint64_t data, payload, shape, whole
    ctypedef struct rlw_tensor_items:
        rlw_cursor outer, inner
        uint32_t field
    ctypedef struct rlw_any:
        const uint8_t *url
        size_t url_size
        const uint8_t *value
        size_t value_size
    uint32_t rlw_tensor_itemsize(uint32_t kind)
    bint rlw_tensor_is_memory(uint32_t kind)
    rlw_status rlw_tensor_read(rlw_cursor *c, uint32_t dims_limit, rlw_tensor *t)
    rlw_status rlw_tensor_read_value(rlw_cursor *c, rlw_tensor *t)
    rlw_status rlw_tensor_infer(rlw_cursor *c, rlw_tensor *t)
    rlw_status rlw_tensor_decode(rlw_cursor *c, const rlw_tensor *t, void *out)
    void rlw_tensor_items_init(rlw_tensor_items *items, const rlw_tensor *t)
    bint rlw_tensor_next(rlw_tensor_items *items, const uint8_t **data, size_t *size)
    rlw_status rlw_any_read(rlw_cursor *c, rlw_any *out)
    bint rlw_tensor_all_equal(uint32_t kind, const void *values, size_t count)
    uint64_t rlw_tensor_data_size(uint32_t kind, const void *values, size_t count)
    bint rlw_tensor_measure(rlw_tensor_sizes *out, uint32_t field, uint32_t kind,
                            uint64_t data_size, const int64_t *shape, uint32_t dims)
    uint8_t *rlw_tensor_put_head(uint8_t *to, uint32_t field, uint32_t kind,
                                 const rlw_tensor_sizes *sizes)
    uint8_t *rlw_tensor_put_data(uint8_t *to, uint32_t kind, const void *values, size_t count,
                                 const rlw_tensor_sizes *sizes)
    uint8_t *rlw_tensor_put_tail(uint8_t *to, const int64_t *shape, uint32_t dims,
                                 const rlw_tensor_sizes *sizes)

cdef extern from "rlwire/rlx.h" nogil:
    ctypedef enum rlw_rlx_type:
        RLW_RLX_NONE, RLW_RLX_NULL, RLW_RLX_INT4, RLW_RLX_STRING, RLW_RLX_DOUBLE, RLW_RLX_BOOLEAN
        RLW_RLX_IMAGE, RLW_RLX_NDARRAY, RLW_RLX_LIST, RLW_RLX_UINT4, RLW_RLX_INT64, RLW_RLX_DICT
    ctypedef struct rlw_rlx_limits:
        uint64_t items, string, pixels
        uint32_t depth, dims
    ctypedef struct rlw_text:
        const uint8_t *data
        size_t size
    ctypedef struct rlw_rlx_reader:
        rlw_cursor c
        rlw_rlx_limits limits
        uint64_t items
        rlw_text dtype
    ctypedef struct rlw_rlx_array:
        rlw_text name
        rlw_dtype dtype
        uint32_t dims
        const uint8_t *shape
        const uint8_t *data
        size_t size
    ctypedef struct rlw_rlx_image:
        const rlw_image_mode *mode
        rlw_text name
        uint32_t width, height
        const uint8_t *data
        size_t size
    union rlw_rlx_payload:
        int64_t integer
        double real
        bint boolean
        rlw_text text
        uint32_t count
        rlw_rlx_array array
        rlw_rlx_image image
    ctypedef struct rlw_rlx_value:
        rlw_rlx_type type
        const uint8_t *at
        rlw_rlx_payload as_ "as"
    void rlw_rlx_reader_init(rlw_rlx_reader *r, const uint8_t *data, size_t size,
                             const rlw_rlx_limits *limits)
    rlw_status rlw_rlx_read_version(rlw_rlx_reader *r)
    rlw_status rlw_rlx_read_text(rlw_rlx_reader *r, rlw_text *out)
    rlw_status rlw_rlx_count(rlw_rlx_reader *r, const uint8_t *at, uint64_t count)
    rlw_status rlw_rlx_read(rlw_rlx_reader *r, rlw_rlx_value *v)
    size_t rlw_rlx_find_data(const uint8_t *start, const uint8_t *message, size_t size,
                             size_t least, const rlw_rlx_limits *limits)
    rlw_status rlw_rlx_put_version(rlw_writer *w)
    rlw_status rlw_rlx_put_text(rlw_writer *w, const void *text, uint32_t size)
    rlw_status rlw_rlx_put_type(rlw_writer *w, rlw_rlx_type type)
    rlw_status rlw_rlx_put_null(rlw_writer *w)
    rlw_status rlw_rlx_put_boolean(rlw_writer *w, int value)
    rlw_status rlw_rlx_put_int4(rlw_writer *w, int32_t value)
    rlw_status rlw_rlx_put_int64(rlw_writer *w, int64_t value)
    rlw_status rlw_rlx_put_double(rlw_writer *w, double value)
    rlw_status rlw_rlx_put_string(rlw_writer *w, const void *text, uint32_t size)
    rlw_status rlw_rlx_put_list(rlw_writer *w, uint32_t count)
    rlw_status rlw_rlx_put_dict(rlw_writer *w, uint32_t count)
    rlw_status rlw_rlx_put_array_head(rlw_writer *w, const void *dtype, uint32_t dtype_size,
                                      uint32_t dims, const uint32_t *shape, uint32_t size)
    rlw_status rlw_rlx_put_image_head(rlw_writer *w, const void *mode, uint32_t mode_size,
                                      uint32_t width, uint32_t height, uint32_t size)

cdef extern from "rlwire/numbers.h" nogil:
    int RLW_DECIMALS_MOST
    int RLW_FIXED_ROOM
    const uint8_t *rlw_parse_double(const uint8_t *p, const uint8_t *end, double *out)
    uint8_t *rlw_put_i64(uint8_t *to, int64_t value)

cdef extern from "rlwire/number_list.h" nogil:
    ctypedef enum rlw_number:
        RLW_BOOL, RLW_INT8, RLW_INT16, RLW_INT32, RLW_INT64, RLW_UINT8, RLW_UINT16, RLW_UINT32
        RLW_UINT64, RLW_FLOAT32, RLW_FLOAT64
    uint8_t *rlw_put_number(uint8_t *to, rlw_number kind, const void *at, int decimals)
    rlw_status rlw_put_numbers(rlw_writer *w, rlw_number kind, const void *values, size_t count,
                               int decimals)
    size_t rlw_count_numbers(const uint8_t *text, size_t size)
    rlw_status rlw_read_numbers(rlw_cursor *c, rlw_number kind, void *values, size_t count)

cdef extern from "rlwire/perlert.h" nogil:
    ctypedef enum rlw_perlert_kind:
        RLW_PERLERT_NONE, RLW_PERLERT_LOBBY_REQUEST, RLW_PERLERT_REGISTER, RLW_PERLERT_READY
        RLW_PERLERT_ACTION, RLW_PERLERT_LOBBY, RLW_PERLERT_REGISTERED, RLW_PERLERT_MESSAGE
        RLW_PERLERT_START, RLW_PERLERT_STEP
    ctypedef enum rlw_perlert_field:
        RLW_PERLERT_AT_DATAGRAM, RLW_PERLERT_AT_NAME, RLW_PERLERT_AT_NUMBER
        RLW_PERLERT_AT_TIMESTAMP, RLW_PERLERT_AT_STEP_NUMBER, RLW_PERLERT_AT_BODY
        RLW_PERLERT_AT_KEY, RLW_PERLERT_AT_SLOT_STATUS, RLW_PERLERT_AT_KIND, RLW_PERLERT_AT_TAG
        RLW_PERLERT_AT_READY_STATUS, RLW_PERLERT_AT_BOOL, RLW_PERLERT_AT_ACTION
        RLW_PERLERT_AT_MESSAGE, RLW_PERLERT_AT_PORT, RLW_PERLERT_AT_OBSERVATION
        RLW_PERLERT_AT_REWARD, RLW_PERLERT_AT_EXTRA
    ctypedef struct rlw_perlert_text:
        const uint8_t *data
        size_t size
    ctypedef struct rlw_perlert_limits:
        uint64_t datagram, items
    ctypedef struct rlw_perlert_message:
        rlw_perlert_kind kind
        rlw_perlert_field field
        rlw_perlert_text name
        uint64_t number
        rlw_perlert_text key, text
        uint64_t timestamp, step
        rlw_perlert_text reward
        double reward_value
        rlw_perlert_text extra
        uint32_t port
        uint8_t flag, reward_is_number, has_extra, ascii
        int32_t decimals
        rlw_perlert_text wrong
        size_t wrong_at
    ctypedef struct rlw_perlert_slot:
        rlw_perlert_text key, kind, tag
        uint8_t open, ready
    unsigned RLW_PERLERT_ANY
    unsigned RLW_PERLERT_NOT_IN_ACTION
    unsigned RLW_PERLERT_NOT_IN_OBSERVATION
    const char *rlw_perlert_field_name(rlw_perlert_field field)
    size_t rlw_perlert_find(const uint8_t *data, size_t size, unsigned refused)
    rlw_status rlw_perlert_check(rlw_cursor *c, const rlw_perlert_limits *limits,
                                 rlw_perlert_message *m)
    rlw_status rlw_perlert_read_header(rlw_cursor *c, rlw_perlert_message *m)
    rlw_status rlw_perlert_read_step(rlw_cursor *c, rlw_perlert_message *m)
    rlw_status rlw_perlert_next_slot(rlw_cursor *c, rlw_perlert_message *m, rlw_perlert_slot *slot)
    rlw_status rlw_perlert_read_client(rlw_cursor *c, const rlw_perlert_limits *limits,
                                       rlw_perlert_message *m)
    rlw_status rlw_perlert_read_server(rlw_cursor *c, const rlw_perlert_limits *limits,
                                       rlw_perlert_message *m)
    rlw_status rlw_perlert_put_step_head(rlw_writer *w, rlw_perlert_message *m)
    rlw_status rlw_perlert_put_step_tail(rlw_writer *w, rlw_perlert_message *m)
    rlw_status rlw_perlert_put_slot(rlw_writer *w, rlw_perlert_message *m,
                                    const rlw_perlert_slot *slot)
    rlw_status rlw_perlert_write(rlw_writer *w, rlw_perlert_message *m)

cdef extern from "rlwire/msgpack.h" nogil:
    ctypedef enum rlw_msgpack_kind:
        RLW_MSGPACK_NIL, RLW_MSGPACK_BOOLEAN, RLW_MSGPACK_INTEGER, RLW_MSGPACK_UNSIGNED
        RLW_MSGPACK_FLOAT32, RLW_MSGPACK_FLOAT64, RLW_MSGPACK_STRING, RLW_MSGPACK_BINARY
        RLW_MSGPACK_EXT, RLW_MSGPACK_ARRAY, RLW_MSGPACK_MAP
    ctypedef struct rlw_msgpack_value:
        rlw_msgpack_kind kind
        int8_t code
        const uint8_t *at
        int64_t integer
        double real
        const uint8_t *data
        uint64_t size
    ctypedef struct rlw_msgpack_limits:
        uint64_t depth, items, string, binary, ext, array, map, dims
    ctypedef struct rlw_msgpack_reader:
        rlw_cursor c
        rlw_msgpack_limits limits
        uint64_t items
    void rlw_msgpack_reader_init(rlw_msgpack_reader *r, const uint8_t *data, size_t size,
                                 const rlw_msgpack_limits *limits)
    rlw_status rlw_msgpack_read(rlw_msgpack_reader *r, rlw_msgpack_value *v)
    int RLW_MSGPACK_TIMESTAMP
    bint rlw_msgpack_timestamp(const uint8_t *data, uint64_t size, int64_t *seconds,
                               uint32_t *nanoseconds)
    rlw_status rlw_msgpack_put_nil(rlw_writer *w)
    rlw_status rlw_msgpack_put_boolean(rlw_writer *w, bint value)
    rlw_status rlw_msgpack_put_unsigned(rlw_writer *w, uint64_t value)
    rlw_status rlw_msgpack_put_integer(rlw_writer *w, int64_t value)
    rlw_status rlw_msgpack_put_float64(rlw_writer *w, double value)
    rlw_status rlw_msgpack_put_string_head(rlw_writer *w, uint32_t size, size_t more)
    rlw_status rlw_msgpack_put_binary_head(rlw_writer *w, uint32_t size, size_t more)
    rlw_status rlw_msgpack_put_array_head(rlw_writer *w, uint32_t count)
    rlw_status rlw_msgpack_put_map_head(rlw_writer *w, uint32_t count)
    rlw_status rlw_msgpack_put_ext_head(rlw_writer *w, int8_t code, uint32_t size,
                                        size_t more)
    rlw_status rlw_msgpack_put_timestamp(rlw_writer *w, int64_t seconds,
                                         uint32_t nanoseconds)

cdef extern from "rlwire/msgpack_array.h" nogil:
    ctypedef enum rlw_msgpack_mark:
        RLW_MSGPACK_UNMARKED, RLW_MSGPACK_ND, RLW_MSGPACK_ND_SCALAR, RLW_MSGPACK_NP_GENERIC
        RLW_MSGPACK_COMPLEX
    ctypedef struct rlw_msgpack_marked:
        rlw_msgpack_mark mark
        bint binary_keys
        rlw_dtype dtype
        uint32_t dims
        uint64_t *shape
        rlw_msgpack_value *field
    int RLW_MSGPACK_FIELD_TYPE
    int RLW_MSGPACK_FIELD_DATA
    bint rlw_msgpack_is_mark(const rlw_msgpack_value *key)
    rlw_status rlw_msgpack_check_size(rlw_cursor *c, const rlw_msgpack_marked *m, uint64_t itemsize)
    rlw_status rlw_msgpack_read_marked(rlw_msgpack_reader *r, const rlw_msgpack_value *map,
                                       uint64_t depth, rlw_msgpack_marked *out)
    rlw_status rlw_msgpack_put_nd(rlw_writer *w, const char *type, uint32_t type_size,
                                  uint32_t dims, const int64_t *shape, uint32_t size)
    rlw_status rlw_msgpack_put_ndarray(rlw_writer *w, uint32_t size)
    rlw_status rlw_msgpack_put_ndarray_end(rlw_writer *w, const char *type, uint32_t type_size,
                                           uint32_t dims, const int64_t *shape)

cdef extern from "rlwire/http2.h" nogil:
    int RLW_H2_DATA, RLW_H2_HEADERS, RLW_H2_PRIORITY, RLW_H2_SETTINGS, RLW_H2_WINDOW_UPDATE
    int RLW_H2_CONTINUATION, RLW_H2_END_STREAM, RLW_H2_ACK, RLW_H2_END_HEADERS, RLW_H2_PADDED
    int RLW_H2_ENABLE_PUSH, RLW_H2_INITIAL_WINDOW_SIZE, RLW_H2_MAX_FRAME_SIZE, RLW_H2_HEAD
    int RLW_H2_FRAME_LEAST, RLW_H2_FRAME_MOST, RLW_H2_WINDOW_MOST, RLW_H2_WINDOW_FIRST
    int RLW_GRPC_PREFIX
    uint32_t RLW_GRPC_MOST
    uint8_t *rlw_h2_write_head(uint8_t *to, uint32_t size, unsigned type, unsigned flags,
                               uint32_t stream)
    ctypedef struct rlw_h2_head:
        uint32_t size, stream
        uint8_t type, flags
    rlw_status rlw_h2_read_head(rlw_cursor *c, uint32_t most, uint32_t other, rlw_h2_head *out)
    rlw_status rlw_h2_take_payload(rlw_cursor *c, const rlw_h2_head *h, const uint8_t **data,
                                   size_t *size)
    rlw_status rlw_h2_read_setting(rlw_cursor *c, unsigned *id, uint32_t *value)
    rlw_status rlw_h2_open_window(rlw_cursor *c, int64_t *window)
    bint rlw_h2_stream_only(const rlw_h2_head *h, rlw_status status)
    unsigned rlw_h2_code_of(rlw_status status)
    uint8_t *rlw_grpc_write_prefix(uint8_t *to, uint32_t size)
    rlw_status rlw_grpc_read_prefix(rlw_cursor *c, uint64_t limit, uint32_t *size)

cdef extern from "rlwire/rfb_encode.h" nogil:
    ctypedef struct rlw_rfb_pixels:
        pass
    int rlw_rfb_pixels_init(rlw_rfb_pixels *p, unsigned bits, unsigned depth, int big_endian,
                            const uint16_t *max, const uint8_t *shift)
    ctypedef struct rlw_rfb_rect:
        uint16_t x, y, width, height
    size_t rlw_rfb_changed(const uint8_t *before, const uint8_t *after, size_t width, size_t height,
                           size_t tile, uint8_t *marks)
    size_t rlw_rfb_gather(const uint8_t *marks, size_t width, size_t height, size_t tile,
                          rlw_rfb_rect *out)
    ctypedef rlw_status (*rlw_rfb_deflate)(void *self, const uint8_t *data, size_t size,
                                           rlw_writer *out)
    ctypedef rlw_status (*rlw_rfb_jpeg)(void *self, const uint8_t *rgb, size_t stride, size_t width,
                                        size_t height, rlw_writer *out)
    ctypedef struct rlw_rfb_encoder:
        rlw_rfb_pixels pixels
        rlw_rfb_deflate deflate
        rlw_rfb_jpeg jpeg
        void *self
        rlw_writer plain
    rlw_status rlw_rfb_put_rect(rlw_rfb_encoder *e, rlw_writer *w, const uint8_t *frame,
                                size_t frame_width, const rlw_rfb_rect *r, int32_t encoding,
                                size_t *count)

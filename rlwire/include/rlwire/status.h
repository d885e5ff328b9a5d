/* Results of kernels: a status, and the place and cause of a fault.
 *
 * Kernels never allocate for an error and never print. The caller turns an rlw_fault into an
 * exception (rlwire/codecs/_glue.pyx) or a line of text (rlw_status_text).
 */
#ifndef RLWIRE_STATUS_H
#define RLWIRE_STATUS_H

#include <stdint.h>

/* Each status and its text; the comments say what a fault's `got` and `allowed` are. */
#define RLW_STATUSES(X) \
    X(RLW_OK, "no error") \
    X(RLW_NEED_MORE, "the message ends inside a field") /* bytes needed, left */ \
    X(RLW_BAD_VERSION, "unknown protocol version") /* the version, the supported one */ \
    X(RLW_BAD_TYPE, "unknown type byte") /* the byte */ \
    /* items, the most that fit: */ \
    X(RLW_BAD_COUNT, "more items announced than the bytes left can hold") \
    X(RLW_BAD_BOOLEAN, "a boolean is neither 0 nor 1") /* the byte */ \
    X(RLW_BAD_TEXT, "a string is not UTF-8") /* its first invalid byte */ \
    X(RLW_BAD_DTYPE, "not a plain dtype") /* bytes of its text */ \
    X(RLW_BAD_MODE, "unknown image mode") /* bytes of its text */ \
    X(RLW_BAD_SHAPE, "the product of the dimensions overflows") \
    /* bytes announced, bytes for the shape and dtype: */ \
    X(RLW_BAD_SIZE, "the data size does not match the shape") \
    X(RLW_BAD_PREFIX, "a netstring length has a non-digit or a leading zero") /* the byte */ \
    X(RLW_BAD_END, "a netstring does not end in a comma") /* the byte */ \
    X(RLW_BAD_RESERVED, "a frame has a reserved bit set") /* its first byte */ \
    X(RLW_BAD_OPCODE, "a frame has a reserved opcode") /* the opcode */ \
    X(RLW_BAD_CONTROL, "a control frame is fragmented or longer than 125 bytes") /* its opcode */ \
    /* the length: */ \
    X(RLW_BAD_LENGTH, "a frame length is not in its shortest form, or is 2**63 or more") \
    /* whether it is masked, whether it must be: */ \
    X(RLW_BAD_MASK, "a server masked a frame, or a client did not") \
    X(RLW_BAD_VARINT, "a varint is longer than 64 bits") \
    X(RLW_BAD_TAG, "not a protobuf tag") /* the tag */ \
    X(RLW_BAD_WIRE, "a known field has the wrong wire type") /* the wire type, the expected one */ \
    X(RLW_BAD_PACKED, "a packed array ends inside an element") /* bytes of the array */ \
    X(RLW_BAD_PAYLOAD, "a tensor without a payload") \
    X(RLW_BAD_UNKNOWN, "a shape has more than one negative dimension") \
    /* elements, those of the shape: */ \
    X(RLW_BAD_ELEMENTS, "the number of elements does not match the shape") \
    X(RLW_BAD_EMPTY, "a required field is empty") \
    X(RLW_BAD_CHARACTER, "a character that the field does not allow") /* the byte */ \
    X(RLW_BAD_WORD, "unknown keyword") \
    X(RLW_BAD_INTEGER, "not an integer, or out of range") \
    X(RLW_BAD_NUMBER, "not a number") \
    X(RLW_BAD_DIMENSION, "a dimension is not an integer of at least 0") /* its index */ \
    /* bytes; not 4, 8 or 12, or they hold 10**9 ns or more: */ \
    X(RLW_BAD_TIMESTAMP, "not a timestamp") \
    X(RLW_BAD_PICKLE, "an array of objects is a pickle, which can run any code and is never loaded") \
    /* bytes of the frame, those for its type: */ \
    X(RLW_BAD_FRAME_SIZE, "a frame's size is invalid for its type") \
    /* the stream: */ \
    X(RLW_BAD_STREAM, "a frame lacks the stream that its type needs, or must have none") \
    /* bytes of padding, what is left of the frame: */ \
    X(RLW_BAD_PADDING, "a frame has more padding than room") \
    X(RLW_BAD_SETTING, "a setting has an invalid value") /* the value, the nearest valid one */ \
    X(RLW_BAD_INCREMENT, "a window update by 0 bytes") \
    /* the resulting window, the maximum: */ \
    X(RLW_BAD_WINDOW, "a flow-control window of 2**31 bytes or more") \
    X(RLW_BAD_PUSH, "a PUSH_PROMISE frame, but server push is disabled") \
    /* the first byte, which must be 0: */ \
    X(RLW_BAD_COMPRESSED, "a compressed message, but no compression was agreed on") \
    /* where pixels end, where their area ends: */ \
    X(RLW_BAD_PLACE, "pixels lie outside their area") \
    X(RLW_BAD_ENCODING, "a rectangle in an unknown encoding") /* the encoding */ \
    X(RLW_BAD_SUBENCODING, "pixels in an unknown sub-encoding") /* the byte */ \
    /* the index, the number of colours: */ \
    X(RLW_BAD_PALETTE, "an index past the end of its palette") \
    X(RLW_BAD_RUN, "a run past the end of its tile") /* pixels, those left in the tile */ \
    X(RLW_BAD_INFLATED, "inflated pixels have the wrong size") /* bytes, those expected */ \
    X(RLW_BAD_ZLIB, "not a zlib stream") \
    X(RLW_BAD_JPEG, "not a JPEG of the rectangle's size") \
    X(RLW_TRAILING, "bytes after the end of the message") /* how many */ \
    /* the size requested, the limit; so for all limits: */ \
    X(RLW_OVER_MESSAGE, "message over its limit") \
    X(RLW_OVER_DEPTH, "nesting over its limit") \
    X(RLW_OVER_ITEMS, "number of items over its limit") \
    X(RLW_OVER_DIMS, "number of dimensions over its limit") \
    X(RLW_OVER_STRING, "string over its limit") \
    X(RLW_OVER_PIXELS, "image over its limit") \
    X(RLW_OVER_EXPANDED, "decoded size over its limit") \
    X(RLW_OVER_DATAGRAM, "datagram over its limit") \
    X(RLW_OVER_FRAME, "frame over its limit") \
    X(RLW_NO_MEMORY, "out of memory")

#define RLW_STATUS_NAME(name, text) name,
#define RLW_STATUS_TEXT(name, text) text,
typedef enum rlw_status {
    RLW_STATUSES(RLW_STATUS_NAME)
} rlw_status;

typedef struct rlw_fault {
    rlw_status status;
    const uint8_t *at; /* first byte of the field at fault */
    uint64_t got;
    uint64_t allowed;
} rlw_fault;

/* Returns from the calling function unless the status is RLW_OK. */
#define RLW_TRY(call) \
    do { \
        rlw_status try_status = (call); \
        if (try_status != RLW_OK) return try_status; \
    } while (0)

/* Returns a static text; the fault's numbers complete it. */
static inline const char *rlw_status_text(rlw_status status) {
    static const char *const texts[] = {RLW_STATUSES(RLW_STATUS_TEXT)};
    return (unsigned)status <= RLW_NO_MEMORY ? texts[status] : "unknown status";
}

#undef RLW_STATUS_NAME
#undef RLW_STATUS_TEXT

#endif

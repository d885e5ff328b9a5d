/* Results of kernels: a status, and the place and cause of a fault.
 *
 * Kernels never allocate for an error and never print. The caller turns an rlw_fault into an
 * exception (rlwire/codecs/_glue.pyx) or a line of text (rlw_status_text).
 */
#ifndef RLWIRE_STATUS_H
#define RLWIRE_STATUS_H

#include <stdint.h>

typedef enum rlw_status {
    RLW_OK = 0,
    RLW_NEED_MORE,      /* the input ends inside a field; got = bytes needed, allowed = bytes left */
    RLW_BAD_VERSION,    /* got = the version, allowed = the supported one */
    RLW_BAD_TYPE,       /* got = the type byte */
    RLW_BAD_COUNT,      /* got = items announced, allowed = the most that the bytes left can hold */
    RLW_BAD_BOOLEAN,    /* got = the byte */
    RLW_BAD_TEXT,       /* not UTF-8; got = index of the first invalid byte in the text */
    RLW_BAD_DTYPE,      /* not a plain dtype; got = bytes of its text */
    RLW_BAD_MODE,       /* not a known image mode; got = bytes of its text */
    RLW_BAD_SHAPE,      /* the product of the dimensions exceeds 2**63 */
    RLW_BAD_SIZE,       /* got = data bytes announced, allowed = bytes for the shape and dtype */
    RLW_BAD_PREFIX,     /* a length prefix with a non-digit or a leading zero; got = the byte */
    RLW_BAD_END,        /* the byte after a netstring is not a comma; got = the byte */
    RLW_BAD_RESERVED,   /* a WebSocket frame with a reserved bit; got = its first byte */
    RLW_BAD_OPCODE,     /* got = the opcode of a WebSocket frame */
    RLW_BAD_CONTROL,    /* a fragmented control frame or a long payload; got = its opcode */
    RLW_BAD_LENGTH,     /* a WebSocket length in a longer form than needed, or >= 2**63; got = it */
    RLW_BAD_MASK,       /* got = whether the frame is masked, allowed = whether it must be */
    RLW_BAD_VARINT,     /* longer than ten bytes or 64 bits */
    RLW_BAD_TAG,        /* got = a protobuf tag with an invalid field number or wire type */
    RLW_BAD_WIRE,       /* got = the wire type of a known field, allowed = the expected one */
    RLW_BAD_PACKED,     /* got = bytes of a packed array that ends inside an element */
    RLW_BAD_PAYLOAD,    /* a tensor without a payload */
    RLW_BAD_UNKNOWN,    /* a shape with more than one negative dimension */
    RLW_BAD_ELEMENTS,   /* got = elements of a tensor, allowed = elements of its shape */
    RLW_BAD_EMPTY,      /* a required field is empty */
    RLW_BAD_CHARACTER,  /* got = a byte that the field does not allow */
    RLW_BAD_WORD,       /* not one of the field's keywords */
    RLW_BAD_INTEGER,    /* text that is not an integer, or is out of range */
    RLW_BAD_NUMBER,     /* text that is not a number */
    RLW_BAD_DIMENSION,  /* a dimension that is not an integer of at least 0; got = its index */
    RLW_BAD_TIMESTAMP,  /* got = bytes; not 4, 8 or 12, or they hold 10**9 ns or more */
    RLW_BAD_PICKLE,     /* an array of objects, which is a pickle */
    RLW_BAD_FRAME_SIZE, /* got = bytes of an HTTP/2 frame, allowed = the size for its type */
    RLW_BAD_STREAM,     /* got = stream of an HTTP/2 frame whose type needs one, or allows none */
    RLW_BAD_PADDING,    /* got = bytes of padding, allowed = what is left of the frame */
    RLW_BAD_SETTING,    /* got = the value of an HTTP/2 setting, allowed = the nearest valid one */
    RLW_BAD_INCREMENT,  /* an HTTP/2 window update by 0 bytes */
    RLW_BAD_WINDOW,     /* got = the resulting HTTP/2 window, allowed = the maximum */
    RLW_BAD_PUSH,       /* PUSH_PROMISE, which is never enabled */
    RLW_BAD_COMPRESSED, /* got = the first byte of a gRPC message, which must be 0 */
    RLW_BAD_PLACE,      /* got = where pixels end, allowed = where the area that holds them ends */
    RLW_BAD_ENCODING,   /* got = the unknown encoding of an RFB rectangle */
    RLW_BAD_SUBENCODING, /* got = the unknown sub-encoding byte of pixels */
    RLW_BAD_PALETTE,    /* got = an index into a palette, allowed = its number of colours */
    RLW_BAD_RUN,        /* got = pixels of a run, allowed = pixels left in its tile */
    RLW_BAD_INFLATED,   /* got = bytes after inflating, allowed = bytes expected */
    RLW_BAD_ZLIB,       /* not a zlib stream, or not a continuation of one */
    RLW_BAD_JPEG,       /* not a JPEG file of the expected size */
    RLW_TRAILING,       /* bytes after the end of the message; got = how many */
    RLW_OVER_MESSAGE,   /* limits: got = the size requested, allowed = the limit */
    RLW_OVER_DEPTH,
    RLW_OVER_ITEMS,
    RLW_OVER_DIMS,
    RLW_OVER_STRING,
    RLW_OVER_PIXELS,
    RLW_OVER_EXPANDED,
    RLW_OVER_DATAGRAM,
    RLW_OVER_FRAME,
    RLW_NO_MEMORY
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
    switch (status) {
    case RLW_OK: return "no error";
    case RLW_NEED_MORE: return "the message ends inside a field";
    case RLW_BAD_VERSION: return "unknown protocol version";
    case RLW_BAD_TYPE: return "unknown type byte";
    case RLW_BAD_COUNT: return "more items announced than the bytes left can hold";
    case RLW_BAD_BOOLEAN: return "a boolean is neither 0 nor 1";
    case RLW_BAD_TEXT: return "a string is not UTF-8";
    case RLW_BAD_DTYPE: return "not a plain dtype";
    case RLW_BAD_MODE: return "unknown image mode";
    case RLW_BAD_SHAPE: return "the product of the dimensions overflows";
    case RLW_BAD_SIZE: return "the data size does not match the shape";
    case RLW_BAD_PREFIX: return "a netstring length has a non-digit or a leading zero";
    case RLW_BAD_END: return "a netstring does not end in a comma";
    case RLW_BAD_RESERVED: return "a frame has a reserved bit set";
    case RLW_BAD_OPCODE: return "a frame has a reserved opcode";
    case RLW_BAD_CONTROL: return "a control frame is fragmented or longer than 125 bytes";
    case RLW_BAD_LENGTH: return "a frame length is not in its shortest form, or is 2**63 or more";
    case RLW_BAD_MASK: return "a server masked a frame, or a client did not";
    case RLW_BAD_VARINT: return "a varint is longer than 64 bits";
    case RLW_BAD_TAG: return "not a protobuf tag";
    case RLW_BAD_WIRE: return "a known field has the wrong wire type";
    case RLW_BAD_PACKED: return "a packed array ends inside an element";
    case RLW_BAD_PAYLOAD: return "a tensor without a payload";
    case RLW_BAD_UNKNOWN: return "a shape has more than one negative dimension";
    case RLW_BAD_ELEMENTS: return "the number of elements does not match the shape";
    case RLW_BAD_EMPTY: return "a required field is empty";
    case RLW_BAD_CHARACTER: return "a character that the field does not allow";
    case RLW_BAD_WORD: return "unknown keyword";
    case RLW_BAD_INTEGER: return "not an integer, or out of range";
    case RLW_BAD_NUMBER: return "not a number";
    case RLW_BAD_DIMENSION: return "a dimension is not an integer of at least 0";
    case RLW_BAD_TIMESTAMP: return "not a timestamp";
    case RLW_BAD_PICKLE:
        return "an array of objects is a pickle, which can run any code and is never loaded";
    case RLW_BAD_FRAME_SIZE: return "a frame's size is invalid for its type";
    case RLW_BAD_STREAM: return "a frame lacks the stream that its type needs, or must have none";
    case RLW_BAD_PADDING: return "a frame has more padding than room";
    case RLW_BAD_SETTING: return "a setting has an invalid value";
    case RLW_BAD_INCREMENT: return "a window update by 0 bytes";
    case RLW_BAD_WINDOW: return "a flow-control window of 2**31 bytes or more";
    case RLW_BAD_PUSH: return "a PUSH_PROMISE frame, but server push is disabled";
    case RLW_BAD_COMPRESSED: return "a compressed message, but no compression was agreed on";
    case RLW_BAD_PLACE: return "pixels lie outside their area";
    case RLW_BAD_ENCODING: return "a rectangle in an unknown encoding";
    case RLW_BAD_SUBENCODING: return "pixels in an unknown sub-encoding";
    case RLW_BAD_PALETTE: return "an index past the end of its palette";
    case RLW_BAD_RUN: return "a run past the end of its tile";
    case RLW_BAD_INFLATED: return "inflated pixels have the wrong size";
    case RLW_BAD_ZLIB: return "not a zlib stream";
    case RLW_BAD_JPEG: return "not a JPEG of the rectangle's size";
    case RLW_TRAILING: return "bytes after the end of the message";
    case RLW_OVER_MESSAGE: return "message over its limit";
    case RLW_OVER_DEPTH: return "nesting over its limit";
    case RLW_OVER_ITEMS: return "number of items over its limit";
    case RLW_OVER_DIMS: return "number of dimensions over its limit";
    case RLW_OVER_STRING: return "string over its limit";
    case RLW_OVER_PIXELS: return "image over its limit";
    case RLW_OVER_EXPANDED: return "decoded size over its limit";
    case RLW_OVER_DATAGRAM: return "datagram over its limit";
    case RLW_OVER_FRAME: return "frame over its limit";
    case RLW_NO_MEMORY: return "out of memory";
    }
    return "unknown status";
}

#endif

/* What a kernel reports: a status, and where and why it stopped.
 *
 * Kernels never allocate for an error and never print; the caller turns an rlw_fault into an
 * exception (rlwire/codecs/_glue.pyx) or a line of text (rlw_status_text).
 */
#ifndef RLWIRE_STATUS_H
#define RLWIRE_STATUS_H

#include <stdint.h>

typedef enum rlw_status {
    RLW_OK = 0,
    RLW_NEED_MORE,      /* the input ends inside a field; got = bytes needed, allowed = bytes left */
    RLW_BAD_VERSION,    /* got = the version, allowed = the one we speak */
    RLW_BAD_TYPE,       /* got = the type byte */
    RLW_BAD_COUNT,      /* got = items announced, allowed = what the bytes left can hold */
    RLW_BAD_BOOLEAN,    /* got = the byte */
    RLW_BAD_TEXT,       /* not UTF-8; got = index of the first bad byte in the text */
    RLW_BAD_DTYPE,      /* not a plain dtype; got: bytes of its text */
    RLW_BAD_MODE,       /* not a mode of the image table; got: bytes of its text */
    RLW_BAD_SHAPE,      /* the product of the dimensions passes 2**63 */
    RLW_BAD_SIZE,       /* got = data bytes announced, allowed = what shape and dtype ask for */
    RLW_BAD_PREFIX,     /* a length prefix that is not digits without a leading zero; got = byte */
    RLW_BAD_END,        /* the byte after a netstring is not a comma; got = the byte */
    RLW_BAD_RESERVED,   /* a WebSocket frame with a reserved bit; got = its first byte */
    RLW_BAD_OPCODE,     /* got = the opcode of a WebSocket frame */
    RLW_BAD_CONTROL,    /* a control frame in fragments or with a long payload; got = its opcode */
    RLW_BAD_LENGTH,     /* a WebSocket length in too many bytes or from 2**63 on; got = the length */
    RLW_BAD_MASK,       /* got = whether the frame is masked, allowed = whether it must be */
    RLW_BAD_VARINT,     /* longer than ten bytes or 64 bits */
    RLW_BAD_TAG,        /* got = a protobuf tag without a field number or with no wire type */
    RLW_BAD_WIRE,       /* got = the wire type of a known field, allowed = the one it has */
    RLW_BAD_PACKED,     /* got = bytes of a packed array, which ends inside an element */
    RLW_BAD_PAYLOAD,    /* a tensor without a payload */
    RLW_BAD_UNKNOWN,    /* a shape with more than one negative dimension */
    RLW_BAD_ELEMENTS,   /* got = elements of a tensor, allowed = what its shape asks for */
    RLW_BAD_EMPTY,      /* a text that must not be empty */
    RLW_BAD_CHARACTER,  /* got = a byte that the field must not have */
    RLW_BAD_WORD,       /* none of the words that may stand here */
    RLW_BAD_INTEGER,    /* text that is no integer within its range */
    RLW_BAD_NUMBER,     /* text that is no number */
    RLW_BAD_DIMENSION,  /* of a shape, no integer from 0 on; got = which one */
    RLW_BAD_TIMESTAMP,  /* got = its bytes, which are not 4, 8 or 12, or hold 10**9 ns or more */
    RLW_BAD_PICKLE,     /* an array of objects, which is a pickle */
    RLW_BAD_FRAME_SIZE, /* got = bytes of an HTTP/2 frame, allowed = what it may have */
    RLW_BAD_STREAM,     /* got = the stream of an HTTP/2 frame that must have none, or must have one */
    RLW_BAD_PADDING,    /* got = bytes of padding, allowed = what is left of the frame */
    RLW_BAD_SETTING,    /* got = the value of a setting of HTTP/2, allowed = the nearest */
    RLW_BAD_INCREMENT,  /* a window of HTTP/2 is opened by 0 bytes */
    RLW_BAD_WINDOW,     /* got = what a window of HTTP/2 would be, allowed = the most */
    RLW_BAD_PUSH,       /* PUSH_PROMISE, which nobody here allows */
    RLW_BAD_COMPRESSED, /* got = the first byte of a gRPC message, which is not 0 */
    RLW_BAD_PLACE,      /* pixels outside of what they must be in; got = where they end */
    RLW_BAD_ENCODING,   /* got = the encoding of an RFB rectangle, which is unknown */
    RLW_BAD_SUBENCODING, /* got = the byte that says how pixels are encoded, which is unknown */
    RLW_BAD_PALETTE,    /* got = an index into a palette, allowed = its colours */
    RLW_BAD_RUN,        /* got = pixels of a run, allowed = what is left of its tile */
    RLW_BAD_INFLATED,   /* got = bytes after inflating, allowed = what there must be */
    RLW_BAD_ZLIB,       /* not a zlib stream, or not its continuation */
    RLW_BAD_JPEG,       /* not a JPEG file of the size that it must have */
    RLW_TRAILING,       /* bytes after the end of the message; got = how many */
    RLW_OVER_MESSAGE,   /* limits: got = the size asked for, allowed = the limit */
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

/* A static sentence; the numbers of the fault complete it. */
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
    case RLW_BAD_SIZE: return "the data size does not fit the shape";
    case RLW_BAD_PREFIX: return "a netstring length is not digits without a leading zero";
    case RLW_BAD_END: return "a netstring does not end in a comma";
    case RLW_BAD_RESERVED: return "a frame with a reserved bit";
    case RLW_BAD_OPCODE: return "a frame with a reserved opcode";
    case RLW_BAD_CONTROL: return "a control frame in fragments or longer than 125 bytes";
    case RLW_BAD_LENGTH: return "a frame length in more bytes than it needs, or from 2**63 on";
    case RLW_BAD_MASK: return "a frame masked by a server, or not masked by a client";
    case RLW_BAD_VARINT: return "a varint is longer than 64 bits";
    case RLW_BAD_TAG: return "not a protobuf tag";
    case RLW_BAD_WIRE: return "a known field has another wire type";
    case RLW_BAD_PACKED: return "a packed array ends inside an element";
    case RLW_BAD_PAYLOAD: return "a tensor without a payload";
    case RLW_BAD_UNKNOWN: return "a shape with more than one negative dimension";
    case RLW_BAD_ELEMENTS: return "the number of elements does not fit the shape";
    case RLW_BAD_EMPTY: return "a text that must not be empty";
    case RLW_BAD_CHARACTER: return "a character that the field must not have";
    case RLW_BAD_WORD: return "none of the words that may stand here";
    case RLW_BAD_INTEGER: return "not an integer within its range";
    case RLW_BAD_NUMBER: return "not a number";
    case RLW_BAD_DIMENSION: return "a dimension is not an integer from 0 on";
    case RLW_BAD_TIMESTAMP: return "not a timestamp";
    case RLW_BAD_PICKLE:
        return "an array of objects is a pickle, which can run any code and is never loaded";
    case RLW_BAD_FRAME_SIZE: return "a frame of a size that its type does not have";
    case RLW_BAD_STREAM: return "a frame with a stream where it must have none, or without one";
    case RLW_BAD_PADDING: return "more padding than the frame has room for";
    case RLW_BAD_SETTING: return "a setting with a value that it must not have";
    case RLW_BAD_INCREMENT: return "a window is opened by 0 bytes";
    case RLW_BAD_WINDOW: return "a window of 2**31 bytes or more";
    case RLW_BAD_PUSH: return "a frame of a type that is refused";
    case RLW_BAD_COMPRESSED: return "a message that is compressed, which was not agreed on";
    case RLW_BAD_PLACE: return "pixels outside of what they must be in";
    case RLW_BAD_ENCODING: return "a rectangle in an unknown encoding";
    case RLW_BAD_SUBENCODING: return "pixels in an unknown sub-encoding";
    case RLW_BAD_PALETTE: return "an index past the end of its palette";
    case RLW_BAD_RUN: return "a run past the end of its tile";
    case RLW_BAD_INFLATED: return "compressed pixels of another size";
    case RLW_BAD_ZLIB: return "not a zlib stream";
    case RLW_BAD_JPEG: return "not a JPEG of the rectangle's size";
    case RLW_TRAILING: return "bytes after the end of the message";
    case RLW_OVER_MESSAGE: return "message over its limit";
    case RLW_OVER_DEPTH: return "nesting over its limit";
    case RLW_OVER_ITEMS: return "number of items over its limit";
    case RLW_OVER_DIMS: return "number of dimensions over its limit";
    case RLW_OVER_STRING: return "string over its limit";
    case RLW_OVER_PIXELS: return "image over its limit";
    case RLW_OVER_EXPANDED: return "what decoding makes over its limit";
    case RLW_OVER_DATAGRAM: return "datagram over its limit";
    case RLW_OVER_FRAME: return "frame over its limit";
    case RLW_NO_MEMORY: return "out of memory";
    }
    return "unknown status";
}

#endif

/* All of rlwire's kernels: C11 or C++17, no Python. Programs that call numbers.h or
 * perlert.h also compile numbers.cpp. */
#ifndef RLWIRE_H
#define RLWIRE_H

#include "cursor.h"
#include "dm_env_rpc.h"
#include "dtype.h"
#include "endian.h"
#include "http2.h"
#include "image.h"
#include "msgpack.h"
#include "msgpack_array.h"
#include "netstring.h"
#include "number_list.h"
#include "numbers.h"
#include "perlert.h"
#include "protobuf.h"
#include "rfb.h"
#include "rfb_encode.h"
#include "rfb_pixels.h"
#include "rllink.h"
#include "rlx.h"
#include "status.h"
#include "ucs4.h"
#include "utf8.h"
#include "varint.h"
#include "websocket.h"
#include "writer.h"

#endif

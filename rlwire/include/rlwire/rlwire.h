/* All of rlwire's kernels: C11 or C++17, no Python. */
#ifndef RLWIRE_H
#define RLWIRE_H

#include "cursor.h"
#include "dtype.h"
#include "endian.h"
#include "image.h"
#include "netstring.h"
#include "rlx.h"
#include "status.h"
#include "utf8.h"
#include "writer.h"

#endif

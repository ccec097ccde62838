// How kernels bring lines that begin anywhere, and end anywhere, into packs of 16 bytes of shared
// memory, in any dialect.
#ifndef RETROGRAD_CODEGEN_PRELUDES_PART_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_PART_PRELUDE_H_

#include <string>

#include "codegen/print/kernel.h"

namespace retrograd {

// A part: the first `count` of the elements of 16 bytes that begin at from[i], and zeros behind
// them; count may be 0 or less, or more than there are in 16 bytes. What is not of these elements
// is read where it shares aligned 16 bytes with one of them.
//
// rg_copy_part(to, at, from, i, count): into to[at] of shared memory, of an aligned address, ahead
// of RG_COPIES_SENT as by rg_copy_ahead.
//
// rg_fetch_part(from, i, count, &part), then rg_settle_part(to, at, part): from any address, on its
// way between both.
//
// to + at is of 16 bytes' multiples. The part stands behind that of tensor cores.
std::string PartPrelude(Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_PART_PRELUDE_H_

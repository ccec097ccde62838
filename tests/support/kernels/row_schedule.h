// A schedule of a kernel that walks rows.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_ROW_SCHEDULE_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_ROW_SCHEDULE_H_

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

// Of blocks of 256 threads that keep their rows, each shared by so many threads.
inline Schedule RowSchedule(int64_t rows, int threads_per_row, int width) {
  Schedule s{.kind = Template::kRowReduction, .threads = 256, .vector_width = width};
  s.threads_per_row = threads_per_row;
  s.rows_per_block = 256 / threads_per_row;
  s.persistent = true;
  s.blocks = rows / s.rows_per_block;
  return s;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_ROW_SCHEDULE_H_

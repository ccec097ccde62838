// One small KernelIr a behaviour of the templates, in any floating dtype.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_EXAMPLES_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_EXAMPLES_H_

#include <string>
#include <vector>

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

struct KernelExample {
  std::string name;
  Template kind;
  KernelIr ir;
};

std::vector<KernelExample> KernelExamples(DType dtype);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_KERNEL_IR_EXAMPLES_H_

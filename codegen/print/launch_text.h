// One launch while its text grows: the body, and the arguments and shared arrays that it came to
// use.
#ifndef RETROGRAD_CODEGEN_PRINT_LAUNCH_TEXT_H_
#define RETROGRAD_CODEGEN_PRINT_LAUNCH_TEXT_H_

#include <string>
#include <vector>

#include "codegen/print/dialect.h"
#include "codegen/print/kernel.h"
#include "codegen/print/source_writer.h"

namespace retrograd {

class LaunchText {
 public:
  LaunchText(const KernelBody& body, Dialect dialect, int threads, int64_t blocks);

  const KernelBody& body() const { return body_; }
  const KernelIr& ir() const { return body_.ir; }
  const Schedule& schedule() const { return body_.schedule; }
  Dialect dialect() const { return dialect_; }
  int threads() const { return kernel_.threads; }
  int64_t blocks() const { return kernel_.blocks; }

  // Type of point numbers and offsets: 32 bits unless something could leave them.
  absl::string_view index_type() const { return wide_ ? "int64_t" : "int"; }
  void UseWideIndexAbove(int64_t largest_number);

  std::string BufferName(int buffer);  // "p3"; an argument from now on
  // The same for a value that is no buffer of the IR: the operand of a product.
  void Operand(absl::string_view name, DType dtype, ValueId value);
  std::string WorkspaceName(absl::string_view type);  // "w_float"; the workspace as this type
  // A shared array of this many elements; returns its name.
  std::string Shared(DType type, absl::string_view name, int64_t count);

  // The same, of memory that the launch asks for: rows that are loaded ahead. In bytes of 16 a
  // time.
  std::string Staged(DType type, absl::string_view name, int64_t count);

  // All threads of the block wait for each other.
  void Barrier();
  // The statements shuffle.
  void SetThreadsMeet() { kernel_.threads_meet = true; }

  // Opens a loop whose trip count is a constant; nothing is opened for a single trip.
  bool OpenUnrolled(absl::string_view variable, int64_t trips);

  SourceWriter out;

  // Another head than the plain one, and the part of the prelude by which such a kernel's threads
  // work together.
  void SetHead(KernelHead head, PreludePart part);
  // Blocks of a cluster, where the head says that there are such.
  void SetCluster(int blocks) { kernel_.cluster = blocks; }

  // The finished kernel; phase says which of the group's launches it is ("", "finalize").
  Kernel Finish(absl::string_view phase);

 private:
  int Argument(KernelArg arg);
  bool IsDeclared(absl::string_view name) const;

  const KernelBody& body_;
  Dialect dialect_;
  bool wide_ = false;
  Kernel kernel_;             // its statements are `out`
  std::vector<int> buffers_;  // in order of first use, for the header comment
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_LAUNCH_TEXT_H_

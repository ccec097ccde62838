// Writes one launch whose text is given, not printed from a KernelIr: its arguments, constants,
// shared arrays, then the text.
#ifndef RETROGRAD_CODEGEN_PRINT_LAUNCH_WRITER_H_
#define RETROGRAD_CODEGEN_PRINT_LAUNCH_WRITER_H_

#include <string>
#include <vector>

#include "codegen/print/dialect.h"
#include "codegen/print/kernel.h"
#include "codegen/print/source_writer.h"

namespace retrograd {

class LaunchWriter {
 public:
  // what: "grouped_matmul", for the line above the kernel.
  LaunchWriter(Dialect dialect, absl::string_view what);

  Dialect dialect() const { return dialect_; }
  SourceWriter& out() { return out_; }

  // The next argument: the address with the number `slot` of those that the launch is given.
  void Read(DType dtype, absl::string_view name, int slot);
  void Write(DType dtype, absl::string_view name, int slot);

  // An array that a block shares.
  void Shared(DType dtype, absl::string_view name, int64_t elements);
  // An array of memory that the launch asks for, from its first byte on. Arrays may overlap.
  void Staged(DType dtype, absl::string_view name, int64_t elements);
  // They shuffle, and may share no array.
  void ThreadsMeet() { kernel_.threads_meet = true; }
  void Uses(PreludePart part) { kernel_.parts |= part; }
  // It finds its addresses in a table, so that it may serve several sizes (Kernel::lifted).
  void TakesTable() { kernel_.direct = false; }
  // Before all text: the launch may start early behind others.
  void StartsEarly();
  // It multiplies by warpgroups, in clusters of so many blocks.
  void Multiplies(int cluster);
  // It loads boxes of so many operands, each described, and multiplies by warpgroups.
  void Boxes(int maps);

  struct Constant {
    std::string name;
    int64_t value;
  };
  void Constants(const std::vector<Constant>& constants);      // int
  void LongConstants(const std::vector<Constant>& constants);  // int64_t
  // As it stands, but for the dialect's word before loops that are unrolled: "RG_UNROLL": all of
  // the loop; "RG_UNROLL_8", "RG_UNROLL_kN": so many rounds at once.
  void Text(absl::string_view text);

  struct Launch {
    Kernel kernel;
    std::vector<int> slots;  // by the kernel's argument
  };
  Launch End(int64_t blocks, int64_t threads);

 private:
  void Argument(std::string type, absl::string_view name, int slot);
  std::string Unrolled(absl::string_view word) const;

  const Dialect dialect_;
  const absl::string_view unroll_;
  SourceWriter out_;
  Kernel kernel_;
  std::vector<int> slots_;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_LAUNCH_WRITER_H_

// Texts that both launches of a scatter_add have in common: which thread works on what, and where
// sums lie in the table and in the workspace.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_SCATTER_TEXT_H_
#define RETROGRAD_CODEGEN_TEMPLATES_SCATTER_TEXT_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "codegen/print/kernel.h"
#include "codegen/print/source_writer.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {

struct ScatterText {
  ScatterWorkspace workspace;
  int64_t table_rows = 0;
  int width = 1;        // inner columns of a thread
  int64_t vectors = 1;  // of a row
  ChunkThreads threads;
  DType stored = DType::kFp32;
  DType accumulator = DType::kFp32;
  std::optional<DType> onto;  // of what sums are added onto; none: onto zeros
  int base_lanes = 1;         // of one access to it
  std::string index;          // type of point numbers
  std::string words;          // the sorted list
  std::string table;          // what is written
  std::string base;           // what it is added onto
  std::string partials;       // the workspace

  int64_t table_vectors() const { return workspace.outer * table_rows * vectors; }
  int64_t slice_vectors() const { return workspace.chunks * vectors; }
  int64_t slice_threads() const { return workspace.chunks * threads.count(); }

  // "o", `middle` of which stand in it, and "i" from the number n of a vector.
  void PrintSplit(int64_t middle, absl::string_view name, SourceWriter& out) const;
  // The same of thread n, where `each` of them go through a chunk.
  void PrintSplit(int64_t middle, absl::string_view name, int64_t each, SourceWriter& out) const;
  // The column of vector n of a row, where there are several; of thread n of a chunk.
  void PrintColumn(SourceWriter& out) const;
  void PrintColumnOfThread(SourceWriter& out) const;

  // Of the sorted list: the pair at a position, the row that its index names, a row's first
  // position.
  std::string Pair(absl::string_view position) const;
  std::string Key(absl::string_view position) const;
  std::string Start(absl::string_view row) const;

  std::string TableElement() const;  // of (o, key, i)
  std::string PartialElement(absl::string_view chunk, absl::string_view slot) const;

  // Sums of one vector.
  std::string Declare(absl::string_view name, int64_t count) const;
  std::string Store(absl::string_view to, absl::string_view at) const;  // "sum"
  bool TakesAccesses() const;  // storing a vector takes several
  // Into the table, added onto the base's elements at its place.
  std::string StoreOnto(absl::string_view at) const;
  // These elements, into an array's place.
  std::string LoadBase(absl::string_view at, absl::string_view to) const;
  // As partial sums, whose vector may be several accesses.
  std::string StorePartial(absl::string_view to, absl::string_view at) const;
  std::string LoadPartial(absl::string_view at, absl::string_view to) const;

 private:
  // What `print` gives for each access of a vector of sums that lie as `type`: its lanes, and " +
  // n" behind the first.
  std::string InAccesses(
      DType type, absl::FunctionRef<std::string(int lanes, absl::string_view from)> print) const;
  std::string InAccesses(
      int lanes, absl::FunctionRef<std::string(int lanes, absl::string_view from)> print) const;
};
ScatterText ScatterTextOf(const KernelBody& body);

// What the offsets of its launches reach, so many blocks of which sum.
int64_t ReachOf(const ScatterText& text, int64_t blocks);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_SCATTER_TEXT_H_

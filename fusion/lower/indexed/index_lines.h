// What an index does, as a few straight lines: which of its places name which row of a table.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_INDEX_LINES_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_INDEX_LINES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace retrograd {

// The places `at`, but at[axis] = first + i * step, name the rows row + i * stride, 0 <= i < count.
struct IndexLine {
  std::vector<int64_t> at;
  int axis = 0;
  int64_t first = 0, step = 1, row = 0, stride = 1, count = 0;
};

// Some axes of an index, which alone decide the coordinate along one axis of the table.
struct IndexFactor {
  std::vector<int64_t> extents;  // of these axes of the index
  int64_t rows = 0;              // of the table's axis
  std::vector<int64_t> values;   // by place: the row, -1 for none
};

// The table of `rows` rows as a tensor of several axes, where different axes of the index decide
// them: `values` of row r along the first and s along the second is r * (rows of the second) + s.
std::vector<IndexFactor> Factors(IndexFactor index);

// Every place that names a row is on one line. Lines that name one row stand in the order of
// their places. nullopt: there are more than max_lines.
std::optional<std::vector<IndexLine>> LinesOf(const IndexFactor& index, int64_t max_lines);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_INDEX_LINES_H_

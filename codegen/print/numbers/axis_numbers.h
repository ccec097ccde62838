// Where a point stands, as source text: coordinates of axes, and sums of them that say where its
// elements lie.
//
// A template numbers the points of some axes row-major: the number `i` of axes of 4 x 15 x 15. The
// number of the axes up to one of them is a quotient of it, i / 15, and a coordinate is the
// remainder of such a quotient. An offset is a sum of coordinates or, as well, of quotients: that
// of a dense tensor is the number itself, and others spare the remainders. Which of both has fewer
// terms is printed.
//
// Numbers are divided as unsigned ones, which takes half of the instructions. A coordinate that an
// expression divides once more is the remainder of a signed one: where compilers know that a number
// is short, they divide it in 8 or 16 bits, which takes a GPU more instructions than 32.
#ifndef RETROGRAD_CODEGEN_PRINT_NUMBERS_AXIS_NUMBERS_H_
#define RETROGRAD_CODEGEN_PRINT_NUMBERS_AXIS_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// What a text needs to know of axes.
struct AxisUse {
  AxisMask axes = 0;         // all that it mentions
  AxisMask coordinates = 0;  // those that it mentions other than as terms of offsets
  AxisMask divided = 0;      // of those, what it divides once more
  std::vector<IndexExpr> offsets;

  void AddCoordinates(AxisMask mask) { axes |= mask, coordinates |= mask; }
  void AddGuard(const IndexExpr& e);
  void AddOffset(const IndexExpr& e);
  void Add(const AxisUse& other);
};

// A lane of several that stand along an axis: `plus` is behind the coordinate; "" the first one.
struct AxisLane {
  int axis = -1;
  std::string plus;
};

class AxisNumbers {
 public:
  explicit AxisNumbers(absl::Span<const int64_t> extents);

  // The axis's coordinate is this text.
  void Set(int axis, std::string text);
  // Declarations of what is used of the axes of `mask`, whose points `number` counts; it is an
  // expression of type `index_type`, "int" or "int64_t".
  std::vector<std::string> Declare(AxisMask mask, const AxisUse& use, absl::string_view number,
                                   absl::string_view index_type);

  // By axis. A coordinate without a declaration is spelled out.
  std::vector<std::string> Coordinates(const AxisLane& lane) const;
  // The value of the expression, of the type of indices.
  std::string Offset(const IndexExpr& e, const AxisLane& lane) const;

 private:
  // How an expression depends on axes that one number counts.
  struct Terms {
    std::vector<int> axes;                        // of several points, the outermost first
    std::vector<int64_t> coordinates, quotients;  // coefficients, of the one or the other
    bool by_quotients = false;                    // of which fewer are not 0
  };
  struct Place {
    std::string coordinate;
    AxisMask mask = 0;     // of the axes that are counted together; 0: none
    std::string quotient;  // number of the axes up to this one, unsigned
    std::string number;    // of the innermost axis: the number itself, if it has a name
  };
  struct Used {
    AxisMask coordinates = 0, quotients = 0;
  };
  std::vector<int> Several(AxisMask mask) const;
  Terms TermsOf(const IndexExpr& e, AxisMask mask) const;
  Used UsedOf(absl::Span<const int> axes, AxisMask mask, const AxisUse& use) const;
  bool IsNumber(const Terms& terms) const;

  std::vector<int64_t> extents_;
  std::vector<Place> places_;
  std::string index_type_ = "int";
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_NUMBERS_AXIS_NUMBERS_H_

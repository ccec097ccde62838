// Sizes as people read them.
#include "absl/strings/str_cat.h"
#include "graph/symbols/size_table.h"

namespace retrograd {
namespace {

constexpr size_t kMaxBytes = 500;

class Printer {
 public:
  explicit Printer(const SizeTable& table) : table_(table) {}

  void Append(const SizePolynomial& polynomial) {
    if (polynomial.empty()) text_ += "0";
    for (size_t i = 0; i < polynomial.size() && !Full(); ++i) {
      const int64_t coefficient = polynomial[i].coefficient;
      if (i > 0) {
        text_ += coefficient < 0 ? " - " : " + ";
      } else if (coefficient < 0) {
        text_ += "-";
      }
      Append(polynomial[i]);
    }
  }

  std::string Take() && {
    if (Full()) text_ = absl::StrCat(text_.substr(0, kMaxBytes - 4), " ...");
    return std::move(text_);
  }

 private:
  bool Full() const { return text_.size() > kMaxBytes; }

  // Without its sign.
  void Append(const SizeTerm& term) {
    const uint64_t size = term.coefficient < 0 ? 0 - static_cast<uint64_t>(term.coefficient)
                                               : static_cast<uint64_t>(term.coefficient);
    if (size != 1 || term.atoms.empty()) absl::StrAppend(&text_, size);
    for (size_t i = 0; i < term.atoms.size() && !Full(); ++i) {
      if (i > 0 || size != 1) text_ += "*";
      Append(table_.atoms[term.atoms[i]]);
    }
  }

  void Append(const SizeAtom& atom) {
    switch (atom.kind) {
      case SizeAtomKind::kSymbol: text_ += table_.symbols[atom.symbol].name; return;
      case SizeAtomKind::kFloorDiv: return Append("floor((", atom, ") / (", "))");
      case SizeAtomKind::kModulo: return Append("mod(", atom, ", ", ")");
      case SizeAtomKind::kMaximum: return Append("max(", atom, ", ", ")");
    }
  }

  void Append(const char* before, const SizeAtom& atom, const char* between, const char* behind) {
    if (Full()) return;
    text_ += before;
    Append(atom.left);
    text_ += between;
    Append(atom.right);
    text_ += behind;
  }

  const SizeTable& table_;
  std::string text_;
};

}  // namespace

std::string Print(const SizeTable& table, const SizePolynomial& polynomial) {
  Printer printer(table);
  printer.Append(polynomial);
  return std::move(printer).Take();
}

}  // namespace retrograd

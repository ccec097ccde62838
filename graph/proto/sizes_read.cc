#include "graph/proto/sizes_read.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto_scan.h"
#include "graph/symbols/bindings.h"
#include "graph/symbols/size_values.h"
#include "graph/symbols/substitute.h"

namespace retrograd {
namespace {

constexpr int kMaxSymbols = 1024;
constexpr uint32_t kMaxTerms = 1u << 18;  // of all polynomials together

absl::Status BadTable(absl::string_view what) { return Malformed(Malformation::kSizeTable, what); }

// Adds the terms of the message's polynomials to `terms`, on bytes that have been scanned.
absl::Status CountTerms(const google::protobuf::Descriptor& message, absl::string_view bytes,
                        uint32_t& terms) {
  while (!bytes.empty()) {
    WireField wire;
    RG_RETURN_IF_ERROR(ReadWireField(bytes, wire));
    const auto* field = message.FindFieldByNumber(static_cast<int>(wire.number));
    if (field == nullptr || field->message_type() == nullptr) continue;
    if (field->message_type() != v1::SizeTerm::descriptor()) {
      RG_RETURN_IF_ERROR(CountTerms(*field->message_type(), wire.payload, terms));
    } else if (++terms > kMaxTerms) {
      return Malformed(Malformation::kTooMany,
                       absl::StrCat("the sizes have more than ", kMaxTerms, " terms"));
    }
  }
  return absl::OkStatus();
}

class Reader {
 public:
  absl::StatusOr<SizeTable> Read(const v1::Sizes& sizes) {
    RG_RETURN_IF_ERROR(ReadSymbols(sizes));
    for (const v1::SizeAtom& atom : sizes.atoms()) RG_RETURN_IF_ERROR(ReadAtom(atom));
    for (const v1::SizePolynomial& polynomial : sizes.polynomials()) {
      table_.polynomials.emplace_back();
      RG_RETURN_IF_ERROR(ReadPolynomial(polynomial, table_.polynomials.back()));
    }
    for (const v1::SizeFact& fact : sizes.facts()) RG_RETURN_IF_ERROR(ReadFact(fact));
    table_.places.reserve(sizes.places_size());
    for (const v1::SizePlace& place : sizes.places()) RG_RETURN_IF_ERROR(ReadPlace(place));
    return std::move(table_);
  }

 private:
  absl::Status ReadSymbols(const v1::Sizes& sizes) {
    if (sizes.symbols_size() > kMaxSymbols) {
      return Malformed(Malformation::kTooMany,
                       absl::StrCat(sizes.symbols_size(), " symbols; at most ", kMaxSymbols));
    }
    absl::flat_hash_set<std::string> names;
    for (const v1::SizeSymbol& s : sizes.symbols()) {
      SizeSymbol symbol = {s.name(), s.min(), s.max(), s.multiple_of(), s.hint()};
      if (symbol.name.empty() || symbol.name.find_first_of("=, ") != std::string::npos) {
        return BadTable("a symbol's name is empty or has a comma, a space or an equals sign");
      }
      if (!names.insert(symbol.name).second) {
        return BadTable(absl::StrCat("two symbols are called ", symbol.name));
      }
      if (symbol.multiple_of < 1) {
        return BadTable(absl::StrCat(symbol.name, " is a multiple of ", symbol.multiple_of));
      }
      if (symbol.hint < symbol.min || symbol.hint > symbol.max ||
          symbol.hint % symbol.multiple_of != 0) {
        return BadTable(absl::StrCat("the hint of ", Print(symbol), " is none of its numbers"));
      }
      table_.symbols.push_back(std::move(symbol));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAtom(const v1::SizeAtom& atom) {
    const int kind = static_cast<int>(atom.kind());
    if (kind < v1::SIZE_ATOM_SYMBOL || kind > v1::SIZE_ATOM_MAXIMUM) {
      return BadTable(absl::StrCat("atom ", table_.atoms.size(), " is of kind ", kind));
    }
    SizeAtom made = {static_cast<SizeAtomKind>(kind), atom.symbol(), {}, {}};
    if (made.kind == SizeAtomKind::kSymbol && made.symbol >= table_.symbols.size()) {
      return BadTable(absl::StrCat("atom ", table_.atoms.size(), " is symbol ", made.symbol, " of ",
                                   table_.symbols.size()));
    }
    RG_RETURN_IF_ERROR(ReadPolynomial(atom.left(), made.left));
    RG_RETURN_IF_ERROR(ReadPolynomial(atom.right(), made.right));
    table_.atoms.push_back(std::move(made));
    return absl::OkStatus();
  }

  // Of the atoms that have been read.
  absl::Status ReadPolynomial(const v1::SizePolynomial& polynomial, SizePolynomial& made) const {
    for (const v1::SizeTerm& term : polynomial.terms()) {
      for (uint32_t atom : term.atoms()) {
        if (atom >= table_.atoms.size()) {
          return BadTable(absl::StrCat("a size is made of atom ", atom, " where ",
                                       table_.atoms.size(), " stand before it"));
        }
      }
      made.push_back({term.coefficient(), {term.atoms().begin(), term.atoms().end()}});
    }
    return absl::OkStatus();
  }

  absl::Status ReadFact(const v1::SizeFact& fact) {
    const int relation = static_cast<int>(fact.relation());
    if (relation < v1::SIZE_RELATION_ZERO || relation > v1::SIZE_RELATION_NOT_NEGATIVE) {
      return BadTable(absl::StrCat("fact ", table_.facts.size(), " is of relation ", relation));
    }
    RG_RETURN_IF_ERROR(CheckPolynomial(fact.polynomial()));
    table_.facts.push_back(
        {static_cast<SizeRelation>(relation), fact.polynomial(), fact.assumed_for()});
    return absl::OkStatus();
  }

  absl::Status ReadPlace(const v1::SizePlace& place) {
    const int field = static_cast<int>(place.field());
    if (field < v1::SIZE_FIELD_DIM || field > v1::SIZE_FIELD_OUTPUT_STRIDE) {
      return Malformed(Malformation::kSizePlace, absl::StrCat("place ", table_.places.size(),
                                                              " of the sizes is of field ", field));
    }
    RG_RETURN_IF_ERROR(CheckPolynomial(place.polynomial()));
    if (place.divisor() != 0) RG_RETURN_IF_ERROR(CheckPolynomial(place.divisor() - 1));
    table_.places.push_back({static_cast<SizeField>(field), place.owner(), place.part(),
                             place.element(), place.polynomial(), place.divisor()});
    return absl::OkStatus();
  }

  absl::Status CheckPolynomial(uint32_t polynomial) const {
    if (polynomial < table_.polynomials.size()) return absl::OkStatus();
    return BadTable(absl::StrCat("size ", polynomial, " of ", table_.polynomials.size()));
  }

  SizeTable table_;
};

}  // namespace

absl::StatusOr<SizeTable> ReadSizes(absl::string_view bytes) {
  static const MessageFields& fields = FieldsOf(*v1::Sizes::descriptor());
  absl::Status status = ScanMessage(fields, bytes);
  uint32_t terms = 0;
  if (status.ok()) status = CountTerms(*v1::Sizes::descriptor(), bytes, terms);
  v1::Sizes sizes;
  if (status.ok() && !sizes.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    status = Malformed(Malformation::kNotAGraph, "not a graph file: no Sizes");
  }
  if (!status.ok()) return At("the sizes", status);
  absl::StatusOr<SizeTable> table = Reader().Read(sizes);
  if (!table.ok()) return At("the sizes", table.status());
  return table;
}

absl::Status CheckSizes(const BackwardGraph& graph, const SizeTable& table) {
  std::vector<int64_t> hints;
  for (const SizeSymbol& symbol : table.symbols) hints.push_back(symbol.hint);
  const absl::StatusOr<std::vector<int64_t>> values = EvaluateSizes(table, hints);
  absl::Status status = values.status();
  if (status.ok()) status = CheckFacts(table, *values);
  if (!status.ok()) return Malformed(Malformation::kSizeHint, status.message());
  return CheckPlaces(graph, table, *values);
}

}  // namespace retrograd

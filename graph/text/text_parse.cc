#include <cctype>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/text/text.h"

namespace retrograd {
namespace {

absl::Status Syntax(absl::string_view what) { return Malformed(Malformation::kTextSyntax, what); }

// What a line is made of besides its first words.
struct LineParts {
  std::vector<absl::string_view> references;  // %3, %dy.1, as written
  std::vector<std::pair<absl::string_view, AttrValue>> attrs;
  std::vector<TensorType> types;
  std::vector<absl::string_view> words;  // anything else that is bare
  int origin = -1;                       // from the comment
};

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Cuts one line into its parts.
class LineScanner {
 public:
  explicit LineScanner(absl::string_view line) : rest_(line) {}

  absl::StatusOr<LineParts> Scan() {
    LineParts parts;
    while (true) {
      SkipSpace();
      if (rest_.empty() || rest_[0] == '#') return parts;
      if (rest_[0] == ';') {
        RG_RETURN_IF_ERROR(ScanComment(parts));
        return parts;
      }
      RG_RETURN_IF_ERROR(ScanPart(parts));
    }
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) {
      rest_.remove_prefix(1);
    }
  }

  // Characters up to one that `stops` names or white space.
  absl::string_view Bare(const char* stops) {
    size_t end = 0;
    while (end < rest_.size() && !std::isspace(static_cast<unsigned char>(rest_[end])) &&
           std::strchr(stops, rest_[end]) == nullptr) {
      ++end;
    }
    absl::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return word;
  }

  absl::Status ScanComment(LineParts& parts) {
    const size_t at = rest_.find('@');
    if (at == absl::string_view::npos) return absl::OkStatus();
    absl::string_view digits = rest_.substr(at + 1);
    size_t end = 0;
    while (end < digits.size() && std::isdigit(static_cast<unsigned char>(digits[end]))) ++end;
    if (end == 0) return absl::OkStatus();  // an at sign in prose
    if (!absl::SimpleAtoi(digits.substr(0, end), &parts.origin)) {
      return Malformed(Malformation::kOriginIndex, "the origin after @ is no small number");
    }
    return absl::OkStatus();
  }

  absl::Status ScanPart(LineParts& parts) {
    if (rest_[0] == '"') {
      RG_ASSIGN_OR_RETURN(std::string text, ScanString());
      parts.attrs.emplace_back("", std::move(text));
      return absl::OkStatus();
    }
    const absl::string_view word = Bare("=[;\"");
    if (!word.empty() && word[0] == '%') {
      parts.references.push_back(word);
      return absl::OkStatus();
    }
    if (!rest_.empty() && rest_[0] == '=' && !word.empty()) {
      rest_.remove_prefix(1);
      RG_ASSIGN_OR_RETURN(AttrValue value, ScanValue());
      parts.attrs.emplace_back(word, std::move(value));
      return absl::OkStatus();
    }
    if (!rest_.empty() && rest_[0] == '[') {
      const std::optional<DType> dtype = DTypeByName(word);
      if (!dtype.has_value()) {
        return Malformed(Malformation::kUnknownDType,
                         absl::StrCat(Quote(word.substr(0, 40)), " is no dtype"));
      }
      RG_ASSIGN_OR_RETURN(std::vector<int64_t> shape, ScanInts());
      parts.types.push_back({*dtype, std::move(shape)});
      return absl::OkStatus();
    }
    if (word.empty()) return Syntax(absl::StrCat("'", rest_.substr(0, 1), "' stands alone"));
    parts.words.push_back(word);
    return absl::OkStatus();
  }

  absl::StatusOr<AttrValue> ScanValue() {
    if (rest_.empty()) return Syntax("a value is missing after =");
    if (rest_[0] == '"') {
      RG_ASSIGN_OR_RETURN(std::string text, ScanString());
      return AttrValue(std::move(text));
    }
    if (rest_[0] == '[') {
      RG_ASSIGN_OR_RETURN(std::vector<int64_t> list, ScanInts());
      return AttrValue(std::move(list));
    }
    const absl::string_view word = Bare(";");
    if (word.empty()) return Syntax("a value is missing after =");
    int64_t integer;
    if (absl::SimpleAtoi(word, &integer)) return AttrValue(integer);
    double number;
    if (absl::SimpleAtod(word, &number)) return AttrValue(number);
    return AttrValue(std::string(word));
  }

  absl::StatusOr<std::vector<int64_t>> ScanInts() {
    const size_t close = rest_.find(']');
    if (close == absl::string_view::npos) return Syntax("a list is not closed by ]");
    absl::string_view body = rest_.substr(1, close - 1);
    rest_.remove_prefix(close + 1);
    std::vector<int64_t> list;
    while (!body.empty()) {
      const size_t comma = body.find(',');
      int64_t value;
      if (!absl::SimpleAtoi(body.substr(0, comma), &value)) {
        return Syntax("a list holds something that is no 64-bit integer");
      }
      list.push_back(value);
      if (comma == absl::string_view::npos) break;
      body.remove_prefix(comma + 1);
      if (body.empty()) return Syntax("a list ends with a comma");
    }
    return list;
  }

  absl::StatusOr<std::string> ScanString() {
    std::string text;
    for (size_t i = 1; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (c == '"') {
        rest_.remove_prefix(i + 1);
        return text;
      }
      if (c != '\\') {
        text += c;
        continue;
      }
      if (++i == rest_.size()) break;
      if (rest_[i] != 'x') {
        text += rest_[i];
        continue;
      }
      int byte = 0;
      for (int digit = 0; digit < 2; ++digit) {
        if (++i >= rest_.size() || !std::isxdigit(static_cast<unsigned char>(rest_[i]))) {
          return Syntax("\\x needs two hexadecimal digits");
        }
        const char d = static_cast<char>(std::tolower(static_cast<unsigned char>(rest_[i])));
        byte = byte * 16 + (d <= '9' ? d - '0' : d - 'a' + 10);
      }
      text += static_cast<char>(byte);
    }
    return Syntax("a string is not closed");
  }

  absl::string_view rest_;
};

class GraphParser {
 public:
  absl::StatusOr<BackwardGraph> Parse(absl::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const absl::string_view line = text.substr(0, end);
      text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
      ++number;
      absl::Status status = ParseLine(absl::StripAsciiWhitespace(line));
      if (!status.ok()) return At(absl::StrCat("line ", number), status);
    }
    if (builder_->num_nodes() == 0) return Syntax("the text has no node");
    return builder_->Build();
  }

 private:
  absl::Status ParseLine(absl::string_view line) {
    if (line.empty() || line[0] == '#' || line[0] == ';') return absl::OkStatus();
    if (line[0] == '%') return ParseNode(line);
    LineScanner scanner(line);
    RG_ASSIGN_OR_RETURN(LineParts parts, scanner.Scan());
    const absl::string_view keyword = parts.words.empty() ? "" : parts.words[0];
    if (keyword == "graph") return ParseName(parts);
    if (keyword == "numerics") return ParseNumerics(parts);
    if (keyword == "origin") return ParseOrigin(parts);
    if (keyword == "output") return ParseOutput(parts);
    return Syntax("a line starts with %name, graph, numerics, origin or output");
  }

  absl::Status ParseName(const LineParts& parts) {
    if (parts.attrs.size() != 1 || !parts.attrs[0].first.empty()) {
      return Syntax("a graph line has the form: graph \"name\"");
    }
    if (builder_->num_nodes() > 0 || named_) return Syntax("the graph line comes first");
    named_ = true;
    builder_ = std::make_unique<GraphBuilder>(std::get<std::string>(parts.attrs[0].second));
    return builder_->status();
  }

  absl::Status ParseNumerics(const LineParts& parts) {
    Numerics numerics;
    for (const auto& [name, value] : parts.attrs) {
      if (name == "tf32") {
        RG_RETURN_IF_ERROR(ReadFlag(name, value, numerics.allow_tf32));
      } else if (name == "reduced_precision") {
        RG_RETURN_IF_ERROR(ReadFlag(name, value, numerics.allow_reduced_precision_reduction));
      } else if (name == "deterministic") {
        RG_RETURN_IF_ERROR(ReadFlag(name, value, numerics.deterministic));
      } else if (name == "framework") {
        RG_RETURN_IF_ERROR(ReadString(name, value, numerics.framework));
      } else {
        return Unknown(name);
      }
    }
    builder_->SetNumerics(std::move(numerics));
    return builder_->status();
  }

  absl::Status ParseOrigin(const LineParts& parts) {
    if (parts.words.size() != 2 || parts.words[1] != absl::StrCat("@", num_origins_)) {
      return Syntax(absl::StrCat("the next origin line starts: origin @", num_origins_));
    }
    Origin origin;
    for (const auto& [name, value] : parts.attrs) {
      if (name == "op") {
        RG_RETURN_IF_ERROR(ReadString(name, value, origin.op));
      } else if (name == "instance") {
        RG_RETURN_IF_ERROR(ReadInt(name, value, origin.instance));
      } else if (name == "module") {
        RG_RETURN_IF_ERROR(ReadString(name, value, origin.module_path));
      } else if (name == "source") {
        RG_RETURN_IF_ERROR(ReadString(name, value, origin.source));
      } else if (name == "recomputed") {
        RG_RETURN_IF_ERROR(ReadFlag(name, value, origin.recomputed));
      } else {
        return Unknown(name);
      }
    }
    ++num_origins_;
    builder_->AddOrigin(std::move(origin));
    return builder_->status();
  }

  absl::Status ParseOutput(const LineParts& parts) {
    const bool absent = parts.words.size() == 2 && parts.words[1] == "none";
    if (parts.references.size() + (absent ? 1 : 0) != 1 || (!absent && parts.words.size() != 1)) {
      return Syntax("an output line names one value or none");
    }
    std::string name;
    std::vector<int64_t> strides;
    for (const auto& [key, value] : parts.attrs) {
      if (key == "name") {
        RG_RETURN_IF_ERROR(ReadString(key, value, name));
      } else if (key == "strides") {
        RG_RETURN_IF_ERROR(ReadInts(key, value, strides));
      } else {
        return Unknown(key);
      }
    }
    if (absent) {
      if (!strides.empty()) return Syntax("an absent output has no strides");
      builder_->AbsentOutput(std::move(name));
      return builder_->status();
    }
    RG_ASSIGN_OR_RETURN(const ValueId value, Resolve(parts.references[0]));
    builder_->Output(value, std::move(name), std::move(strides));
    return builder_->status();
  }

  absl::Status ParseNode(absl::string_view line) {
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) return Syntax("a node has the form: %name = op ...");
    absl::string_view name = absl::StripAsciiWhitespace(line.substr(1, equals - 1));
    int declared_results = -1;
    if (const size_t colon = name.find(':'); colon != absl::string_view::npos) {
      if (!absl::SimpleAtoi(name.substr(colon + 1), &declared_results)) {
        return Syntax("after the colon stands the number of results");
      }
      name = name.substr(0, colon);
    }
    for (char c : name) {
      if (!IsNameChar(c)) return Syntax("a name has letters, digits and underscores");
    }
    if (name.empty()) return Syntax("a node needs a name after %");
    if (ids_.contains(name)) {
      return Malformed(Malformation::kUndefinedName, absl::StrCat("%", name, " is defined twice"));
    }
    LineScanner scanner(line.substr(equals + 1));
    RG_ASSIGN_OR_RETURN(LineParts parts, scanner.Scan());
    if (parts.words.size() != 1) return Syntax("a node has one op, operands, attributes, types");
    builder_->SetOriginIndex(parts.origin);
    RG_RETURN_IF_ERROR(builder_->status());
    RG_ASSIGN_OR_RETURN(const NodeId id, AddNode(parts));
    const int results = CountResults(id);
    if (declared_results >= 0 && declared_results != results) {
      return Malformed(
          Malformation::kResultCount,
          absl::StrCat("%", name, " has ", results, " results, not ", declared_results));
    }
    ids_.emplace(name, id);
    return absl::OkStatus();
  }

  absl::StatusOr<NodeId> AddNode(LineParts& parts) {
    if (parts.words[0] == Name(Op::input)) return AddInput(parts);
    const std::optional<Op> op = OpByName(parts.words[0]);
    if (!op.has_value()) {
      const std::string near = NearOpNames(parts.words[0]);
      return Malformed(Malformation::kUnknownOp,
                       absl::StrCat("op ", Quote(parts.words[0].substr(0, 40)), " is unknown",
                                    near.empty() ? "" : absl::StrCat("; near it: ", near)));
    }
    std::vector<ValueId> operands;
    for (absl::string_view reference : parts.references) {
      RG_ASSIGN_OR_RETURN(ValueId v, Resolve(reference));
      operands.push_back(v);
    }
    Attrs attrs;
    for (auto& [name, value] : parts.attrs) {
      if (attrs.Find(name) != nullptr) {
        return Malformed(Malformation::kDuplicateAttr,
                         absl::StrCat("attribute ", name, " occurs twice"));
      }
      attrs.Set(name, std::move(value));
    }
    if (!parts.types.empty()) {
      return builder_->AddNode(*op, operands, std::move(attrs), parts.types);
    }
    const ValueId v = builder_->Add(*op, operands, std::move(attrs));
    RG_RETURN_IF_ERROR(builder_->status());
    return v.node;
  }

  absl::StatusOr<NodeId> AddInput(LineParts& parts) {
    if (parts.types.size() != 1 || !parts.references.empty()) {
      return Syntax("an input has one type and no operands");
    }
    InputInfo info;
    for (const auto& [name, value] : parts.attrs) {
      if (name == "name") {
        RG_RETURN_IF_ERROR(ReadString(name, value, info.name));
      } else if (name == "kind") {
        std::string kind;
        RG_RETURN_IF_ERROR(ReadString(name, value, kind));
        RG_ASSIGN_OR_RETURN(info.kind, KindByName(kind));
      } else if (name == "strides") {
        RG_RETURN_IF_ERROR(ReadInts(name, value, info.strides));
      } else if (name == "alignment") {
        RG_RETURN_IF_ERROR(ReadInt(name, value, info.alignment));
      } else if (name == "donated") {
        RG_RETURN_IF_ERROR(ReadFlag(name, value, info.donated));
      } else {
        return Unknown(name);
      }
    }
    const ValueId v = builder_->Input(std::move(parts.types[0]), std::move(info));
    RG_RETURN_IF_ERROR(builder_->status());
    return v.node;
  }

  absl::StatusOr<ValueId> Resolve(absl::string_view reference) const {
    absl::string_view name = reference.substr(1);
    uint32_t result = 0;
    if (const size_t dot = name.find('.'); dot != absl::string_view::npos) {
      if (!absl::SimpleAtoi(name.substr(dot + 1), &result)) {
        return Syntax("after a name's dot stands a result's number");
      }
      name = name.substr(0, dot);
    }
    auto it = ids_.find(name);
    if (it == ids_.end()) {
      return Malformed(Malformation::kUndefinedName,
                       absl::StrCat("%", name.substr(0, 40), " is not defined above"));
    }
    return ValueId{it->second, result};
  }

  int CountResults(NodeId id) const {
    int count = 0;
    while (builder_->HasValue({id, static_cast<uint32_t>(count)})) ++count;
    return count;
  }

  static absl::StatusOr<InputKind> KindByName(absl::string_view name) {
    if (name == "saved") return InputKind::kSaved;
    if (name == "parameter") return InputKind::kParameter;
    if (name == "tangent") return InputKind::kTangent;
    if (name == "constant") return InputKind::kConstant;
    return Malformed(Malformation::kInputKind, "kind is saved, parameter, tangent or constant");
  }

  static absl::Status Unknown(absl::string_view name) {
    return Malformed(Malformation::kUnknownAttr,
                     absl::StrCat(Quote(name.substr(0, 40)), " is no attribute of this line"));
  }
  template <typename T>
  static absl::Status Read(absl::string_view name, const AttrValue& value, T& out,
                           absl::string_view kind) {
    const T* typed = std::get_if<T>(&value);
    if (typed == nullptr) {
      return Malformed(Malformation::kAttrType, absl::StrCat(name, " has to be ", kind));
    }
    out = *typed;
    return absl::OkStatus();
  }
  static absl::Status ReadString(absl::string_view n, const AttrValue& v, std::string& out) {
    return Read(n, v, out, "a string");
  }
  static absl::Status ReadInt(absl::string_view n, const AttrValue& v, int64_t& out) {
    return Read(n, v, out, "an integer");
  }
  static absl::Status ReadInts(absl::string_view n, const AttrValue& v, std::vector<int64_t>& out) {
    return Read(n, v, out, "a list of integers");
  }
  static absl::Status ReadFlag(absl::string_view name, const AttrValue& value, bool& out) {
    int64_t integer = 0;
    RG_RETURN_IF_ERROR(ReadInt(name, value, integer));
    if (integer != 0 && integer != 1) {
      return Malformed(Malformation::kAttrRange, absl::StrCat(name, " has to be 0 or 1"));
    }
    out = integer == 1;
    return absl::OkStatus();
  }

  std::unique_ptr<GraphBuilder> builder_ = std::make_unique<GraphBuilder>();
  absl::flat_hash_map<std::string, NodeId> ids_;
  int num_origins_ = 0;
  bool named_ = false;
};

}  // namespace

absl::StatusOr<BackwardGraph> ParseGraph(absl::string_view text) {
  return GraphParser().Parse(text);
}

}  // namespace retrograd

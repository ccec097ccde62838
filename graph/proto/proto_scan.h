// Walks the raw fields of a message of graph.proto before anything is parsed from it: frames,
// counts and strings are checked on the bytes, so that parsing allocates for nothing unseen.
#ifndef RETROGRAD_GRAPH_PROTO_PROTO_SCAN_H_
#define RETROGRAD_GRAPH_PROTO_PROTO_SCAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace google::protobuf {
class Descriptor;
}

namespace retrograd {

// One field as it lies in the bytes.
struct WireField {
  uint32_t number = 0;
  int wire_type = 0;          // 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes
  uint64_t varint = 0;        // wire type 0
  absl::string_view payload;  // wire type 2
};

// Takes the first field off `bytes`.
absl::Status ReadWireField(absl::string_view& bytes, WireField& field);

// The most that one message may hold; the whole-graph limits are in node_rules.h.
inline constexpr uint32_t kMaxFieldsPerMessage = 1u << 18;
inline constexpr uint32_t kMaxIntsPerList = 1u << 20;

// What a message's descriptor says of its fields, in the form that a scan looks up.
struct MessageFields {
  enum Kind : uint8_t { kUnknown, kNumber, kString, kMessage };
  struct Field {
    Kind kind = kUnknown;
    int wire_type = 0;  // of one value that is not packed
    bool packable = false;
    uint32_t max_numbers = 0;                // packed: the most that the list may hold
    std::string what;                        // "field retrograd.v1.Node.op", for messages
    const MessageFields* message = nullptr;  // kMessage
  };
  std::string name;
  std::vector<Field> fields;  // by number
};

// Made anew at each call, and never freed: keep the reference.
const MessageFields& FieldsOf(const google::protobuf::Descriptor& descriptor);

// Checks one message and what is nested in it: wire types, lengths, counts and strings. Unknown
// fields are skipped: a newer minor version may have added them.
absl::Status ScanMessage(const MessageFields& message, absl::string_view bytes);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PROTO_PROTO_SCAN_H_

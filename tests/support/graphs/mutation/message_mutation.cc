#include "tests/support/graphs/mutation/message_mutation.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace retrograd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

int64_t Number(std::mt19937& rng) {
  constexpr int64_t kSpecial[] = {0,
                                  1,
                                  -1,
                                  2,
                                  3,
                                  7,
                                  8,
                                  64,
                                  255,
                                  65536,
                                  int64_t{1} << 31,
                                  int64_t{1} << 32,
                                  int64_t{1} << 47,
                                  int64_t{1} << 48,
                                  std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<int64_t>::min()};
  return kSpecial[rng() % std::size(kSpecial)];
}

double Real(std::mt19937& rng) {
  const double kSpecial[] = {0, -0.0, 1, -1, 0.5, 1e-300, 1e300, std::nan(""), INFINITY, -INFINITY};
  return kSpecial[rng() % std::size(kSpecial)];
}

std::string Word(std::mt19937& rng) {
  const std::string kSpecial[] = {
      "",    "input", "mul",   "f32",   "bool", "axes", "shape", "perm",
      "cat", "sum",   "dtype", "value", "a\nb", "\xff", "\"\\",  std::string(201, 'x')};
  return kSpecial[rng() % std::size(kSpecial)];
}

void SetScalar(Message& m, const FieldDescriptor& f, std::mt19937& rng) {
  const Reflection& r = *m.GetReflection();
  const bool add = f.is_repeated();
  switch (f.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      add ? r.AddInt64(&m, &f, Number(rng)) : r.SetInt64(&m, &f, Number(rng));
      break;
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto v = static_cast<uint32_t>(rng() % 4 == 0 ? Number(rng) : rng() % 32);
      add ? r.AddUInt32(&m, &f, v) : r.SetUInt32(&m, &f, v);
      break;
    }
    case FieldDescriptor::CPPTYPE_BOOL: r.SetBool(&m, &f, rng() % 2 == 0); break;
    case FieldDescriptor::CPPTYPE_DOUBLE: r.SetDouble(&m, &f, Real(rng)); break;
    case FieldDescriptor::CPPTYPE_ENUM:
      r.SetEnumValue(&m, &f, static_cast<int>(rng() % 14) - 1);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      add ? r.AddString(&m, &f, Word(rng)) : r.SetString(&m, &f, Word(rng));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      add ? r.AddMessage(&m, &f) : r.MutableMessage(&m, &f);
      break;
    default: break;
  }
}

// One edit of the message itself.
void EditHere(Message& m, std::mt19937& rng) {
  const auto& d = *m.GetDescriptor();
  const FieldDescriptor& f = *d.field(static_cast<int>(rng() % d.field_count()));
  const Reflection& r = *m.GetReflection();
  if (!f.is_repeated()) {
    if (rng() % 3 == 0) return r.ClearField(&m, &f);
    return SetScalar(m, f, rng);
  }
  const int size = r.FieldSize(m, &f);
  switch (rng() % 4) {
    case 0:
      if (size > 0) return r.RemoveLast(&m, &f);
      break;
    case 1:
      if (size > 1) {
        return r.SwapElements(&m, &f, static_cast<int>(rng() % size),
                              static_cast<int>(rng() % size));
      }
      break;
    case 2:
      if (size > 0 && f.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        return r.SetRepeatedInt64(&m, &f, static_cast<int>(rng() % size), Number(rng));
      }
      if (size > 0 && f.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {  // an element twice
        const std::string copy =
            r.GetRepeatedMessage(m, &f, static_cast<int>(rng() % size)).SerializeAsString();
        r.AddMessage(&m, &f)->ParseFromString(copy);
        return;
      }
      break;
    default: break;
  }
  SetScalar(m, f, rng);
}

// The messages directly inside.
std::vector<Message*> Children(Message& m) {
  std::vector<Message*> out;
  std::vector<const FieldDescriptor*> fields;
  const Reflection& r = *m.GetReflection();
  r.ListFields(m, &fields);
  for (const FieldDescriptor* f : fields) {
    if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!f->is_repeated()) {
      out.push_back(r.MutableMessage(&m, f));
      continue;
    }
    for (int i = 0; i < r.FieldSize(m, f); ++i) out.push_back(r.MutableRepeatedMessage(&m, f, i));
  }
  return out;
}

}  // namespace

void MutateMessage(v1::Graph& graph, std::mt19937& rng) {
  Message* at = &graph;
  while (true) {
    const std::vector<Message*> inside = Children(*at);
    if (inside.empty() || rng() % 4 == 0) break;
    at = inside[rng() % inside.size()];
  }
  EditHere(*at, rng);
}

}  // namespace retrograd

#include "codegen/templates/templates.h"

namespace retrograd {
namespace {

struct Row {
  Template id;
  Emitter emit;
};

constexpr Row kEmitters[] = {
    {Template::kPointwise, EmitPointwise},
    {Template::kRowReduction, EmitRowReduction},
    {Template::kColumnReduction, EmitColumnReduction},
    {Template::kRowColumn, EmitRowColumn},
    {Template::kTranspose, EmitTranspose},
    {Template::kScatterAdd, EmitScatterAdd},
    {Template::kScan, EmitScan},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kEmitters); ++i) {
    if (static_cast<size_t>(kEmitters[i].id) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "rows stand by number of Template");

}  // namespace

Emitter EmitterOf(Template id) { return kEmitters[static_cast<int>(id)].emit; }

}  // namespace retrograd

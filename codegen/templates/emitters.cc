#include "codegen/templates/templates.h"

namespace retrograd {
namespace {

constexpr Emitter kEmitters[] = {
#define RG_TEMPLATE(NAME) Emit##NAME,
#include "fusion/kernel/templates/templates.def"
#undef RG_TEMPLATE
};

}  // namespace

Emitter EmitterOf(Template id) { return kEmitters[static_cast<int>(id)]; }

}  // namespace retrograd

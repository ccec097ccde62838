// One function a template: a scheduled KernelIr as launches, in order.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_TEMPLATES_H_
#define RETROGRAD_CODEGEN_TEMPLATES_TEMPLATES_H_

#include "codegen/print/kernel.h"

namespace retrograd {

using Emitter = GroupKernels (*)(const KernelBody& body, Dialect dialect);
Emitter EmitterOf(Template id);

#define RG_TEMPLATE(NAME) GroupKernels Emit##NAME(const KernelBody& body, Dialect dialect);
#include "fusion/kernel/templates/templates.def"
#undef RG_TEMPLATE

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_TEMPLATES_H_

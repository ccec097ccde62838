// One function a template: a scheduled KernelIr as launches, in order. emitters.cc says whose is
// whose.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_TEMPLATES_H_
#define RETROGRAD_CODEGEN_TEMPLATES_TEMPLATES_H_

#include "codegen/print/kernel.h"

namespace retrograd {

using Emitter = GroupKernels (*)(const KernelBody& body, Dialect dialect);
Emitter EmitterOf(Template id);

GroupKernels EmitPointwise(const KernelBody& body, Dialect dialect);
GroupKernels EmitRowReduction(const KernelBody& body, Dialect dialect);
GroupKernels EmitColumnReduction(const KernelBody& body, Dialect dialect);
GroupKernels EmitRowColumn(const KernelBody& body, Dialect dialect);
GroupKernels EmitTranspose(const KernelBody& body, Dialect dialect);
GroupKernels EmitScatterAdd(const KernelBody& body, Dialect dialect);
GroupKernels EmitScan(const KernelBody& body, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_TEMPLATES_H_

// One function a template: a scheduled KernelIr as launches, in order; and launches that several
// kernels share.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_H_
#define RETROGRAD_CODEGEN_TEMPLATES_H_

#include "codegen/kernel.h"

namespace retrograd {

GroupKernels EmitPointwise(const KernelBody& body, Dialect dialect);
GroupKernels EmitRowReduction(const KernelBody& body, Dialect dialect);
GroupKernels EmitColumnReduction(const KernelBody& body, Dialect dialect);
GroupKernels EmitRowColumn(const KernelBody& body, Dialect dialect);
GroupKernels EmitTranspose(const KernelBody& body, Dialect dialect);
GroupKernels EmitScatterAdd(const KernelBody& body, Dialect dialect);
GroupKernels EmitMerged(const MergedBody& body, Dialect dialect);
GroupKernels EmitFusedMatMul(const FusedMatMul& body, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_H_

"""The optional parts of planner and runtime that bench/ablate.py switches off one by one, what is
lost without each, and which code nothing else needs."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Part:
    # Of ours.Backward.
    options: dict
    # What is otherwise then.
    then: str
    # Files, or "file:name" for one function or class of it, that would go with the part.
    code: tuple = ()
    # The text of the program does not say whether the part is on. "all": it matters to any program;
    # else to those that have a call of this kind ("call": of any).
    beyond_text: str = ""
    # Off by default: the options switch it on.
    off: bool = False


def _feature(name, then, *code):
    return Part({"disable": [name]}, then, code)


_TEMPLATES = "fusion/kernel/templates/"
PARTS = {
    # The graph, before the search.
    "cast pairs": _feature(
        "cast_pairs", "a narrowing that is widened back stays", "graph/passes/cast_pairs.cc",
        "graph/passes/cast_pairs.h"),
    "gathered sums": _feature(
        "gathered_sums", "sums at indices known beforehand sort their terms",
        "fusion/lower/indexed/gather_sums.cc", "fusion/lower/indexed/gather_sums.h",
        "fusion/lower/indexed/index_lines.cc", "fusion/lower/indexed/index_lines.h",
        "fusion/lower/indexed/known_index.cc", "fusion/lower/indexed/known_index.h"),
    "sums of lines": _feature(
        "scatter_lines", "sums at indices of each line sort the indices of all",
        "fusion/lower/indexed/choose_scatters.cc", "fusion/lower/indexed/choose_scatters.h",
        "fusion/ops/scatter_lines/scatter_lines_call.cc",
        "fusion/ops/scatter_lines/scatter_lines_call.h",
        "fusion/ops/scatter_lines/scatter_lines_op.cc",
        "codegen/scatter_lines/emit_scatter_lines.cc", "codegen/scatter_lines/emit_scatter_lines.h",
        "runtime/ops/scatter_lines/generated_scatter_lines.cc",
        "runtime/ops/scatter_lines/generated_scatter_lines.h"),
    "order of positions": _feature(
        "position_order", "sums at the same indices read what they share where each index stood",
        "fusion/lower/indexed/order_positions.cc", "fusion/lower/indexed/order_positions.h"),
    "joined sums": _feature(
        "joined_sums", "tables of sums at indices that are added up are made each by itself",
        "fusion/lower/indexed/joined_sums.cc", "fusion/lower/indexed/joined_sums.h"),
    "sums onto gradients": _feature(
        "based_sums", "a table of sums at indices is made before it is added to a gradient",
        "fusion/lower/indexed/based_sums.cc", "fusion/lower/indexed/based_sums.h"),
    "sums of slices": _feature(
        "sums_of_slices", "each slice is added up by itself",
        "graph/passes/sums/sums_of_slices.cc", "graph/passes/sums/sums_of_slices.h"),
    "boxes of images": _feature(
        "image_boxes", "threads gather the operands of all convolutions' gradients",
        "fusion/ops/convolution/image_boxes.cc", "fusion/ops/convolution/image_boxes.h",
        "codegen/convolution/implicit_gemm_boxes.cc", "codegen/preludes/box_prelude.cc"),
    "order of walks": _feature(
        "walk_order", "elementwise values lie as an operand of theirs does",
        "fusion/lower/layouts/walk_order.cc", "fusion/lower/layouts/walk_order.h"),
    "shared products": _feature(
        "shared_products", "gradients of weights are launched one by one",
        "fusion/horizontal/shared_calls.cc", "fusion/horizontal/shared_calls.h",
        "fusion/ops/convolution/shared_products.cc", "fusion/ops/convolution/shared_products.h",
        "codegen/convolution/share_launches.cc", "codegen/convolution/share_launches.h",
        "runtime/ops/convolution/shared_products_call.cc",
        "runtime/ops/convolution/shared_products_call.h",
        "runtime/ops/convolution/cuda_shared_products.cc",
        "runtime/ops/convolution/cuda_shared_products.h"),
    "order of images": _feature(
        "image_order", "libraries transpose row-major images in each of their calls",
        "fusion/lower/image_order.cc", "fusion/lower/image_order.h",
        "fusion/lower/image_chains.cc", "fusion/lower/image_chains.h"),
    "taps as channels": _feature(
        "taps_as_channels", "first layers multiply images of few channels as they are",
        "fusion/lower/taps_as_channels.cc", "fusion/lower/taps_as_channels.h"),
    "depthwise taps": _feature(
        "depthwise_taps", "depthwise gradients of few taps are calls",
        "fusion/lower/depthwise_taps.cc", "fusion/lower/depthwise_taps.h"),
    "split scans": _feature(
        "split_scans", "a cumulative sum of few long rows has as many blocks as rows",
        "fusion/lower/split_scans.cc", "fusion/lower/split_scans.h"),
    "thin matmuls": _feature(
        "thin_matmuls", "matmuls of few rows, columns or terms are the library's",
        "fusion/lower/thin_matmuls.cc", "fusion/lower/thin_matmuls.h"),
    "padded operands": _feature(
        "pad_operands", "a matmul reads odd operands as they are",
        "fusion/lower/pad_operands.cc", "fusion/lower/pad_operands.h"),
    "padded rows": _feature(
        "padded_rows", "rows are computed at the framework's length, then padded",
        "fusion/lower/padded_rows.cc", "fusion/lower/padded_rows.h"),
    "first-writer stores": _feature(
        "first_writer", "each sum of contributions begins with a fill of zeros",
        "graph/passes/order_accumulates.cc:PlanChain"),
    "order of accumulation": _feature(
        "accumulate_order", "all contributions are added up when the last one is there",
        "graph/passes/order_accumulates.cc"),
    "rematerialisation at barriers": _feature(
        "rematerialization",
        "kernels on both sides of a matmul read what costs no less than making it again",
        "fusion/lower/rematerialize.cc", "fusion/lower/rematerialize.h"),
    "merged matmuls": _feature(
        "merged_matmuls", "matmuls that share an operand, or are added up, stay apart",
        "fusion/gemm_merge/merge_candidates.cc", "fusion/gemm_merge/merge_candidates.h",
        "fusion/gemm_merge/merge_matmuls.cc", "fusion/gemm_merge/merge_matmuls.h",
        "fusion/gemm_merge/merge_rewrite.cc", "fusion/gemm_merge/merge_rewrite.h",
        "fusion/gemm_merge/merge_trials.cc", "fusion/gemm_merge/merge_trials.h"),
    # Where values lie.
    "layouts that follow": _feature(
        "layouts", "what is free is row-major; library calls get copies",
        "fusion/lower/layouts/layouts.cc:ForLibrary",
        "fusion/lower/layouts/layouts.cc:ReadableBy",
        "fusion/lower/layouts/layouts.cc:AllRead", "fusion/lower/layouts/layouts.cc:LikeOperand",
        "fusion/lower/layouts/layouts.cc:LikeAllOperands", "fusion/lower/layouts/layouts.cc:OrderOf",
        "fusion/lower/layouts/layouts.cc:DenseAfter",
        "fusion/lower/layouts/layouts.cc:LibraryUsers"),
    "pitches": _feature(
        "pitches", "rows that matmuls read lie without gaps",
        "fusion/lower/layouts/layouts.cc:Pitched"),
    "concats in place": _feature(
        "concats_in_place", "each concat is a copy", "fusion/lower/concat_in_place.cc",
        "fusion/lower/concat_in_place.h", "fusion/verify/concat_in_place_check.cc",
        "fusion/verify/concat_in_place_check.h", "runtime/memory/memory_plan.cc:FindShared",
        "runtime/memory/memory_plan.cc:PlaceParts"),
    # Library calls.
    "cast absorption": _feature(
        "cast_absorption", "a matmul's result is cast to fp32 by a kernel",
        "fusion/calls/library_calls.cc:AbsorbCast"),
    "beta = 1 accumulation": _feature(
        "matmul_accumulate", "a matmul's result is added by a kernel",
        "fusion/calls/library_calls.cc:AbsorbAccumulate"),
    "matmul epilogues": _feature(
        "matmul_epilogues", "all products go through memory",
        "fusion/calls/epilogue_candidates.cc", "fusion/calls/epilogue_candidates.h",
        "fusion/pricing/epilogue_price.cc", "fusion/pricing/epilogue_price.h",
        "fusion/ops/matmul/matmul_epilogue.cc", "fusion/ops/matmul/matmul_epilogue.h",
        "fusion/verify/epilogue_check.cc", "fusion/verify/epilogue_check.h",
        "fusion/plan/split_epilogues.cc", "fusion/plan/split_epilogues.h",
        "fusion/ops/matmul/gemm_tile_legality.cc", "fusion/ops/matmul/gemm_tile_legality.h",
        "codegen/gemm/emit_fused_matmul.cc", "codegen/gemm/emit_fused_matmul.h"),
    "grouped epilogues": _feature(
        "grouped_epilogues", "products of rows in groups go through memory",
        "fusion/ops/grouped_matmul/epilogue_product.cc",
        "fusion/ops/grouped_matmul/epilogue_product.h"),
    # Regions and their search.
    "sources sunk to their reader": _feature(
        "sunk_sources", "values are made at the first depth that can, though read later",
        "fusion/analysis/barrier_depths.cc:SinkOps"),
    "components sunk to a later depth": _feature(
        "sunk_components", "what only a later depth reads is computed as early as it can be",
        "fusion/analysis/barrier_depths.cc:SinkComponents",
        "fusion/analysis/barrier_depths.cc:FirstReader",
        "fusion/analysis/barrier_depths.cc:Outside", "fusion/analysis/barrier_depths.cc:Pays"),
    "recompute": _feature(
        "recompute", "each value is computed by one kernel", "fusion/search/recompute.cc",
        "fusion/search/recompute.h", "fusion/search/region_plan.cc:Climb",
        "fusion/search/region_plan.cc:ReadersToPart", "fusion/search/region_plan.cc:Recomputing"),
    "exact search": _feature(
        "exact_search", "regions are solved greedily; nothing is recomputed",
        "fusion/search/exact_search.cc", "fusion/search/exact_search.h"),
    "joined kernels": _feature(
        "joined_kernels", "no kernel has more than 64 ops",
        "fusion/search/join_kernels.cc", "fusion/search/join_kernels.h",
        "fusion/kernel/build/order_instructions.cc", "fusion/kernel/build/order_instructions.h"),
    "prices of fusions": _feature(
        "fusion_prices", "whatever can share a kernel does, neighbour by neighbour"),
    # As if a thread had any number of registers for nothing.
    "registers in the price": Part(
        {"set": ["max_registers=100000", "registers_per_sm=1000000000"]},
        "a thread's registers cost nothing and are never too many", (_TEMPLATES + "registers.cc",
        _TEMPLATES + "registers.h")),
    "second plan where kernels spill": Part(
        {"plan_again": False}, "the first plan runs, though the compiler spills registers",
        ("fusion/cost/device_report.cc", "fusion/cost/device_report.h",
        "fusion/explain/feedback_decisions.cc", "fusion/explain/feedback_decisions.h",
        "runtime/executable/compiled_kernels.cc:ReportOf")),
    "shared launches": _feature(
        "horizontal", "each kernel has a launch of its own", "fusion/horizontal/horizontal.cc",
        "fusion/horizontal/horizontal.h", "fusion/horizontal/launch_price.cc",
        "fusion/horizontal/launch_price.h", "codegen/emit_merged.cc", "codegen/emit_merged.h"),
    # Schedules of kernels.
    "alignment and divisibility": _feature(
        "vectorization", "every load and store moves one element",
        "fusion/kernel/ir/accesses/vector_access.cc", "fusion/kernel/ir/accesses/vector_access.h",
        _TEMPLATES + "candidate_list.cc:WidestVector"),
    "split reductions": _feature(
        "split_reductions", "one block sums a whole row or column",
        _TEMPLATES + "row_reduction.cc:SplitsRows", _TEMPLATES + "row_reduction.cc:AddSplits",
        _TEMPLATES + "schedule.cc:WorkspaceBytes", _TEMPLATES + "schedule.cc:WorkspaceOffsets",
        "codegen/templates/emit_row_reduction.cc:RowFinalize",
        "codegen/templates/column_totals.cc:ColumnFinalize"),
    "persistent reductions": _feature(
        "persistent_reductions", "each stage of a row reads its inputs again",
        _TEMPLATES + "row_column.cc:AddPersistent"),
    # What compilers lose first where sizes vary (bench/tables/three_parts_table.py).
    "the three together": Part(
        {"disable": ["vectorization", "split_reductions", "persistent_reductions"]},
        "the three before are off at once"),
    "staged rows": _feature(
        "staged_rows", "a row is loaded when its turn has come",
        _TEMPLATES + "row_column.cc:Batches", _TEMPLATES + "row_column.cc:StagesInstead",
        "codegen/templates/row_walk.cc:ChooseStaged",
        "codegen/templates/row_walk.cc:DeclareStaged",
        "codegen/templates/row_walk.cc:PlaceStaged", "codegen/templates/row_walk.cc:PrintStaging",
        "codegen/templates/row_walk.cc:ChooseAhead", "codegen/templates/row_walk.cc:PrintAhead",
        "codegen/templates/row_walk.cc:TakeAhead",
        _TEMPLATES + "schedule.cc:CanStage"),
    "register slack": _feature(
        "register_slack", "kernels that may not fit their registers are not tried",
        _TEMPLATES + "registers.cc:WantedRegisters", _TEMPLATES + "registers.cc:LeastRegisters",
        "fusion/planner/planning_context.cc:PlannedDevice"),
    "rows at once": _feature(
        "rows_at_once", "a thread holds one row", _TEMPLATES + "row_walks.cc:RowsAtOnce",
        _TEMPLATES + "column_reduction.cc:WithRowsAtOnce"),
    "passes by rows": _feature(
        "passes_by_rows", "each thread of a pass has one vector of points",
        "fusion/kernel/ir/accesses/pass_columns.cc", "fusion/kernel/ir/accesses/pass_columns.h",
        _TEMPLATES + "pointwise.cc:AddPassesOfRows",
        "codegen/templates/emit_pointwise.cc:PrintRowsOfThread",
        "fusion/cost/kernel_cost.cc:TurnsPs"),
    "tiles that transpose": _feature(
        "transpose_tiles", "loads or stores across the fastest axis do not coalesce",
        _TEMPLATES + "transpose.cc", "fusion/kernel/ir/accesses/transposed.cc", "fusion/kernel/ir/accesses/transposed.h",
        "codegen/templates/emit_transpose.cc"),
    "columns on chip": _feature(
        "held_columns", "what folds columns and what reads the results are kernels of their own",
        _TEMPLATES + "held_columns/held_columns.cc", _TEMPLATES + "held_columns/column_slabs.cc",
        _TEMPLATES + "held_columns/column_slabs.h", "codegen/templates/emit_held_columns.cc",
        "codegen/preludes/cluster_prelude.cc", "codegen/preludes/cluster_prelude.h"),
    "tiles on chip": _feature(
        "held_tiles", "folds of two axes, each by itself, are kernels of their own",
        _TEMPLATES + "held_tiles/held_tiles.cc", _TEMPLATES + "held_tiles/tile_walk.cc",
        _TEMPLATES + "held_tiles/tile_walk.h", "codegen/templates/emit_held_tiles.cc"),
    "unrolled reductions": _feature(
        "unrolled_reductions", "threads share the folds of few elements as those of many",
        "fusion/kernel/build/unroll_reductions.cc", "fusion/kernel/build/unroll_reductions.h"),
    "prices of tiles": _feature(
        "matmul_tiles", "products by tiles of ours are priced as the library's",
        "fusion/ops/matmul/matmul_tiles_cost.cc", "fusion/ops/matmul/matmul_tiles_cost.h"),
    "unified branches": _feature(
        "unified_branches", "both parts of a join are computed at every point",
        "fusion/kernel/build/unify_branches.cc", "fusion/kernel/build/unify_branches.h"),
    # The runtime.
    "tiled attention": Part(
        {"tiled_attention": False}, "cuDNN makes all of attention",
        ("codegen/attention/emit_tiled_attention.cc", "codegen/attention/emit_tiled_attention.h",
        "codegen/preludes/attention_prelude.h"), "attention"),
    "timed library algorithms": Part(
        {"time_calls": False}, "the first algorithm that a library offers is taken",
        ("runtime/trials/autotune.cc", "runtime/trials/autotune.h"), "call"),
    "measured prices of calls": Part(
        {"measured_calls": True}, "library calls cost what they were measured to take",
        ("runtime/executable/executable_report.cc", "runtime/executable/executable_report.h",
        "fusion/plan/call_key.cc", "fusion/plan/call_key.h"), "call", off=True),
    "graph capture": Part(
        {"record": False}, "kernels and calls are issued one by one",
        ("runtime/program/graph_cache.cc", "runtime/program/graph_cache.h",
        "runtime/program/program.cc:Replay", "runtime/program/program.cc:RecordAll",
        "runtime/gpu/gpu_kernels.cc:Become"), "all"),
    "several streams": Part(
        {"streams": 3}, "kernels that do not fill the chip run beside others, predicted gain or not",
        ("runtime/schedule/place_steps.cc:ForSide",), off=True),
    "side streams": Part(
        {"streams": 1}, "kernels run one after the other",
        ("fusion/device/interference.cc", "fusion/device/interference.h",
        "runtime/schedule/neighbours.cc", "runtime/schedule/neighbours.h",
        "runtime/schedule/place_steps.cc:ForSide", "runtime/schedule/place_steps.cc:Gains",
        "runtime/schedule/place_steps.cc:RunningBeside",
        "runtime/schedule/place_steps.cc:PredictTimes",
        "runtime/schedule/stream_schedule.cc:ElideImpliedWaits")),
    "early launches": Part(
        {"early_launches": False}, "each kernel starts when the one before it has finished",
        ("runtime/program/early_launches.cc", "runtime/program/early_launches.h",
        "runtime/gpu/cuda/cuda_driver.cc:LaunchEarly")),
    "order by memory": Part(
        {"memory_order": False},
        "of what can run the longest chain goes first, whatever memory it takes",
        ("runtime/schedule/ready_groups.cc:Run", "runtime/schedule/ready_groups.cc:Apply",
        "runtime/schedule/ready_groups.h:MemoryChange",)),
    "memory reuse": Part(
        {"memory_reuse": False}, "every value has bytes of its own",
        ("runtime/memory/arena_offsets.cc", "runtime/memory/arena_offsets.h")),
    "buffers in place": Part(
        {"in_place": False}, "no result takes over the bytes of an operand",
        ("runtime/memory/memory_plan.cc:MayTakeOver",
        "runtime/memory/memory_plan.cc:TakeOverPermitted")),
}  # fmt: skip

# Parts that were measured and then deleted, with the lines of code that went.
DELETED = {"windows": 88, "prefetch": 45}


def _counts(line):
    text = line.strip()
    return bool(text) and not text.startswith(("//", "#"))


def definition(lines, name):
    """The lines of a function or class that clang-format has laid out: from its head to the brace
    that closes it, which stands where the head begins."""
    head = re.compile(rf"^\s*(?:(?:class|struct) {name}\b|[\w:<>,*&\s\[\]]*\b{name}\()")
    for start, line in enumerate(lines):
        if not head.match(line) or line.lstrip().startswith("return "):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        for end in range(start, len(lines)):
            opened = "{" in "".join(lines[start : end + 1])
            if not opened and lines[end].rstrip().endswith(";"):
                break  # a declaration or a call
            if opened and (end == start) and line.rstrip().endswith("}"):
                return lines[start : end + 1]
            if lines[end].rstrip() in (indent + "}", indent + "};"):
                return lines[start : end + 1]
    raise LookupError(f"no definition of {name}")


def lines_of(part, root):
    """Lines of the part's code that are neither empty nor a comment nor a preprocessor's."""
    total = 0
    for place in part.code:
        path, _, name = place.partition(":")
        lines = (root / path).read_text().splitlines()
        total += sum(map(_counts, definition(lines, name) if name else lines))
    return total

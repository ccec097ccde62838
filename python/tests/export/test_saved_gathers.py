"""Rows that a forward gathers and saves: what the backward gathers again, and what it reads."""


import pytest
import torch
from retrograd import rows as _rows  # noqa: F401  (makes the table)
from retrograd import saved_gathers
from workloads import op_models

aten = torch.ops.aten
NODES, EDGES, WIDTH = 9, 40, 6


def _call(graph, target, *args):
    """A node of the graph, with the tensor that it makes."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]))
    return node


def _placeholder(graph, name, value):
    node = graph.placeholder(name)
    node.meta["val"] = value
    return node


def _forward(gather, nodes):
    """x and an index, a table of as many rows, and the rows that `gather` makes of table and index."""
    graph = torch.fx.Graph()
    x = _placeholder(graph, "x", torch.zeros(nodes, WIDTH))
    index = _placeholder(graph, "index", torch.zeros(EDGES, dtype=torch.int64))
    table = _call(graph, aten.tanh.default, x)
    return graph, index, table, gather(graph, table, index)


def _of_rows(graph, table, index):
    return _call(graph, aten.index.Tensor, table, [index])


def _of_selected_rows(graph, table, index):
    return _call(graph, aten.index_select.default, table, 0, index)


def _of_views(graph, table, index):
    return _of_rows(graph, _call(graph, aten.view.default, table, [NODES, 2, 3]), index)


def _of_other_columns(graph, table, index):
    return _of_rows(graph, _call(graph, aten.sin.default, table), index)


def _of_other_rows(graph, table, index):
    return _of_rows(graph, table, _call(graph, aten.neg.default, index))


def _of_marked(graph, table, index):
    marks = _placeholder(graph, "marks", torch.ones(NODES, dtype=torch.bool))
    return _of_rows(graph, table, marks)


def _times_itself(graph, rows):
    return _call(graph, aten.mul.Tensor, rows, rows)


def _cast_first(graph, rows):
    wide = _call(graph, torch.ops.prims.convert_element_type.default, rows, torch.float64)
    return _call(graph, aten.mul.Tensor, _call(graph, aten.view.default, wide, [-1]), 2.0)


def _in_a_product(graph, rows):
    return _call(graph, aten.mm.default, _call(graph, aten.t.default, rows), rows)


CASES = {  # name: (the forward's gather, nodes, what the backward makes of the rows, whether it gathers)
    "rows": (_of_rows, NODES, _times_itself, True),
    "selected": (_of_selected_rows, NODES, _times_itself, True),
    "views": (_of_views, NODES, _times_itself, True),
    "cast": (_of_rows, NODES, _cast_first, True),
    "product": (_of_rows, NODES, _in_a_product, False),
    "larger_table": (_of_rows, EDGES + 1, _times_itself, False),
    "unsaved_table": (_of_other_columns, NODES, _times_itself, False),
    "unsaved_index": (_of_other_rows, NODES, _times_itself, False),
    "marks": (_of_marked, NODES, _times_itself, False),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_gathered_again_where_their_table_is_saved_and_passes_read_them(name):
    gather, nodes, use, gathers = CASES[name]
    forward, index, table, rows = _forward(gather, nodes)
    forward.output((table, index, rows))
    backward = torch.fx.Graph()
    for node in (table, index, rows):
        saved = _placeholder(backward, node.name, node.meta["val"])
    backward.output(use(backward, saved))
    saved_gathers.gather_again(backward, forward)
    backward.lint()
    assert (len(saved.users) == 0) == gathers
    made = [n for n in backward.nodes if n.target is rows.target]
    assert len(made) == gathers


def test_attention_over_edges_reads_no_saved_message():
    captured = op_models.capture("gat_tiny", "cpu")
    edges, heads, nodes = 100, 4, 30
    floats = [i for i in captured.inputs if i.recorded.dtype == torch.bfloat16]
    messages = [i for i in floats if i.node.meta["val"].shape == (edges, heads, 4)]
    assert messages and not any(i.node.users for i in messages)
    assert any(i.node.meta["val"].shape[0] == nodes and i.node.users for i in floats)

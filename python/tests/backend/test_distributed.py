"""Training by data-parallel and sharded modules of PyTorch, in one process, against eager."""

import copy

import pytest
import torch
from backend_training import FULL, backend_tests, check, network
from retrograd.backend import backend


@pytest.fixture(autouse=True)
def fresh():
    with backend_tests():
        yield


def test_data_parallel_training_of_one_process(tmp_path):
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        model = network()
        eager = copy.deepcopy(model)
        ours = torch.compile(DistributedDataParallel(model), backend=backend, options=FULL)
        x = torch.randn(6, 8)
        for m in (ours, eager):
            m(x).square().mean().backward()
        check(model, eager)
    finally:
        distributed.destroy_process_group()


def test_sharded_training_of_one_process(tmp_path):
    import torch.distributed as distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    try:
        model = network()
        eager = copy.deepcopy(model)
        mesh = init_device_mesh("cpu", (1,))
        for layer in (model[0], model[3]):
            layer.compile(backend=backend, options=FULL)
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        x = torch.randn(6, 8)
        for m in (model, eager):
            m(x).square().mean().backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad.full_tensor(), theirs.grad)
    finally:
        distributed.destroy_process_group()

"""Where the gradients lie that autograd's node in C++ makes: small ones share allocations, and are
ordinary tensors all the same.
"""

import copy
import io
import pickle

import pytest
import torch
from backend_training import node_tests
from direct_nodes import PARAMETERS, check, gradients_of, of, trained
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


def storages(tensors):
    """By address: the storage of each of the tensors."""
    return {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}


def test_small_gradients_are_ordinary_tensors_of_one_allocation():
    ours, eager = trained()
    gradients = gradients_of(ours, eager)
    assert len(storages(gradients)) == 1
    for g in gradients:
        assert g.storage_offset() * g.element_size() % 512 == 0 and g.data_ptr() % 64 == 0
        assert not g._is_view() and g.is_leaf and not g.requires_grad and g._version == 0
    gradients[0].mul_(2).resize_(1)  # one may change without the others
    assert [g._version for g in gradients[1:]] == [0] * (PARAMETERS - 1)
    check(of(ours)[1:], eager[1:])


def test_memory_of_gradients_goes_with_the_last_that_shares_it():
    ours, eager = trained()
    reference = gradients_of(ours, eager)[0].untyped_storage()._weak_ref()
    try:
        kept = of(ours)[3].bias.grad
        ours.zero_grad(set_to_none=True)
        assert not torch.UntypedStorage._expired(reference)
        torch.testing.assert_close(kept, eager[3].bias.grad, rtol=2e-5, atol=2e-5)
        del kept
        assert torch.UntypedStorage._expired(reference)
    finally:
        torch.UntypedStorage._free_weak_ref(reference)


def test_a_large_gradient_lies_alone_and_allocations_that_are_shared_have_a_bound():
    wide = [nn.Linear(512, 6000), nn.Linear(6000, 512), *(nn.Linear(512, 4000) for _ in range(3))]

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(wide)

        def forward(self, x):
            y = self.layers[1](self.layers[0](x))
            return sum(layer(y).square().mean() for layer in self.layers[2:])

    ours, eager = trained(Wide(), (2, 512))
    gradients = gradients_of(ours, eager, 2, 512)
    check(ours, eager)
    mib = 1 << 20
    for g in gradients:
        lie_there = [t for t in gradients if storages([t]).keys() == storages([g]).keys()]
        bytes_there = g.untyped_storage().nbytes()
        if g.nbytes >= 10 * mib:
            assert len(lie_there) == 1 and bytes_there == g.nbytes
        else:
            assert bytes_there <= 20 * mib
    small = [g for g in gradients if g.nbytes < 10 * mib]
    assert len(small) < len(gradients) and 1 < len(storages(small)) < len(small)


def test_a_gradient_with_a_hook_lies_alone():
    ours, eager = trained()
    for m in (ours, eager):
        of(m)[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    first, *others = gradients_of(ours, eager)
    assert first.untyped_storage().nbytes() == first.nbytes
    assert len(storages(others)) == 1 and not storages([first]).keys() & storages(others).keys()
    check(ours, eager)


def test_gradients_that_share_memory_are_saved_and_copied():
    ours, eager = trained()
    gradients = gradients_of(ours, eager)

    def saved(value):
        file = io.BytesIO()
        torch.save(value, file)
        return file

    alone, together = saved(gradients[-1]), saved(gradients)
    # The storage goes along, once however many tensors of it are saved; a clone has its own.
    shared = gradients[-1].untyped_storage().nbytes()
    assert alone.tell() > shared and together.tell() < 2 * shared + 4096
    assert saved(gradients[-1].clone()).tell() < shared
    for file in (alone, together):
        file.seek(0)
    copies = [*torch.load(together), torch.load(alone), copy.deepcopy(gradients[-1])]
    copies.append(pickle.loads(pickle.dumps(gradients[-1])))
    for mine, theirs in zip(copies, [*gradients, *3 * gradients[-1:]], strict=True):
        assert torch.equal(mine, theirs)
        mine.zero_()
    check(ours, eager)

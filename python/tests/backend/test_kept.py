"""How many programs of one backward are kept, by their number and by what they hold."""

import random

from retrograd.backend.kept import Bound, Kept


def test_the_number_is_bounded():
    kept = Kept(Bound(most=2, most_bytes=10**9))
    assert [kept.add(key, key.upper(), 1) for key in "abc"] == [0, 0, 1]
    assert [kept.find(key) for key in "abc"] == [None, "B", "C"]
    assert kept.find("b") == "B" and kept.values() == ["C", "B"]


def test_without_a_number_the_bytes_alone_bound():
    kept = Kept(Bound(most=0, most_bytes=1000))
    for size in range(1000):
        kept.add(size, str(size), 1)
    assert len(kept) == 1000 and kept.find(0) == "0"
    assert kept.add(1000, "1000", 3) == 3
    assert kept.find(0) == "0"  # was used behind the ones that went
    assert [kept.find(size) for size in (1, 2, 3, 4)] == [None, None, None, "4"]


def test_one_that_is_larger_than_the_bound_stays_until_the_next():
    kept = Kept(Bound(most=0, most_bytes=10))
    kept.add("small", 1, 5)
    assert kept.add("large", 2, 11) == 1
    assert kept.find("large") == 2
    assert kept.add("small", 1, 5) == 1
    assert kept.find("large") is None and kept.find("small") == 1


def test_what_is_kept_is_what_was_used_last():
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(50):
        bound = Bound(most=draw.choice((0, 1, 4)), most_bytes=draw.randrange(1, 60))
        kept, used, sizes = Kept(bound), [], {}
        for _ in range(200):
            key = draw.randrange(20)
            if kept.find(key) is None:
                sizes[key] = draw.randrange(12)
                kept.add(key, key, sizes[key])
            used = [k for k in used if k != key] + [key]
            held = [key for key in used if kept.find(key) is not None]
            assert held == used[-len(kept) :]
            assert kept.held == sum(sizes[key] for key in held)
            assert len(held) == 1 or kept.held <= bound.most_bytes
            assert not bound.most or len(held) <= bound.most

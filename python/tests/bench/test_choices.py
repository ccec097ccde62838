"""bench/choices.py: the files that it makes of a tuned one."""

import choices
import conftest

TUNED = conftest.ROOT / "bench/results/tuned_nvidia_h100/vit_small_b8.tuned.textproto"


def chosen(text):
    return [choices.field(c, "chosen") for c in choices.split(text)[1]]


def test_a_file_is_what_its_parts_are():
    text = TUNED.read_text()
    assert choices.joined(*choices.split(text)) == text


def test_each_choice_that_is_not_the_default_is_tried_alone():
    text = TUNED.read_text()
    head, parts = choices.split(text)
    defaults = [choices.field(c, "default") for c in parts]
    changed = [i for i, name in enumerate(chosen(text)) if name != defaults[i]]
    assert len(changed) == 6
    made = choices.variants(text)
    assert chosen(made[0][3]) == defaults
    assert made[1][3] == text
    for i, (name, call, margin, variant) in zip(changed, made[2:], strict=True):
        assert call == choices.field(parts[i], "call")
        assert margin > 0
        assert name.endswith(chosen(text)[i])
        assert chosen(variant) == [*defaults[:i], chosen(text)[i], *defaults[i + 1 :]]
        assert variant.startswith(head)

"""models/by_name.py: models of timm and transformers that have no row in models/zoo.py."""

import pytest
import torch
import zoo

SMALL_BERT = "num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=64,vocab_size=99"


def test_a_network_of_timm_has_the_batch_and_the_layout_of_its_name():
    pytest.importorskip("timm")
    for layout, order in (("row_major", torch.contiguous_format), ("channels_last", torch.channels_last)):
        model, (images, classes), _ = zoo.make(f"timm:test_resnet:2:layout={layout},side=64", "cpu")
        assert images.shape == (2, 3, 64, 64) and classes.shape == (2,)
        assert images.is_contiguous(memory_format=order)
        assert model(images, classes).isfinite()


def test_a_network_of_timm_takes_images_of_its_own_side():
    pytest.importorskip("timm")
    _, (images, _), _ = zoo.make("timm:test_vit.r160_in1k:2", "cpu")
    assert images.shape == (2, 3, 160, 160)


def test_a_class_of_transformers_has_the_sizes_of_its_name():
    pytest.importorskip("transformers")
    model, _, kwargs = zoo.make(f"transformers:BertForMaskedLM:2x16:{SMALL_BERT}", "cpu")
    assert kwargs["input_ids"].shape == (2, 16)
    assert len(model.bert.encoder.layer) == 1 and model.config.hidden_size == 32
    assert model(**kwargs).loss.isfinite()


def test_values_are_pythons_literals_or_words():
    pytest.importorskip("transformers")
    name = ("transformers:GPTNeoForCausalLM:1x8:attention_types=[[['global','local'],1]],num_layers=2,"
            "hidden_size=16,num_heads=2,vocab_size=50,activation_function=relu")  # fmt: skip
    model, _, _ = zoo.make(name, "cpu")
    assert model.config.attention_layers == ["global", "local"]
    assert model.config.activation_function == "relu"


@pytest.mark.parametrize(
    "name, what",
    [
        ("nothing", "no model 'nothing'"),
        ("timm:resnet50", "is no SOURCE:NAME:SIZES"),
        ("timm:resnet50:0", "'0' is no positive number"),
        ("timm:resnet50:many", "'many' is no positive number"),
        ("timm:resnet50:2x3", "an image model has one size"),
        ("timm:resnet50:2:layout=sideways", "layout is channels_last or row_major"),
        ("timm:resnet50:2:layout", "'layout' is no KEY=VALUE"),
        ("timm:resnet50:2:side=1+", "is no KEY=VALUE"),
        ("timm:resnet50:2:**x", "is no KEY=VALUE"),
        ("timm:resnet50:2:side=1)(layout=row_major", "is no KEY=VALUE"),
        ("timm:resnet50:2:side=1,side=2", "is no KEY=VALUE"),
        ("timm:resnet50:2:x={[]:1}", "is no KEY=VALUE"),
        ("timm:resnet50:2:side=0", "side is a positive number"),
        ("timm::2", "is no SOURCE:NAME:SIZES"),
        ("timm:a/b:2", "is no SOURCE:NAME:SIZES"),
        ("transformers:BertForMaskedLM:8", "a language model has two sizes"),
    ],
)  # fmt: skip
def test_a_name_that_says_no_model_is_refused_with_what_is_wrong(name, what):
    with pytest.raises(ValueError, match="model") as error:
        zoo.maker(name)
    assert what in str(error.value)

"""Models of the `timm` and `transformers` packages by name, at the sizes that their names say, so that any
network of theirs is measured without a row in zoo.MODELS.

    timm:NAME:BATCH[:KEY=VALUE,..]                 timm:fastvit_t8:32, timm:gcvit_tiny:32:layout=row_major
    transformers:CLASS:BATCHxLENGTH[:KEY=VALUE,..] transformers:AlbertForMaskedLM:8x512:num_hidden_layers=6

timm's networks take random square images of the network's own side, channels last; `side` and `layout`
(channels_last, row_major) change that, and what is left goes to timm.create_model: a network whose positions
are of one side wants `img_size`, too. A class of transformers takes random tokens that are their own labels;
its keys go to the class's configuration. Values are Python's literals, or words.
"""

import ast
import re

EXAMPLES = "timm:resnet50:32, transformers:BertForMaskedLM:8x512:num_hidden_layers=6"


def is_name(name):
    return name.startswith(("timm:", "transformers:"))


def options_of(text, asked):
    """{key: value} of KEY=VALUE,.. in Python's spelling of literals; a word is its own text. Raises
    ValueError, whose message begins with what was asked for."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        keys = [pair.arg for pair in call.keywords]
        plain = isinstance(call.func, ast.Name) and not call.args and None not in keys
        if not plain or not keys or len(set(keys)) < len(keys):
            raise ValueError
        return {
            pair.arg: pair.value.id if isinstance(pair.value, ast.Name) else ast.literal_eval(pair.value)
            for pair in call.keywords
        }
    except (AttributeError, SyntaxError, TypeError, ValueError):
        raise ValueError(f"{asked}: {text!r} is no KEY=VALUE,..") from None


def _number(text, name):
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"model {name!r}: {text!r} is no positive number; for example {EXAMPLES}")
    return int(text)


def _parts(name):
    """(source, model, sizes, {key: value}) of a name. Raises ValueError with what is wrong."""
    parts = name.split(":", 3)
    if len(parts) < 3 or not re.fullmatch(r"[\w.]+", parts[1]):
        raise ValueError(
            f"model {name!r} is no SOURCE:NAME:SIZES[:KEY=VALUE,..]; for example {EXAMPLES}"
        )
    sizes = tuple(_number(size, name) for size in parts[2].split("x"))
    return parts[0], parts[1], sizes, options_of(parts[3], f"model {name!r}") if len(parts) == 4 else {}


def _network(image_model, name, model, sizes, options):
    if len(sizes) != 1:
        raise ValueError(f"model {name!r}: an image model has one size, its batch")
    layout = options.pop("layout", "channels_last")
    if layout not in ("channels_last", "row_major"):
        raise ValueError(f"model {name!r}: layout is channels_last or row_major, not {layout!r}")
    side = options.pop("side", None)
    if side is not None and not (isinstance(side, int) and side > 0):
        raise ValueError(f"model {name!r}: side is a positive number, not {side!r}")

    def make(device):
        import timm

        own = timm.get_pretrained_cfg(model)
        return image_model(
            lambda: timm.create_model(model, pretrained=False, **options),
            *sizes,
            channels_last=layout == "channels_last",
            side=side or (own.input_size[-1] if own else 224),
        )(device)

    return make


def _language_model(language_model, name, model, sizes, options):
    if len(sizes) != 2:
        raise ValueError(f"model {name!r}: a language model has two sizes, BATCHxLENGTH")

    def make(device):
        import transformers

        config = getattr(transformers, model).config_class.__name__
        return language_model(model, config, options, sizes[1], batch=sizes[0])(device)

    return make


def maker(image_model, language_model, name):
    """make(device) of the model, by zoo's image_model and language_model. Raises ValueError with what is wrong
    with the name; whether the package has such a model shows when it is made."""
    source, model, sizes, options = _parts(name)
    if source == "timm":
        return _network(image_model, name, model, sizes, options)
    return _language_model(language_model, name, model, sizes, options)

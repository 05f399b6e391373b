"""Extractors: sizes as published, refusals in one sentence, fit for CUDA graphs and memory formats.

The outside judges: parameter counts of the published networks, and formulas written in numpy.
"""

from __future__ import annotations

import operator
import subprocess
import sys

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.neural.extractors import EXTRACTORS, feature_count, make_extractor, read_extractor_options

torch = pytest.importorskip("torch")

IMAGE = (3, 16, 16)
#: Each extractor on a small image, and the features it promises.
SMALL = {
    "identity": ({}, 768),
    "linear": ({"features": 7}, 7),
    "mlp": ({"hidden": [9, 8], "features": 5}, 5),
    "cnn": ({"channels": [4, 6], "features": 10}, 10),
    "resnet18": ({}, 512),
    "resnet34": ({"norm": "group"}, 512),
}


@pytest.fixture(scope="module", params=SMALL)
def made(request):
    torch.manual_seed(0)
    options, features = SMALL[request.param]
    return make_extractor(request.param, IMAGE, options), features


def numbers(module):
    return sum(weights.numel() for weights in module.parameters())


def test_every_extractor_is_tried_here():
    assert set(SMALL) == set(EXTRACTORS)
    assert all(entry.about and "\n" not in entry.about for entry in EXTRACTORS.values())


def test_the_output_is_a_vector_of_the_promised_length(made):
    module, features = made
    assert feature_count(module, IMAGE) == features
    assert module.eval()(torch.rand(2, *IMAGE)).shape == (2, features)


def test_counting_features_leaves_the_module_as_it_was():
    module = make_extractor("resnet18", (1, 8, 8), {}).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    feature_count(module, (1, 8, 8))
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_channels_last_gives_the_same_numbers(made):
    module, _ = made
    module = module.eval()
    images = torch.rand(2, *IMAGE)
    with torch.no_grad():
        plain = module(images)
        last = module(images.contiguous(memory_format=torch.channels_last))
    assert torch.allclose(plain, last, rtol=1e-4, atol=1e-5)


def test_a_pass_can_be_recorded_without_looking_at_values(made):
    """As a CUDA graph must be: tracing stops at a branch on a value, and lists every call."""
    graph = torch.fx.symbolic_trace(made[0]).graph
    calls = {str(node.target) for node in graph.nodes if node.op == "call_method"}
    assert calls <= {"flatten", "mean"}
    called = {node.target for node in graph.nodes if node.op == "call_function"}
    assert called <= {operator.add}


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11_176_512), ("resnet34", 21_284_672)])
def test_residual_networks_have_the_published_number_of_parameters(name, count):
    """11,689,512 and 21,797,672 with the last layer of 512 × 1,000 weights and 1,000 biases."""
    assert numbers(make_extractor(name, (3, 224, 224), {})) == count
    small = make_extractor(name, IMAGE, {"norm": "group"})
    assert numbers(small) == count - 3 * 64 * (7 * 7 - 3 * 3)


@pytest.mark.parametrize(
    ("size", "stem", "side"),
    [(64, "auto", 8), (65, "auto", 3), (64, "large", 2), (96, "small", 12)],
)
def test_the_stem_follows_the_size_unless_it_is_chosen(size, stem, side):
    module = make_extractor("resnet18", (1, size, size), {"stem": stem}).eval()
    with torch.no_grad():
        assert module.stages(module.stem(torch.rand(1, 1, size, size))).shape[2] == side


def test_a_layer_of_an_mlp_is_what_numpy_computes():
    module = make_extractor("mlp", (2, 3), {"hidden": [4], "features": 3})
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    w1, b1, w2, b2 = (weights.detach().numpy() for weights in module.parameters())
    hidden = np.maximum(x.reshape(5, 6) @ w1.T + b1, 0)
    expected = np.maximum(hidden @ w2.T + b2, 0)
    assert np.allclose(module(torch.from_numpy(x)).detach().numpy(), expected, atol=1e-6)


def test_a_basic_block_adds_its_input_to_its_residual():
    """With zeros in the last norm of each residual a stage of equal widths is a ReLU of x."""
    module = make_extractor("resnet18", (1, 8, 8), {}).eval()
    block = module.stages[0]
    torch.nn.init.zeros_(block.residual[-1].weight)
    x = torch.randn(2, 64, 4, 4)
    assert torch.equal(block(x), x.clamp(min=0))


def test_group_norm_does_not_let_samples_meet():
    module = make_extractor("resnet18", (1, 8, 8), {"norm": "group"}).train()
    images = torch.rand(3, 1, 8, 8)
    alone = torch.cat([module(image[None]) for image in images])
    assert torch.allclose(module(images), alone, rtol=1e-4, atol=1e-5)
    assert not [name for name, _ in module.named_buffers()]


@pytest.mark.parametrize(
    ("name", "shape", "options", "sentence"),
    [
        ("resnet81", IMAGE, {}, "unknown extractor 'resnet81' .the closest is 'resnet18'.*choose"),
        ("mlp", (4,), {"width": 3}, "unknown field `width`.*it knows hidden, features"),
        ("mlp", (4,), {"features": 0}, "features has the width 0.*from 1 to"),
        ("mlp", (4,), {"hidden": "64"}, "Expected `array`.*it knows hidden"),
        ("cnn", IMAGE, {"channels": []}, "channels is empty"),
        ("cnn", (1, 3, 9), {}, "4 × 4 pixels or more here, but the block has 3 × 9"),
        ("cnn", (768,), {}, r"reads images.*shape \[768\]; use 'mlp'"),
        ("resnet18", (768,), {}, "reads images"),
        ("resnet34", (3, 7, 7), {}, "8 × 8 pixels"),
        ("resnet34", (3, 31, 31), {"stem": "large"}, "32 × 32 pixels"),
        ("resnet18", IMAGE, {"stem": "medium"}, "Invalid enum value 'medium'"),
        ("identity", (3, 0), {}, r"shape \[3, 0\]"),
        ("identity", (), {}, r"shape \[\]"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(name, shape, options, sentence):
    with pytest.raises(ConfigError, match=sentence) as refusal:
        make_extractor(name, shape, options)
    assert "\n" not in str(refusal.value)


def test_options_are_read_and_scenes_loaded_without_torch():
    assert read_extractor_options("cnn", {"channels": [8]}).channels == (8,)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import weft.neural.scenes\n"
        "from weft.errors import ConfigError\n"
        "from weft.neural.extractors import make_extractor, read_extractor_options\n"
        "assert read_extractor_options('resnet18', {}).stem == 'auto'\n"
        "try: make_extractor('linear', (3,), {})\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'weft[neural]'" in done.stdout

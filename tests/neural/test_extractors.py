"""Extractors: sizes as published, refusals in one sentence, fit for CUDA graphs and memory formats.

The outside judges: parameter counts of the published networks, and formulas written in numpy.
"""

from __future__ import annotations

import ast
import operator
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from weft.errors import ConfigError
from weft_neural.extractors import EXTRACTORS, feature_count, make_extractor, read_extractor_options

torch = pytest.importorskip("torch")
from weft_neural import neural_network  # noqa: E402
from weft_neural.neural_network import Net  # noqa: E402
from weft_neural.settings import Block  # noqa: E402

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


def made_quickly(name, shape, options):
    """With weights that repeat, of the usual size: drawing millions takes longer than using them.

    Their number of a period is prime, so that no two rows or channels are alike.
    """
    torch.manual_seed(0)
    few = torch.randn(4099)

    def repeat(weights, **_):
        count = weights.numel()
        drawn = few.repeat(count // len(few) + 1)[:count].view_as(weights)
        return weights.data.copy_(drawn * (2.0 * len(weights) / count) ** 0.5)

    with pytest.MonkeyPatch.context() as patch:
        for draw in ("kaiming_normal_", "kaiming_uniform_"):
            patch.setattr(torch.nn.init, draw, repeat)
        return make_extractor(name, shape, options)


@pytest.fixture(scope="module", params=SMALL)
def made(request):
    options, features = SMALL[request.param]
    return made_quickly(request.param, IMAGE, options), features


@pytest.fixture
def undrawn(monkeypatch):
    """Weights stay as the memory was, where only sizes matter: drawing millions takes the time."""
    for draw in ("kaiming_normal_", "kaiming_uniform_"):
        monkeypatch.setattr(torch.nn.init, draw, lambda weights, **_: weights)


@pytest.fixture(scope="module")
def small_resnet():
    return made_quickly("resnet18", (1, 8, 8), {})


def numbers(module):
    return sum(weights.numel() for weights in module.parameters())


def test_every_extractor_is_tried_here():
    assert set(SMALL) == set(EXTRACTORS)
    assert all(entry.about and "\n" not in entry.about for entry in EXTRACTORS.values())


def test_the_output_is_a_vector_of_the_promised_length(made):
    module, features = made
    assert feature_count(module, IMAGE) == features
    assert module.eval()(torch.rand(2, *IMAGE)).shape == (2, features)


def test_counting_features_leaves_the_module_as_it_was(small_resnet):
    module = small_resnet.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    feature_count(module, (1, 8, 8))
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_first_weights_do_not_depend_on_a_network_that_is_made_at_the_same_time(monkeypatch):
    """As when a site brings two runs back at once: PyTorch has one generator for all threads."""
    blocks = {"gene": Block(options={"features": 4}, shape=(6,))}

    def made(seed):
        return Net(blocks, [5], 3, seed=seed, purpose="test").state_dict()

    alone, inside, done = made(1), threading.Event(), threading.Event()
    other = threading.Thread(target=made, args=(2,))

    def interleaved(*arguments):
        if threading.current_thread() is other:
            inside.set()
            done.wait(5)
            return make_extractor(*arguments)
        other.start()
        # The other comes in now, or waits until this one is out.
        inside.wait(0.05)
        try:
            return make_extractor(*arguments)
        finally:
            done.set()

    monkeypatch.setattr(neural_network, "make_extractor", interleaved)
    found = made(1)
    other.join()
    assert all(torch.equal(value, alone[name]) for name, value in found.items())


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
def test_residual_networks_have_the_published_number_of_parameters(name, count, undrawn):
    """11,689,512 and 21,797,672 with the last layer of 512 × 1,000 weights and 1,000 biases."""
    assert numbers(make_extractor(name, (3, 224, 224), {})) == count
    small = make_extractor(name, IMAGE, {"norm": "group"})
    assert numbers(small) == count - 3 * 64 * (7 * 7 - 3 * 3)


@pytest.mark.parametrize(
    ("size", "stem", "side"),
    [(64, "auto", 64), (65, "auto", 17), (64, "large", 16), (96, "small", 96)],
)
def test_the_stem_follows_the_size_unless_it_is_chosen(size, stem, side, undrawn):
    module = make_extractor("resnet18", (1, size, size), {"stem": stem}).eval()
    with torch.no_grad():
        assert module.stem(torch.rand(1, 1, size, size)).shape[1:] == (64, side, side)


def test_a_layer_of_an_mlp_is_what_numpy_computes():
    module = make_extractor("mlp", (2, 3), {"hidden": [4], "features": 3})
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    w1, b1, w2, b2 = (weights.detach().numpy() for weights in module.parameters())
    hidden = np.maximum(x.reshape(5, 6) @ w1.T + b1, 0)
    expected = np.maximum(hidden @ w2.T + b2, 0)
    assert np.allclose(module(torch.from_numpy(x)).detach().numpy(), expected, atol=1e-6)


def test_a_basic_block_adds_its_input_to_its_residual(small_resnet):
    """With zeros in the last norm of each residual a stage of equal widths is a ReLU of x."""
    block = small_resnet.eval().stages[0]
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


def test_options_are_read_without_torch_and_its_absence_is_said(monkeypatch):
    package = sys.modules["weft_neural.extractors"]
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "weft_neural.extractors.simple", raising=False)
    monkeypatch.delattr(package, "simple", raising=False)
    assert read_extractor_options("cnn", {"channels": [8]}).channels == (8,)
    with pytest.raises(ConfigError, match=r"needs torch.*pip install 'weft\[neural\]'"):
        make_extractor("linear", (3,), {})


def test_only_files_with_networks_import_torch():
    """At the top of a file; the registry does so inside functions."""
    neural = Path(sys.modules["weft_neural"].__file__).parent
    importing = set()
    for path in (*neural.glob("extractors/*.py"), *neural.glob("scenes/*.py")):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "torch" for name in names):
                importing.add(path.name)
            inner = {"weft_neural.extractors.simple", "weft_neural.extractors.resnet"}
            assert not inner & set(names), path.name
    assert importing == {"simple.py", "resnet.py"}

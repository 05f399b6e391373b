"""Parties that run together take the steps of a federation, and kernels those of PyTorch."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from weft_neural.baselines import train_alone  # noqa: E402
from weft_neural.local_federation import NeuralFederation  # noqa: E402
from weft_neural.neural_network import Net  # noqa: E402
from weft_neural.neuron_matching import match_classifiers  # noqa: E402
from weft_neural.neuron_matching.settings import Matching  # noqa: E402
from weft_neural.party_samples import Holdings  # noqa: E402
from weft_neural.sample_sources import BlockSource  # noqa: E402
from weft_neural.server_model_accuracy import ServerJudge  # noqa: E402
from weft_neural.settings import Block, NeuralSettings  # noqa: E402
from weft_papers.hyfem.batched_networks.image_blocks_on_device import ImageBlocks  # noqa: E402
from weft_papers.hyfem.batched_networks.matching import Matcher  # noqa: E402
from weft_papers.hyfem.batched_networks.network_operations_interface import Shape  # noqa: E402
from weft_papers.hyfem.batched_networks.normalising import (  # noqa: E402
    batch_back,
    group_back,
    group_forward,
)
from weft_papers.hyfem.batched_networks.pytorch_operations import PytorchOperations  # noqa: E402
from weft_papers.hyfem.batched_networks.report import page  # noqa: E402
from weft_papers.hyfem.batched_networks.residual import Networks, outline  # noqa: E402
from weft_papers.hyfem.batched_networks.rounds import Together  # noqa: E402
from weft_papers.hyfem.batched_networks.runs_as_json_lines import read_lines  # noqa: E402

BLOCKS = ("left", "right")
HELD = {"north": (0, 1), "south": (1,)}


@pytest.fixture(scope="module")
def images():
    """Training and test images of three classes that differ in brightness."""
    random = np.random.default_rng(3)

    def some(count):
        labels = random.integers(0, 3, count)
        bright = 60 * labels[:, None, None, None] + random.integers(0, 100, (2, count, 1, 8, 8))
        return dict(zip(BLOCKS, bright.astype(np.uint8), strict=True)), labels

    return some(24), some(20)


def apart(found, wanted):
    """‖found − wanted‖ / ‖wanted‖: single weights of networks that normalise differ by chance."""
    return float((found - wanted).norm() / wanted.norm())


def rows_of(images):
    labels = images[0][1]
    seen = {"north": (0, 1), "south": (1, 2)}
    return {party: np.flatnonzero(np.isin(labels, own)) for party, own in seen.items()}


def settings(**changes):
    block = Block(extractor="resnet18", options={"stem": "small", "norm": "batch"}, shape=(1, 8, 8))
    given = {"rounds": 2, "steps": 1, "batch": 12, "rate": 0.02, "mu1": 0.5, "mu2": 0.3} | changes
    return NeuralSettings(
        coordinator_sees="weights",
        cipher="plain",
        hidden=(6,),
        blocks=dict.fromkeys(BLOCKS, block),
        **given,
    )


def sources(images):
    (blocks, labels), (test, test_labels) = images
    found = {}
    for party, rows in rows_of(images).items():
        names = [BLOCKS[number] for number in HELD[party]]
        found[party] = BlockSource(
            party,
            Holdings(
                {name: blocks[name][rows] for name in names},
                labels[rows],
                test=Holdings({name: test[name] for name in names}, test_labels),
            ),
        )
    return found


def together(images, chosen, **options):
    pictures = ImageBlocks(*images, 3, torch.device("cpu"))
    rows = rows_of(images)
    return Together(pictures, {p: (own, rows[p]) for p, own in HELD.items()}, chosen, **options)


@pytest.mark.release
@pytest.mark.parametrize(("rounds", "close"), [(1, 1e-4), (2, 5e-2)])
def test_rounds_are_those_of_a_federation(images, rounds, close):
    """In a second round a ReLU that rounding tips over changes all gradients before it a little."""
    chosen = settings(rounds=rounds)
    judge = ServerJudge(*images[1], device="cpu")
    expected = NeuralFederation(sources(images), device="cpu").train(
        chosen, classes=range(3), judge=judge
    )
    run = together(images, chosen)
    turns = list(run.run())
    for turn, row in zip(turns, expected.history, strict=True):
        assert turn.loss == pytest.approx(row.loss, rel=1e-4)
        assert turn.server.accuracy == pytest.approx(row.server_accuracy, abs=0.051)
        assert turn.own.accuracy == pytest.approx(row.local_accuracy, abs=0.051)
    for found, layer in zip(run.matched.layers, expected.model.classifier, strict=True):
        assert apart(found, torch.from_numpy(layer)) < 1e-4
    net = Net({name: chosen.blocks[name] for name in BLOCKS}, (1,), 2)
    for name in BLOCKS:
        weights, statistics = net.pieces([name])
        whole = torch.from_numpy(expected.model.extractors[name])
        weights.copy_(whole[: len(weights)])
        statistics.copy_(whole[len(weights) :])
    loaded = Networks(
        run.server.plan, 2, PytorchOperations(), torch.device("cpu"), low=torch.float32
    )
    loaded.load(list(net.extractors))
    for found, wanted in zip(run.server.vectors(), loaded.vectors(), strict=True):
        for one, other in zip(found, wanted, strict=True):
            assert apart(one, other) < close


@pytest.mark.release
def test_alone_is_every_party_by_itself(images):
    chosen = settings(rounds=1, method="avg")
    run = together(images, chosen, exchange="nothing")
    (turn,) = run.run()
    losses = []
    for party, source in sources(images).items():
        found = train_alone(party, source, chosen, classes=range(3), device="cpu")
        losses.append(found.last.loss * len(rows_of(images)[party]))
    total = sum(map(len, rows_of(images).values()))
    assert turn.loss == pytest.approx(sum(losses) / total, rel=1e-4)
    assert turn.server is None
    assert turn.received is None


@pytest.mark.release
def test_fedper_averages_extractors_and_leaves_classifiers_to_their_parties(images):
    """One round is every party by itself; only then are extractors averaged, by samples."""
    chosen = settings(rounds=1, method="avg")
    alone = together(images, chosen, exchange="nothing")
    run = together(images, chosen, exchange="extractors")
    list(alone.run())
    (turn,) = run.run()
    assert turn.server is None
    assert turn.received is not None
    for found, wanted in zip(run.classifiers.tensors, alone.classifiers.tensors, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    counts = [len(rows) for rows in rows_of(images).values()]
    share = counts[0] / sum(counts)
    for found, own in zip(run.server.vectors(), alone.networks.vectors(), strict=True):
        for to, (left, right, other) in zip(found, own, strict=True):
            torch.testing.assert_close(to[0], left)
            torch.testing.assert_close(to[1], share * right + (1 - share) * other)


@pytest.mark.parametrize("norm", ["batch", pytest.param("group", marks=pytest.mark.release)])
def test_gradients_are_autograd_s(norm):
    """Of a sum of all features, by every weight of two networks."""
    # Of some draws a ReLU is so close to 0 that rounding tips it over.
    torch.manual_seed(0)
    options = {"stem": "small", "norm": norm}
    block = Block(extractor="resnet18", options=options, shape=(1, 8, 8))
    net = Net({"a": block, "b": block}, (1,), 2)
    modules = list(net.extractors)
    plan = outline(modules[0], (1, 8, 8))
    place = torch.device("cpu")
    ours = Networks(plan, 2, PytorchOperations(), place, low=torch.float32)
    ours.load(modules)
    x = torch.rand(2, 6, 8, 8, 1)
    factor = torch.rand(2, 6, 512)
    features = ours.forward(x, learn=True)
    ours.back(factor)
    with torch.enable_grad():
        for number, module in enumerate(modules):
            module.train()
            theirs = module(x[number].permute(0, 3, 1, 2))
            assert apart(features[number], theirs.detach()) < 1e-5
            (theirs * factor[number]).sum().backward()
            for parameter in module.parameters():
                parameter.data = parameter.grad
    wanted = Networks(plan, 2, PytorchOperations(), place, low=torch.float32)
    wanted.load(modules)
    assert apart(ours.dfilters, wanted.filters) < 1e-4
    assert apart(ours.dnorms, wanted.norms) < 1e-4


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_matching_finds_the_selections_of_the_procedure(spread):
    """Close to a common network, and far from it, where neurons open rows and change them."""
    random = np.random.default_rng(5)
    held = [[0, 1, 2, 3], [2, 3, 4, 5], [0, 1, 4, 5]]
    common = random.normal(size=(8, 7)), random.normal(size=(3, 9))
    layers, shares = [], [0.5, 0.3, 0.2]
    for own in held:
        low = common[0][:, [*own, 6]] + spread * random.normal(size=(8, 5))
        order = random.permutation(8)
        high = common[1][:, [*order, 8]]
        layers.append([low[order].astype(np.float32), high.astype(np.float32)])
    names = ["a", "b", "c"]
    chosen = Matching(sweeps=2)
    columns = dict(zip(names, map(np.array, held), strict=True))
    first = match_classifiers(
        *(dict(zip(names, layers, strict=True)), columns, 6, dict(zip(names, shares, strict=True))),
        settings=Matching(fixed=True),
        random=np.random.default_rng(0),
    )
    wanted = match_classifiers(
        *(dict(zip(names, layers, strict=True)), columns, 6, dict(zip(names, shares, strict=True))),
        settings=chosen,
        previous=first,
        random=np.random.default_rng(1),
    )
    matcher = Matcher([torch.tensor([*own, 6]) for own in held], shares, chosen)
    tensors = [tuple(map(torch.from_numpy, own)) for own in layers]
    found = matcher.match(
        tensors, [first.rows[name][0] for name in names], np.random.default_rng(1)
    )
    for name, rows in zip(names, found.rows, strict=True):
        np.testing.assert_array_equal(rows, wanted.rows[name][0])
    for one, other in zip(found.layers, wanted.layers, strict=True):
        np.testing.assert_allclose(one.numpy(), other, atol=1e-5)


def test_the_committed_page_is_that_of_its_runs():
    committed = Path(__file__).parents[2] / "docs" / "results" / "hyfem"
    lines = read_lines(committed / "runs.jsonl")
    assert page(lines) == (committed / "README.md").read_text(encoding="utf-8")
    assert {line["rounds_run"] == line["rounds"] for line in lines} == {True}


def both_normalised(plain, kernels, y, dout):
    """Pairs of what kernels and PyTorch make of group and batch normalisation, backwards too."""
    slope, offset = torch.rand(2, len(y), y.shape[-1], device=y.device)
    found = []
    for ops, low in ((kernels, y.dtype), (plain, torch.float32)):
        out, (mean, scale) = group_forward(ops, y.to(low), (slope, offset), None, relu=True)
        # Where ReLU cuts must not depend on how exactly something was computed.
        kept = found[0].to(low) if found else out
        found.append(out)
        for through, by in (
            (group_back, (mean, scale)),
            (batch_back, (mean[: len(y)], scale[: len(y)])),
        ):
            into = torch.empty_like(slope), torch.empty_like(slope)
            dy = through(ops, dout.to(low), kept, y.to(low), (*by, slope), into)
            found += [dy, *into]
    half = len(found) // 2
    return list(zip(found[:half], found[half:], strict=True))


@pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("triton") is None,
    reason="kernels need a CUDA device and Triton",
)
@pytest.mark.parametrize(
    "shape",
    [Shape(16, 16, 64, 64, 3, 1), Shape(8, 8, 128, 256, 3, 2), Shape(4, 4, 256, 512, 1, 2)],
)
def test_kernels_compute_what_pytorch_does(shape):
    from weft_papers.hyfem.batched_networks.triton_operations import TritonOperations

    plain, kernels = PytorchOperations(), TritonOperations()
    made = torch.Generator("cuda").manual_seed(0)

    def some(*size):
        return torch.randn(size, generator=made, device="cuda").bfloat16()

    x = some(3, 8, shape.height, shape.width, shape.inputs)
    filters = some(3, shape.size**2 * shape.inputs, shape.outputs)
    dy = kernels.convolve(x, filters, shape)
    added, mask_of = some(*x.shape), some(*x.shape)
    found = torch.empty_like(filters), torch.empty_like(filters, dtype=torch.float32)
    kernels.weights_back(x, dy, found[0], shape)
    plain.weights_back(x.float(), dy.float(), found[1], shape)
    pairs = [
        (dy, plain.convolve(x.float(), filters.float(), shape)),
        (
            kernels.input_back(dy, filters, shape, added, mask_of),
            plain.input_back(dy.float(), filters.float(), shape, added.float(), mask_of.float()),
        ),
        found,
        *both_normalised(plain, kernels, dy, some(*dy.shape)),
    ]
    for ours, theirs in pairs:
        assert apart(ours.float(), theirs) < 1e-2

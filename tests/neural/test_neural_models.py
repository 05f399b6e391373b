"""Trained networks as files and as predictors."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from small_networks import HELD, WIDTHS, numbers, samples, tiny, trained

from covering import examples
from weft.errors import ConfigError, DataError
from weft_neural.extractors import EXTRACTORS, register_extractor
from weft_neural.settings import Block
from weft_neural.trained_model import NeuralModel


@cache
def run():
    return trained(how=tiny(rounds=2))


def by_hand(model, inputs):
    """Probabilities without PyTorch: affine, ReLU, affine, …, softmax, in doubles."""
    outputs = []
    for name in model.blocks:
        mean, deviation = model.scaling[name]
        x = (inputs[name] - mean) / deviation
        width = x.shape[1]
        weights = model.extractors[name].astype(float)
        matrix, bias = weights[: 4 * width].reshape(4, width), weights[4 * width :]
        outputs.append(np.maximum(x @ matrix.T + bias, 0))
    x = np.hstack(outputs)
    for number, layer in enumerate(model.classifier):
        x = x @ layer[:, :-1].T.astype(float) + layer[:, -1]
        if number < len(model.classifier) - 1:
            x = np.maximum(x, 0)
    return softmax(x, axis=1)


def all_models():
    found = run()
    return {
        "server": found.model,
        **{f"own of {party}": model for party, model in found.own.items()},
        **{f"copy of {party}": model for party, model in found.received.items()},
        "restricted": found.model.restricted(["gene"]),
    }


def test_models_predict_what_their_formula_says():
    test, _ = samples(40, seed=5)
    for name, model in all_models().items():
        found = model.probabilities(test)
        assert np.allclose(found, by_hand(model, test), atol=1e-6), name
        assert np.array_equal(model.predict(test), model.classes[found.argmax(axis=1)]), name


def test_a_restricted_model_is_the_servers_with_silent_blocks():
    """Leaving a block out is the same as features of 0 from it."""
    server = run().model
    test, _ = samples(20, seed=5)
    silent = {
        name: weights if name == "lab" else np.zeros_like(weights)
        for name, weights in server.extractors.items()
    }
    other = NeuralModel(**{**vars(server), "extractors": silent})
    assert np.allclose(
        server.restricted(["lab"]).probabilities(test), other.probabilities(test), atol=1e-7
    )


def test_the_order_in_which_blocks_are_named_does_not_matter():
    server = run().model
    one, other = server.restricted(["ct", "gene"]), server.restricted(["gene", "ct"])
    assert list(one.blocks) == list(other.blocks) == ["ct", "gene"]
    assert np.array_equal(numbers(one), numbers(other))


@pytest.mark.parametrize("names", [[], ["toe"], ["ct", "toe"]])
def test_models_cannot_be_restricted_to_blocks_that_they_lack(names):
    with pytest.raises(ConfigError, match="ct, lab, gene"):
        run().model.restricted(names)


def test_blocks_that_are_missing_or_of_another_width_are_refused():
    test, _ = samples(5)
    with pytest.raises(DataError, match="'lab' is missing"):
        run().model.predict({"ct": test["ct"], "gene": test["gene"]})
    with pytest.raises(DataError, match="'lab' has samples of shape"):
        run().model.predict({**test, "lab": test["lab"][:, :2]})


# ── files ─────────────────────────────────────────────────────────────────────────────────────


def test_a_saved_model_is_the_same_to_the_bit(tmp_path):
    test, _ = samples(30, seed=5)
    for number, (name, model) in enumerate(all_models().items()):
        path = tmp_path / f"{number}.npz"
        model.save(path)
        found = NeuralModel.load(path)
        assert list(found.blocks) == list(model.blocks), name
        assert np.array_equal(found.classes, model.classes)
        assert numbers(found).tobytes() == numbers(model).tobytes()
        assert found.probabilities(test).tobytes() == model.probabilities(test).tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{number}.npz" for number in range(len(all_models()))
    ]


def test_class_names_survive_a_file(tmp_path):
    model = NeuralModel(**{**vars(run().model), "classes": np.array(["a", "b", "ü"], object)})
    model.save(tmp_path / "model.npz")
    found = NeuralModel.load(tmp_path / "model.npz")
    test, _ = samples(9)
    assert found.predict(test).tolist() == model.predict(test).tolist()


@cache
def saved():
    """The bytes of a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        run().model.save(path)
        return path.read_bytes()


def rewritten(change):
    """The file with other arrays in it."""
    with np.load(io.BytesIO(saved()), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    change(arrays)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def head_with(old, new):
    def change(arrays):
        arrays["head"] = np.array(str(arrays["head"]).replace(old, new))

    return change


BROKEN = {
    "empty": lambda: b"",
    "no archive": lambda: b"a model, honestly",
    "cut off": lambda: saved()[:-50],
    "half": lambda: saved()[: len(saved()) // 2],
    "no head": lambda: rewritten(lambda arrays: arrays.pop("head")),
    "no classes": lambda: rewritten(lambda arrays: arrays.pop("classes")),
    "another format": lambda: rewritten(head_with("model 1", "model 9")),
    "head is no JSON": lambda: rewritten(head_with("{", "")),
    "head is a list": lambda: rewritten(lambda a: a.update(head=np.array("[]"))),
    "no features": lambda: rewritten(head_with('"features": {', '"freatures": {')),
    "an extractor is missing": lambda: rewritten(lambda a: a.pop("extractor 1")),
    "no layers": lambda: rewritten(lambda a: (a.pop("layer 0"), a.pop("layer 1"))),
    "a layer is missing": lambda: rewritten(lambda a: a.pop("layer 0")),
    "a layer is narrow": lambda: rewritten(lambda a: a.update({"layer 0": a["layer 0"][:, 1:]})),
    "layers do not fit": lambda: rewritten(lambda a: a.update({"layer 1": a["layer 1"][:, 1:]})),
    "weights are no numbers": lambda: rewritten(
        lambda a: a.update({"layer 0": np.full(a["layer 0"].shape, np.nan, np.float32)})
    ),
    "weights are texts": lambda: rewritten(
        lambda a: a.update({"layer 0": a["layer 0"].astype(str)})
    ),
    "means of another length": lambda: rewritten(lambda a: a.update({"mean 0": a["mean 0"][1:]})),
    "too few classes": lambda: rewritten(lambda a: a.update(classes=a["classes"][:-1])),
    "a pickle": lambda: rewritten(lambda a: a.update(classes=np.array([{}, 1, 2], object))),
}


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_a_corrupt_file_is_refused_in_a_sentence(make, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(make())
    with pytest.raises(DataError) as error:
        NeuralModel.load(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


LATER = {
    "unknown extractor": lambda: rewritten(head_with("mlp", "oracle")),
    "an extractor is short": lambda: rewritten(
        lambda a: a.update({"extractor 1": a["extractor 1"][:-1]})
    ),
    "another width": lambda: rewritten(head_with('"shape": [3]', '"shape": [30]')),
}


@pytest.mark.parametrize("make", LATER.values(), ids=LATER)
def test_what_only_pytorch_can_find_is_refused_at_the_first_use(make, tmp_path):
    """Whoever sends models about may lack it."""
    path = tmp_path / "model.npz"
    path.write_bytes(make())
    with pytest.raises((DataError, ConfigError)) as error:
        NeuralModel.load(path).predict(samples(3)[0])
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"away\.npz"):
        NeuralModel.load(tmp_path / "away.npz")


@examples(60, deadline=None)
@given(data=st.data())
def test_flipped_bits_load_as_a_refusal_or_as_the_same_model(data, tmp_path_factory):
    """Archives have sums over their parts: what is read is what was written."""
    content = bytearray(saved())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flipped") / "model.npz"
    path.write_bytes(bytes(content))
    with suppress(DataError):
        assert numbers(NeuralModel.load(path)).tobytes() == numbers(run().model).tobytes()


def test_a_model_holds_no_code():
    with zipfile.ZipFile(io.BytesIO(saved())) as archive:
        assert all(name.endswith(".npy") for name in archive.namelist())
        assert all(b"(dp" not in archive.read(name)[:200] for name in archive.namelist())
    assert set(WIDTHS) == {name for names in HELD.values() for name in names}


# ── networks of one's own ─────────────────────────────────────────────────────────────────────


def test_a_block_may_have_any_module_of_ones_own_beside_others():
    """A recurrent network over a block's numbers, beside perceptrons on the other blocks."""

    class Reading(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = torch.nn.GRU(1, 3, batch_first=True)

        def forward(self, block):
            return self.cells(block.unsqueeze(2))[1][0]

    register_extractor("reading", lambda shape, options: Reading(), about="reads number by number")
    try:
        with pytest.raises(ConfigError, match="'reading' already"):
            register_extractor("reading", lambda shape, options: Reading())
        usual = tiny()
        blocks = {**usual.blocks, "ct": Block(extractor="reading")}
        run = trained(how=msgspec.structs.replace(usual, blocks=blocks))
        assert run.model.features == {"ct": 3, "lab": 4, "gene": 4}
        assert len(run.model.extractors["ct"]) == 3 * (3 * 1 + 3 * 3 + 3 + 3)
        assert run.last.present == len(HELD)
    finally:
        EXTRACTORS.pop("reading", None)

"""Matching of classifiers: what the server's classifier and the selections promise."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.errors import ConfigError, DataError
from weft_neural.neuron_matching import Matched, Matching, match_classifiers, pruned

SEEDS = st.integers(0, 2**32 - 1)
COSTS = ("weighted", "squared", "pfnm")


def network(random, n_inputs, widths, classes=3):
    """Layers of a network, entries of size about 1."""
    sizes = [n_inputs, *widths, classes]
    return [random.normal(size=(a, b + 1)) for b, a in pairwise(sizes)]


def unrelated(random, parties=4, n_inputs=6, hidden=1, widest=5):
    """Parties with networks of their own, on some inputs each."""
    classifiers, inputs, weights = {}, {}, {}
    for name in [f"p{number}" for number in range(parties)]:
        own = random.permutation(n_inputs)[: random.integers(1, n_inputs + 1)]
        widths = [int(width) for width in random.integers(1, widest + 1, size=hidden)]
        classifiers[name] = network(random, len(own), widths)
        inputs[name], weights[name] = own, float(random.exponential()) + 0.01
    return classifiers, inputs, weights


def copies(random, net, n_inputs, parties=4, fewer=0):
    """Parts of one network, neurons shuffled: the first party has all neurons, others fewer."""
    classifiers, inputs, truth = {}, {}, {}
    for number in range(parties):
        name = f"p{number}"
        inputs[name] = random.permutation(n_inputs)[: random.integers(2, n_inputs + 1)]
        truth[name] = [
            random.permutation(len(layer))[: len(layer) - (fewer if number else 0)]
            for layer in net[:-1]
        ]
        classifiers[name] = pruned(net, inputs[name], truth[name])
    return classifiers, inputs, truth


def forward(layers, values):
    for number, layer in enumerate(layers):
        values = values @ layer[:, :-1].T + layer[:, -1]
        if number < len(layers) - 1:
            values = np.maximum(values, 0)
    return values


def selection(rows, count):
    """Π as a matrix: neurons × rows of the server."""
    matrix = np.zeros((len(rows), count))
    matrix[np.arange(len(rows)), rows] = 1
    return matrix


@examples(40, deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(0, 2), st.sampled_from(COSTS))
def test_shuffled_parts_of_a_network_are_matched_back(seed, hidden, fewer, cost):
    """Also with other inputs at every party, and with fewer neurons."""
    random = np.random.default_rng(seed)
    # PFNM weighs fit against popularity: with σ = 0.1 a perfect fit is worth more.
    how = Matching(cost=cost, sigma=0.1)
    net = network(random, 7, [5] * hidden)
    classifiers, inputs, truth = copies(random, net, 7, fewer=fewer)
    weights = {name: float(random.uniform(0.1, 2)) for name in classifiers}
    matched = match_classifiers(classifiers, inputs, 7, weights, settings=how, random=random)
    assert matched.objective == pytest.approx([0] * (hidden + 1), abs=1e-20)
    for layer in range(hidden):
        pairs = set()
        for name, rows in truth.items():
            pairs.update(zip(rows[layer], matched.rows[name][layer], strict=True))
        assert len(pairs) == len(net[layer])
        assert len({row for _, row in pairs}) == len(net[layer])
    for name, layers in classifiers.items():
        for mine, given_back in zip(
            layers, pruned(matched.layers, inputs[name], matched.rows[name]), strict=True
        ):
            np.testing.assert_allclose(mine, given_back, atol=1e-12)


@examples(20, deadline=None)
@given(SEEDS, st.integers(1, 3))
def test_server_and_party_compute_the_same_where_layers_agree(seed, hidden):
    """(15) from (16): what the party does not have is 0 in the server's input."""
    random = np.random.default_rng(seed)
    net = network(random, 7, [5] * hidden)
    classifiers, inputs, _ = copies(random, net, 7)
    weights = dict.fromkeys(classifiers, 1.0)
    matched = match_classifiers(classifiers, inputs, 7, weights, settings=Matching(), random=random)
    for name, layers in classifiers.items():
        values = np.zeros((4, 7))
        values[:, inputs[name]] = random.normal(size=(4, len(inputs[name])))
        np.testing.assert_allclose(
            forward(matched.layers, values), forward(layers, values[:, inputs[name]]), atol=1e-10
        )


@examples(40, deadline=None)
@given(SEEDS, st.integers(1, 3), st.sampled_from(COSTS), st.sampled_from([1, 1.5, 2, None]))
def test_selections_are_selections_and_keep_to_the_bound(seed, hidden, cost, most):
    """Π1 = 1 and 1ᵀΠ ≤ 1 by party, Σ 1ᵀΠ ≥ 1 over all, no more rows than allowed."""
    random = np.random.default_rng(seed)
    classifiers, inputs, weights = unrelated(random, hidden=hidden)
    how = Matching(cost=cost, most=most, penalty=0.1, gamma=10, sweeps=2)
    matched = match_classifiers(classifiers, inputs, 6, weights, settings=how, random=random)
    assert set(matched.rows) == set(classifiers)
    for layer in range(hidden):
        count = len(matched.layers[layer])
        together = np.zeros(count)
        for name, layers in classifiers.items():
            matrix = selection(matched.rows[name][layer], count)
            assert matrix.shape[0] == len(layers[layer])
            assert (matrix.sum(axis=1) == 1).all()
            assert (matrix.sum(axis=0) <= 1).all()
            together += matrix.sum(axis=0)
        assert (together >= 1).all()
        widest = max(len(layers[layer]) for layers in classifiers.values())
        assert most is None or count <= most * widest
        assert matched.layers[layer + 1].shape[1] == count + 1


@examples(15, deadline=None)
@given(SEEDS, st.integers(1, 2))
def test_the_server_has_the_weighted_mean_of_line_9(seed, hidden):
    """(Σ p ΠᵀΠ)⁻¹ Σ p Πᵀ vec(w) with Π = Π_in ⊗ Π_out as dense matrices; 0 where nobody has it."""
    random = np.random.default_rng(seed)
    classifiers, inputs, weights = unrelated(random, 3, n_inputs=4, hidden=hidden, widest=3)
    matched = match_classifiers(classifiers, inputs, 4, weights, settings=Matching(), random=random)
    sizes = [4, *(len(layer) for layer in matched.layers)]
    for number, layer in enumerate(matched.layers):
        gram, right, gap = 0.0, 0.0, 0.0
        matrices = {}
        for name, layers in classifiers.items():
            rows = [inputs[name], *matched.rows[name], np.arange(3)]
            down = selection(rows[number + 1], sizes[number + 1])
            across = selection([*rows[number], sizes[number]], sizes[number] + 1)
            whole = matrices[name] = np.kron(across, down)
            gram = gram + weights[name] * whole.T @ whole
            right = right + weights[name] * whole.T @ layers[number].ravel(order="F")
        mean = np.linalg.pinv(gram) @ right
        np.testing.assert_allclose(layer.ravel(order="F"), mean, atol=1e-9)
        for name, layers in classifiers.items():
            off = layers[number].ravel(order="F") - matrices[name] @ mean
            gap += weights[name] * off @ off
        assert matched.objective[number] == pytest.approx(gap, abs=1e-9)


@examples(30, deadline=None)
@given(SEEDS, st.floats(0.01, 10))
def test_sweeps_with_weighted_costs_lower_objective_and_penalties(seed, penalty):
    """One hidden layer: its inputs are known, so that its objective is the whole of what falls."""
    random = np.random.default_rng(seed)
    classifiers, inputs, weights = unrelated(random)
    values, matched = [], None
    for sweeps in (0, 1, 1, 1):
        matched = match_classifiers(
            classifiers,
            inputs,
            6,
            weights,
            settings=Matching(penalty=penalty, sweeps=sweeps),
            previous=matched,
            random=random,
        )
        values.append(matched.objective[0] + penalty * len(matched.layers[0]))
    assert (np.diff(values) <= 1e-9).all()


@examples(30, deadline=None)
@given(SEEDS)
def test_many_sweeps_end_where_another_changes_nothing(seed):
    """Each sweep lowers a bounded sum over finitely many selections, or is the last."""
    random = np.random.default_rng(seed)
    classifiers, inputs, weights = unrelated(random, widest=4)
    matched = None
    for sweeps in (60, 1):
        before = matched
        matched = match_classifiers(
            classifiers,
            inputs,
            6,
            weights,
            settings=Matching(penalty=2.0, sweeps=sweeps),
            previous=before,
            random=random,
        )
    for name, rows in before.rows.items():
        np.testing.assert_array_equal(matched.rows[name][0], rows[0])


def small_scene():
    """Three parties with the same two inputs; rows as far apart as can be."""
    random = np.random.default_rng(5)
    net = [10 * random.normal(size=(4, 3)), random.normal(size=(2, 5))]
    inputs = dict.fromkeys("abc", np.arange(2))
    truth = {"a": [np.array([0, 1, 2])], "b": [np.array([1, 2, 0])], "c": [np.array([3, 1])]}
    classifiers = {name: pruned(net, inputs[name], rows) for name, rows in truth.items()}
    return classifiers, inputs, {"a": 1.0, "b": 2.0, "c": 0.5}


def run(classifiers, inputs, weights, previous=None, **options):
    how = Matching(**{"penalty": 1.0, **options})
    random = np.random.default_rng(1)
    return match_classifiers(
        classifiers, inputs, 2, weights, settings=how, previous=previous, random=random
    )


def test_unrelated_neurons_share_rows_unless_a_row_of_their_own_is_cheap():
    """A row that one party has for itself is averaged with nobody's, and can outgrow all others."""
    random = np.random.default_rng(0)
    own = {name: [random.normal(size=(8, 11)), random.normal(size=(3, 9))] for name in "abc"}
    inputs, weights = dict.fromkeys(own, np.arange(10)), dict.fromkeys(own, 1 / 3)

    def rows(**changes):
        how = Matching(**changes)
        found = match_classifiers(own, inputs, 10, weights, settings=how, random=random)
        return len(found.layers[0])

    assert rows() == 8
    assert rows(penalty=1e-6) == 16
    assert rows(penalty=1e-6, most=None) == 24


def test_a_party_that_is_away_keeps_its_rows_and_what_only_it_has():
    classifiers, inputs, weights = small_scene()
    before = run(classifiers, inputs, weights)
    own, shared = before.rows["c"][0]
    here = {name: [2 * layer for layer in classifiers[name]] for name in "ab"}
    after = run(here, inputs, weights, before, penalty=1e6)
    assert set(after.rows) == {"a", "b", "c"}
    np.testing.assert_array_equal(after.rows["c"][0], before.rows["c"][0])
    np.testing.assert_array_equal(after.layers[0][own], before.layers[0][own])
    np.testing.assert_array_equal(after.layers[1][:, own], before.layers[1][:, own])
    np.testing.assert_allclose(after.layers[0][shared], 2 * before.layers[0][shared])
    assert after.objective == pytest.approx([0, 0], abs=1e-20)


def test_a_newcomer_finds_the_row_of_a_party_that_is_away():
    classifiers, inputs, weights = small_scene()
    before = run(classifiers, inputs, weights)
    inputs["d"], weights["d"] = inputs["c"], 1.0
    late = {"a": classifiers["a"], "d": [layer.copy() for layer in classifiers["c"]]}
    after = run(late, inputs, weights, before)
    np.testing.assert_array_equal(after.rows["d"][0], after.rows["c"][0])
    assert len(after.layers[0]) == 4


def test_rows_that_nobody_uses_any_more_are_dropped_and_others_renumbered():
    classifiers, inputs, weights = small_scene()
    truth = run(classifiers, inputs, weights)
    # Every party on rows of its own, and rows 0 and 5 used by nobody.
    apart = {"a": [np.array([1, 2, 3])], "b": [np.array([4, 6, 7])], "c": [np.array([8, 9])]}
    server = [np.zeros((10, 3)), np.zeros((2, 11))]
    after = run(classifiers, inputs, weights, Matched(server, apart, [0.0, 0.0]), most=4.0)
    assert len(after.layers[0]) == 4
    assert after.objective == pytest.approx([0, 0], abs=1e-20)
    order = np.lexsort(truth.layers[0].T), np.lexsort(after.layers[0].T)
    np.testing.assert_allclose(truth.layers[0][order[0]], after.layers[0][order[1]])


def test_without_sweeps_known_parties_keep_their_rows():
    classifiers, inputs, weights = small_scene()
    before = run(classifiers, inputs, weights)
    shuffled = {name: [layers[0][::-1].copy(), layers[1]] for name, layers in classifiers.items()}
    kept = run(shuffled, inputs, weights, before, sweeps=0)
    for name, rows in before.rows.items():
        np.testing.assert_array_equal(kept.rows[name][0], rows[0])


def test_fixed_rows_are_plain_averaging():
    random = np.random.default_rng(0)
    inputs = {"a": np.array([0, 1]), "b": np.array([1, 0])}
    classifiers = {name: network(random, 2, [4, 3]) for name in inputs}
    matched = run(classifiers, inputs, {"a": 3.0, "b": 1.0}, fixed=True)
    swapped = classifiers["b"][0][:, [1, 0, 2]]
    np.testing.assert_allclose(matched.layers[0], (3 * classifiers["a"][0] + swapped) / 4)
    for layer in (1, 2):
        mean = (3 * classifiers["a"][layer] + classifiers["b"][layer]) / 4
        np.testing.assert_allclose(matched.layers[layer], mean)
    np.testing.assert_array_equal(matched.rows["b"][1], [0, 1, 2])
    classifiers["b"] = network(random, 2, [4, 2])
    with pytest.raises(ConfigError, match="b has hidden layers"):
        run(classifiers, inputs, {"a": 3.0, "b": 1.0}, fixed=True)


def test_a_classifier_without_hidden_layers_is_averaged_by_column():
    inputs = {"a": np.array([0]), "b": np.array([0, 1])}
    classifiers = {"a": [np.array([[1.0, 2.0]])], "b": [np.array([[3.0, 5.0, 4.0]])]}
    matched = run(classifiers, inputs, {"a": 1.0, "b": 1.0})
    np.testing.assert_allclose(matched.layers[0], [[2, 5, 3]])
    assert matched.rows == {"a": [], "b": []}


def test_float32_stays_float32_and_finds_what_float64_finds():
    random = np.random.default_rng(2)
    net = network(random, 30, [20, 10])
    classifiers, inputs, _ = copies(random, net, 30)
    noisy = {
        name: [layer + 0.1 * random.normal(size=layer.shape) for layer in layers]
        for name, layers in classifiers.items()
    }
    single = {name: [layer.astype(np.float32) for layer in net] for name, net in noisy.items()}
    found = [
        match_classifiers(
            these,
            inputs,
            30,
            dict.fromkeys(these, 1.0),
            settings=Matching(),
            random=np.random.default_rng(0),
        )
        for these in (noisy, single)
    ]
    assert {layer.dtype for layer in found[1].layers} == {np.dtype(np.float32)}
    for name in noisy:
        for double, rows in zip(found[0].rows[name], found[1].rows[name], strict=True):
            np.testing.assert_array_equal(double, rows)
    assert found[1].objective == pytest.approx(found[0].objective, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"penalty": -1.0}, "penalty"),
        ({"penalty": float("nan")}, "penalty"),
        ({"most": 0.5}, "most"),
        ({"sweeps": -1}, "sweeps"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma0": float("inf")}, "sigma0"),
        ({"gamma": -2.0}, "gamma"),
    ],
)
def test_settings_out_of_range_are_refused(options, words):
    with pytest.raises(ConfigError, match=f"^{words} is"):
        Matching(**options)


def spoilt(what):
    """The small scene with one thing wrong."""
    classifiers, inputs, weights = small_scene()
    previous = run(classifiers, inputs, weights)
    if what == "weight":
        weights["b"] = 0.0
    elif what == "inputs twice":
        inputs["b"] = np.array([1, 1])
    elif what == "inputs beyond":
        inputs["b"] = np.array([1, 2])
    elif what == "inputs missing":
        del classifiers["b"], inputs["b"]
    elif what == "shape":
        classifiers["b"][1] = classifiers["b"][1][:, 1:]
    elif what == "not finite":
        classifiers["b"][0][0, 0] = np.nan
    elif what == "outputs":
        classifiers["b"][1] = classifiers["b"][1][:1]
    elif what == "width":
        classifiers["b"] = [classifiers["b"][0][:2], classifiers["b"][1][:, [0, 1, 3]]]
    return classifiers, inputs, weights, previous


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("weight", "b weighs 0"),
        ("inputs twice", "inputs of b are not distinct"),
        ("inputs beyond", "inputs of b are not distinct"),
        ("inputs missing", "inputs of b are missing"),
        ("shape", "layer 2 of b has shape"),
        ("not finite", "layer 1 of b has values"),
        ("outputs", "b has 2 layers, 1 outputs"),
        ("width", "b has hidden layers of"),
    ],
)
def test_what_does_not_fit_is_named(what, words):
    with pytest.raises(DataError, match=words):
        run(*spoilt(what))

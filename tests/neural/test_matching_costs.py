"""Costs and assignments of classifier matching, each against a literal slow account of it."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft_neural.neuron_matching.assignment import NEW, assign
from weft_neural.neuron_matching.averaging import others_of
from weft_neural.neuron_matching.classifier_arrays import Classifier
from weft_neural.neuron_matching.costs import (
    pfnm_costs,
    pfnm_openings,
    pfnm_steps,
    squared_costs,
    weighted_costs,
)

N_INPUTS, ROWS = 6, 5
SEEDS = st.integers(0, 2**32 - 1)


def scene(seed, parties=4):
    """Parties with one hidden layer, some inputs, unequal weights and rows of a server."""
    random = np.random.default_rng(seed)
    found, rows = [], {}
    for number in range(parties):
        inputs = random.permutation(N_INPUTS)[: random.integers(1, N_INPUTS + 1)]
        width = int(random.integers(1, ROWS + 1))
        layers = [random.normal(size=(width, len(inputs) + 1)), random.normal(size=(2, width + 1))]
        weight = float(random.exponential()) + 0.01
        found.append(Classifier(f"p{number}", layers, inputs, weight))
        rows[f"p{number}"] = [random.permutation(ROWS)[:width]]
    return found, rows


def entries(parties, rows, weights):
    """By the server's row and column, what lies there: (weight, value) of every party."""
    cells = {}
    for party in parties:
        for j, row in enumerate(rows[party.name][0]):
            for k, column in enumerate([*party.inputs, N_INPUTS]):
                pair = weights[party.name], party.layers[0][j, k]
                cells.setdefault((row, column), []).append(pair)
    return cells


def spread(pairs):
    """Σ p (x − mean)² with the weighted mean."""
    p, x = np.array(pairs).T
    return float(p @ (x - p @ x / p.sum()) ** 2)


def layer_objective(parties, rows):
    weights = {party.name: party.weight for party in parties}
    return sum(spread(pairs) for pairs in entries(parties, rows, weights).values())


def count_rows(rows):
    return len(np.unique(np.concatenate([own[0] for own in rows.values()])))


def weights_of(parties):
    return {party.name: party.weight for party in parties}


@examples(30, deadline=None)
@given(SEEDS)
def test_the_weighted_cost_is_the_rise_of_the_objective(seed):
    (mine, *rest), rows = scene(seed)
    parties = [mine, *rest]
    others = others_of(mine, 0, rows, parties, weights_of(parties))
    costs = weighted_costs(mine.layers[0], mine.weight, others)
    cells = entries(rest, rows, weights_of(parties))
    for (j, neuron), (i, row) in product(enumerate(mine.layers[0]), enumerate(others.rows)):
        rise = 0.0
        for value, column in zip(neuron, [*mine.inputs, N_INPUTS], strict=True):
            if (row, column) in cells:
                there = cells[row, column]
                rise += spread([*there, (mine.weight, value)]) - spread(there)
        assert costs[j, i] == pytest.approx(rise, abs=1e-9)


@examples(30, deadline=None)
@given(SEEDS)
def test_the_squared_cost_is_the_distance_from_the_mean_of_the_others(seed):
    (mine, *rest), rows = scene(seed)
    parties = [mine, *rest]
    others = others_of(mine, 0, rows, parties, weights_of(parties))
    costs = squared_costs(mine.layers[0], others)
    cells = entries(rest, rows, weights_of(parties))
    for (j, neuron), (i, row) in product(enumerate(mine.layers[0]), enumerate(others.rows)):
        distance = 0.0
        for value, column in zip(neuron, [*mine.inputs, N_INPUTS], strict=True):
            if (row, column) in cells:
                p, x = np.array(cells[row, column]).T
                distance += (value - p @ x / p.sum()) ** 2
        assert costs[j, i] == pytest.approx(distance, abs=1e-9)


@examples(30, deadline=None)
@given(SEEDS)
def test_pfnm_costs_are_the_rise_of_the_negative_log_posterior(seed):
    """Twice that of N(0, 1/q₀) rows, N(row, 1/q) neurons and m : J − m odds of use, in loops, each
    row at its best value; less q‖x‖². A column that a party lacks has no term of that party.
    """

    def least(pairs):
        best = sum(p * x for p, x in pairs) / (prior + sum(p for p, _ in pairs))
        return prior * best**2 + sum(p * (x - best) ** 2 for p, x in pairs)

    (mine, *rest), rows = scene(seed)
    parties, prior, gamma = [mine, *rest], 0.7, 1.3
    precision = weights_of(parties)
    others = others_of(mine, 0, rows, parties, precision)
    q, count = precision[mine.name], len(parties)
    costs = pfnm_costs(mine.layers[0], q, prior, count, others)
    cells = entries(rest, rows, precision)
    columns = [*mine.inputs, N_INPUTS]
    for (j, neuron), (i, row) in product(enumerate(mine.layers[0]), enumerate(others.rows)):
        cost = 0.0
        for value, column in zip(neuron, columns, strict=True):
            there = cells.get((row, column), [])
            cost += least([*there, (q, value)]) - least(there) - q * value**2
        users = sum(row in rows[party.name][0] for party in rest)
        cost -= 2 * np.log(users / (count - users))
        assert costs[j, i] == pytest.approx(cost, abs=1e-8)
    openings, steps = pfnm_openings(mine.layers[0], q, prior), pfnm_steps(3, gamma, count)
    for j, neuron in enumerate(mine.layers[0]):
        for new in (1, 2, 3):
            rise = sum(least([(q, x)]) - q * x**2 for x in neuron)
            cost = rise + 2 * np.log(new) - 2 * np.log(gamma / count)
            assert openings[j] + steps[new - 1] == pytest.approx(cost)


def test_float32_costs_tell_neurons_apart_that_share_a_large_offset():
    """Without centred columns the expanded squares (10⁶ a column) would drown differences of 1."""
    random = np.random.default_rng(0)
    base = (1000 + random.normal(size=(20, 41))).astype(np.float32)
    inputs = np.arange(40)
    one = Classifier("one", [base], inputs, 1.0)
    order = random.permutation(20)
    other = Classifier("other", [base[order]], inputs, 1.0)
    others = others_of(other, 0, {"one": [np.arange(20)]}, [one, other], {"one": 1.0})
    costs = squared_costs(other.layers[0], others)
    exact = ((other.layers[0][:, None].astype(float) - base[None].astype(float)) ** 2).sum(axis=2)
    assert costs.dtype == np.float32
    np.testing.assert_allclose(costs, exact, atol=1e-3)


def one_match(mine, rows, parties, cost, penalty, most=None):
    """Rows after one party was taken out and its hidden layer matched again."""
    others = others_of(mine, 0, rows, parties, weights_of(parties))
    neurons = mine.layers[0]
    table = cost(neurons, others)
    free = len(neurons) if most is None else min(len(neurons), max(0, most - len(others.rows)))
    chosen = assign(table, np.full(len(neurons), penalty), np.zeros(free))
    fresh = 1000 + np.arange(len(neurons))
    return {**rows, mine.name: [np.where(chosen == NEW, fresh, others.rows[chosen])]}


@examples(60, deadline=None)
@given(SEEDS, st.floats(0, 20), st.booleans())
def test_one_weighted_match_never_raises_objective_and_penalties(seed, penalty, capped):
    parties, rows = scene(seed)
    mine = parties[0]
    before = layer_objective(parties, rows) + penalty * count_rows(rows)
    most = count_rows(rows) if capped else None
    after = one_match(
        mine,
        rows,
        parties,
        lambda neurons, others: weighted_costs(neurons, mine.weight, others),
        penalty,
        most,
    )
    assert layer_objective(parties, after) + penalty * count_rows(after) <= before + 1e-9
    assert most is None or count_rows(after) <= most


def test_one_squared_match_can_raise_the_objective():
    """1.4 lies closer to 0 than to 3, but 0 is a party that weighs 10 and 3 one that weighs 0.1."""
    heavy, light, mine = (
        Classifier(name, [np.array([[value, 0.0]])], np.array([0]), weight)
        for name, value, weight in (("heavy", 0.0, 10.0), ("light", 3.0, 0.1), ("mine", 1.4, 1.0))
    )
    parties = [heavy, light, mine]
    rows = {"heavy": [np.array([0])], "light": [np.array([1])], "mine": [np.array([1])]}
    assert layer_objective(parties, rows) == pytest.approx(0.1 / 1.1 * 1.6**2)
    squared = one_match(mine, rows, parties, squared_costs, 100.0)
    assert squared["mine"][0] == [0]
    assert layer_objective(parties, squared) == pytest.approx(10 / 11 * 1.4**2)
    weighted = one_match(
        mine, rows, parties, lambda neurons, others: weighted_costs(neurons, 1.0, others), 100.0
    )
    assert weighted["mine"][0] == [1]


def cheapest(costs, openings, steps):
    """The least sum over all ways to give every neuron a row of its own."""
    table = np.hstack((costs, np.add.outer(openings, steps)))
    neurons, rows = table.shape
    return min(
        sum(table[j, row] for j, row in enumerate(order))
        for some in combinations(range(rows), neurons)
        for order in permutations(some)
    )


@examples(80, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_assignments_are_the_cheapest_of_all(seed, neurons, rows, new, flat):
    """Small whole numbers, so that ties are common."""
    random = np.random.default_rng(seed)
    new = max(new, neurons - rows)
    costs = random.integers(0, 8, size=(neurons, rows)).astype(float)
    openings = np.full(neurons, 3.0) if flat else random.integers(0, 8, size=neurons).astype(float)
    steps = np.zeros(new) if flat else np.sort(random.integers(0, 4, size=new)).astype(float)
    chosen = assign(costs, openings, steps)
    old = chosen != NEW
    assert len(np.unique(chosen[old])) == old.sum()
    assert (~old).sum() <= new
    total = costs[old, chosen[old]].sum() + openings[~old].sum() + steps[: (~old).sum()].sum()
    assert total == cheapest(costs, openings, steps)


@examples(20, deadline=None)
@given(SEEDS)
def test_an_assignment_of_many_neurons_costs_what_scipy_finds_in_the_whole_table(seed):
    from scipy.optimize import linear_sum_assignment

    random = np.random.default_rng(seed)
    costs = random.random((30, 25)) ** 3
    openings = np.full(30, random.choice([0.005, 0.05, 0.5]))
    steps = np.zeros(random.integers(5, 31))
    table = np.hstack((costs, np.add.outer(openings, steps)))
    least = table[linear_sum_assignment(table)].sum()
    chosen = assign(costs, openings, steps)
    old = chosen != NEW
    assert len(np.unique(chosen[old])) == old.sum()
    assert costs[old, chosen[old]].sum() + openings[~old].sum() == pytest.approx(least)

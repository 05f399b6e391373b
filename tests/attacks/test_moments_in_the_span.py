"""Rows of single samples, in the coordinates of a run's vectors, from second moments of the span.

Three parties by rows, logistic loss, careful terms, a coordinator alone. With ``span-newton`` it
reads 1/N Σ l''_i Z_ij Z_ik. Whatever makes one l''_i large beside all others makes the moments the
products of that sample alone: scores far off, where only the sample nearest to zero has curvature;
a loss whose curvature begins at once; a row that is far longer than others. So does whatever makes
one weight fall between two searches, as levels do where a new vector is mostly that of one sample.
Without guards all of them tell a row; with them none does.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import by_rows
from scipy.linalg import eigh
from staging import FastStage, scalars

from weft.data import Table
from weft.errors import ProtocolError
from weft.losses import get_loss
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.cap_sample_share_of_moments import levelled, spread_weights, unsteady

HINGE, LOGISTIC = get_loss("hinge"), get_loss("logistic")
STAY = np.array([[1.0], [0.0]])
#: So many times as far as the point that was measured.
FAR = (1e5, 1e6, 1e7)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(1)
    block = random.standard_normal((1200, 6))
    labels = (block[:, 0] + random.logistic(size=1200) > 0).astype(np.int64)
    ids = np.array([f"s{i}" for i in range(1200)], dtype=object)
    names = np.array([f"x{j}" for j in range(6)], dtype=object)
    return Table(ids, names, block / 6.0, labels, "classification", "normal")


def staged(table, loss, solver="span-newton"):
    """A run of parties that tell moments of as many vectors as so few samples allow."""
    settings = Settings(lam=0.01, loss=loss, solver=solver, gap=None, iterations=20)
    stage = FastStage(by_rows(table, 3), settings, "subspace.search", 4)
    stage.by_rows = stage.last("subspace.search", "p1")[0]["by_rows"]
    return stage


def moments(stage, at):
    """What a coordinator reads at some share of the way to a point, and the Z of all samples."""
    held = len(stage.half("p1").features.vectors)
    point = np.zeros((held, 1))
    point[1:, 0] = 1.0, -1.5, 0.7, -0.4
    stage.ask("point", point=point)
    asked = {"moved": STAY, "steps": np.zeros((3, 2, 1)), "at": np.array([[at]]), "moments": True}
    # Sums of the vectors there are never asked for.
    asked["later"] = True
    told = scalars(stage.ask("search", by_rows=stage.by_rows, of="point", **asked), "moments")
    found = np.zeros((held, held))
    found[np.triu_indices(held)] = told
    rows = [stage.half(name).rows for name in stage.names]
    z = np.vstack([half.vectors.columns(0, np.arange(half.labelled.size)) for half in rows])
    # The anchor is zero.
    return (found + np.triu(found, 1).T)[1:, 1:], z[:, 1:]


def alone(matrix, rows):
    """Cosine of the first direction with the row next to it, and how much it is of everything.

    In units in which rows are as long in all directions, but for those lost to rounding.
    """
    _, lengths, ways = np.linalg.svd(rows, full_matrices=False)
    units = (ways / lengths[:, None])[lengths > 1e-4 * lengths[0]]
    even = rows @ units.T
    lengths, directions = np.linalg.eigh(units @ matrix @ units.T)
    cosines = np.abs(even @ directions[:, -1]) / np.linalg.norm(even, axis=1)
    return cosines.max(), lengths[-1] / max(lengths.sum(), 1e-300)


@pytest.fixture
def few_directions(monkeypatch):
    """Moments of three vectors are enough, so that a small table has samples for them."""
    monkeypatch.setattr(
        "weft.solvers.subspace.loss_points_and_directions_limit.LEAST_DIRECTIONS", 3
    )


def unguarded(monkeypatch):
    room = "weft.solvers.subspace.party_sample_values"
    monkeypatch.setattr(f"{room}.spread_weights", lambda loss, z, y, *_: loss.curvature(z, y))
    monkeypatch.setattr(f"{room}.unsteady", lambda columns, z, weights: weights)
    monkeypatch.setattr(f"{room}.levelled", lambda columns, weights, least: (columns, weights))


@pytest.mark.parametrize("guarded", [False, True])
def test_far_off_no_sample_stands_alone(table, few_directions, monkeypatch, record, guarded):
    if not guarded:
        unguarded(monkeypatch)
    stage = staged(table, "logistic")
    found = [alone(*moments(stage, far)) for far in FAR]
    if guarded:
        assert max(share for _, share in found) < 0.9
        record("77", "guarded", "at scores far off: no row")
    else:
        near, share = max(found)
        assert min(near, share) > 0.999
        record("77", "unguarded", f"at scores far off, in one search: a row, cosine {near:.3f}")


@pytest.mark.parametrize("loss", ["squared_hinge", "smoothed_hinge", "poisson"])
def test_no_moments_are_told_where_curvature_may_be_that_of_few(table, few_directions, loss):
    """Between two points next to each other, one sample alone may begin to have some."""
    with pytest.raises(ProtocolError, match="curvature can be spread over many samples"):
        moments(staged(table, loss), 1.0)


@pytest.mark.parametrize(
    ("loss", "solver"),
    [("logistic", "lbfgs"), ("hinge", "cutting-planes"), ("logistic", "span-newton")],
)
def test_only_cuts_that_stand_in_for_newton_are_made_beside_the_way(table, loss, solver):
    """Whoever agreed to another solver has not agreed to vectors in several directions at once, and
    whoever was not told that planes are made, neither."""
    stage = staged(table, loss, solver)
    held = len(stage.half("p1").features.vectors)
    stage.ask("point", point=np.zeros((held, 1)))
    asked = {"moved": STAY, "steps": np.zeros((3, 2, 1)), "at": np.array([[1.0]]), "later": True}
    asked |= {"by_rows": stage.by_rows, "of": "point", "beside": np.zeros((1, held, 1))}
    with pytest.raises(ProtocolError, match="'beside' is for cutting planes of 'span-newton'"):
        stage.ask("search", **asked)


@pytest.mark.parametrize("width", [5e-324, 1e-300, 0.0])
def test_widths_that_would_grow_for_ever_are_refused(table, monkeypatch, width):
    monkeypatch.setattr(
        "weft.solvers.subspace.loss_points_and_directions_limit.LEAST_DIRECTIONS", 1
    )
    stage = staged(table, "hinge")
    held = len(stage.half("p1").features.vectors)
    stage.ask("point", point=np.zeros((held, 1)))
    asked = {"moved": STAY, "steps": np.zeros((3, 2, 1)), "at": np.array([[1.0]]), "later": True}
    asked |= {"by_rows": stage.by_rows, "of": "point", "rounding": np.array([width])}
    with pytest.raises(ProtocolError, match="width below 1e-20"):
        stage.ask("search", **asked)


def test_small_tables_tell_no_moments(table):
    """Also of few vectors: an honest coordinator would not ask for them."""
    with pytest.raises(ProtocolError, match="that count enough of them for min_batch = 10"):
        moments(staged(table, "logistic"), 1.0)


def test_a_sample_that_begins_to_have_curvature_stands_alone_between_two_points():
    """What parties refuse, as a coordinator would read it."""
    random = np.random.default_rng(0)
    rows, labels = random.standard_normal((9000, 8)), np.ones((9000, 1))
    point, way = random.standard_normal((2, 8))
    crossed = np.sort((1 - rows @ point) / (rows @ way))
    first, second = crossed[crossed > 0][:2]
    squared = get_loss("squared_hinge")
    read = []
    for step in (0.5 * first, 0.5 * (first + second)):
        bend = squared.curvature((rows @ (point + step * way))[:, None], labels)
        read.append(rows.T @ (rows * bend))
    lengths, directions = np.linalg.eigh(read[1] - read[0])
    most = directions[:, np.abs(lengths).argmax()]
    assert (np.abs(rows @ most) / np.linalg.norm(rows, axis=1)).max() > 1 - 1e-6


@pytest.mark.parametrize("times", [10.0, 100.0, 1e4])
def test_a_row_that_is_far_longer_than_others_does_not_stand_alone(times, record):
    random = np.random.default_rng(0)
    rows = random.standard_normal((6000, 24))
    rows[7] *= times
    unit, even = rows[7] / np.linalg.norm(rows[7]), np.full(6000, 0.25)

    def first(weights):
        return abs(np.linalg.eigh(rows.T @ (rows * weights[:, None]))[1][:, -1] @ unit)

    plain, guarded = first(even), first(levelled(rows, even, 10)[1])
    assert plain > 0.8
    assert guarded < 0.6
    if times == 100.0:
        record("77", "unguarded", f"a row 100 times as long as others, cosine {plain:.3f}")
        record("77", "guarded", f"a row 100 times as long: cosine {guarded:.1f}")


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("times", [10.0, 100.0, 1e4])
def test_rows_that_are_long_together_do_not_hide_each_other(count, times):
    """Each of two alike had half of their direction, and so much as one too much for all others."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((6000, 24))
    rows[:count] = times * rows[0]
    told, weights = levelled(rows, np.full(6000, 0.25), 10)
    unit = rows[0] / np.linalg.norm(rows[0])
    there = weights * (told @ unit) ** 2
    # So much is ``least`` times the mean share, for each of them.
    assert there[:count].sum() / there.sum() < count * 10 * 24 / 6000 * 1.4
    assert np.median(weights) > 0.2


def test_nothing_is_told_of_directions_that_have_few_digits():
    """Of two vectors that are nearly the same, their difference would be told, and not levelled."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((6000, 24))
    apart = random.standard_normal(6000)
    apart[7] = 1e4
    rows[:, 23] = rows[:, 22] + 1e-7 * apart / np.linalg.norm(apart)

    def own_share(columns):
        squares = (columns[:, 23] - columns[:, 22]) ** 2
        return squares[7] / squares.sum()

    told, _ = levelled(rows, np.full(6000, 0.25), 10)
    np.testing.assert_allclose(told, rows, atol=1e-6)
    assert own_share(rows) > 0.999
    assert own_share(told) < 0.01


def test_directions_that_one_sample_alone_has_are_told_as_empty():
    random = np.random.default_rng(0)
    rows = np.hstack([random.standard_normal((500, 3)), np.zeros((500, 1))])
    rows[7, 3] = 1.0
    _, weights = levelled(rows, np.full(500, 0.25), 10)
    assert weights[7] < 1e-6
    assert (np.delete(weights, 7) > 0.13).all()


def test_two_weightings_tell_no_rows(record):
    """As many samples as there are vectors follow from two; far more have curvature always."""
    random = np.random.default_rng(0)
    rows, labels, used = random.standard_normal((6000, 24)), np.ones((6000, 1)), np.ones((6000, 1))
    point = random.standard_normal(24)
    best = {}
    for guarded in (False, True):
        read = []
        for w in (point, point + 1e-5 * random.standard_normal(24)):
            z = 1e3 * (rows @ w)[:, None]
            bend = LOGISTIC.curvature(z, labels)
            if guarded:
                bend = spread_weights(LOGISTIC, z, labels, np.ones(1), used > 0, 3000)
            read.append(rows.T @ (rows * bend))
        found = np.linalg.inv(eigh(*read)[1]).T
        cosines = rows @ (found / np.linalg.norm(found, axis=0))
        best[guarded] = (np.abs(cosines) / np.linalg.norm(rows, axis=1)[:, None]).max(axis=0)
    assert (best[False] > 0.999).sum() >= 10
    # By chance, the nearest of 6,000 rows to a direction of 24 has about 0.75.
    assert best[True].max() < 0.9
    record("77", "unguarded", f"from two searches, {(best[False] > 0.999).sum()} rows")
    record("77", "guarded", "from two searches: no row")


def test_where_widths_grow_tells_no_row():
    """A lying coordinator looks for that width by halving, at points next to each other.

    Where so many samples had to lie within a width, it was how far one of them is from the kink,
    and from there its row followed, to a cosine of 1.00.
    """
    random = np.random.default_rng(0)
    block, least = random.standard_normal((400, 8)), 40
    labels = np.where(block[:, :1] + random.standard_normal((400, 1)) > 0, 1.0, -1.0)
    used = np.ones((400, 1), bool)

    def grows(w, width):
        z, given = (block @ w)[:, None], np.array([width])
        weights = spread_weights(HINGE, z, labels, given, used, least)
        return not np.array_equal(weights, HINGE.spread_curvature(z, labels, given))

    def edge(w, low, high):
        for _ in range(45):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if grows(w, middle) else (low, middle)
        return high

    point, step = 0.3 * random.standard_normal(8), 1e-4
    there = edge(point, 1e-3, 10.0)
    way = np.array([edge(point + step * unit, 1e-3, 10.0) for unit in np.eye(8)]) - there
    # It moves as a mean of many rows does.
    cosines = np.abs(block @ way) / np.linalg.norm(block, axis=1) / np.linalg.norm(way)
    assert np.linalg.norm(way) > 0.1 * step
    assert cosines.max() < 0.9


@pytest.fixture(scope="module")
def table_with_wild_cells():
    """Six cells, in as many rows and columns, are a hundred times as large as others there."""
    random = np.random.default_rng(7)
    block = random.standard_normal((18000, 24)) * np.geomspace(0.1, 2.0, 24)[random.permutation(24)]
    for k in range(6):
        block[3000 * k + 7, 3 * k + 1] = 100.0 * block[:, 3 * k + 1].std()
    block -= block.mean(axis=0)
    labels = block @ random.standard_normal(24) / 3.0 + random.logistic(size=18000) > 0
    ids = np.array([f"s{i}" for i in range(18000)], dtype=object)
    names = np.array([f"x{j}" for j in range(24)], dtype=object)
    labels = labels.astype(np.int64)
    return Table(ids, names, block / np.sqrt(24.0), labels, "classification", "wild")


def read(replies):
    """Second moments that the coordinator reads of a search."""
    told = scalars(replies, "moments")
    held = (int(np.sqrt(8 * len(told) + 1)) - 1) // 2
    found = np.zeros((held, held))
    found[np.triu_indices(held)] = told
    return found + np.triu(found, 1).T


def between(before, after, weights, z):
    """Of what is between two searches, in directions of most change: cosines of the rows next to
    them, and what share of the change these rows are."""
    values, ways = np.linalg.eigh(after)
    some = values > 1e-9 * values.max()
    units = ways[:, some] / np.sqrt(values[some])
    rows = z @ units
    changes, ways = np.linalg.eigh(units.T @ (after - before) @ units)
    most = np.argsort(-np.abs(changes))[:8]
    along = rows @ ways[:, most]
    share = weights[:, None] * along**2 / len(z) / changes[most]
    nearest, every = share.argmax(axis=0), np.arange(len(most))
    cosines = np.abs(along) / np.linalg.norm(rows, axis=1)[:, None]
    return cosines[nearest, every], share[nearest, every]


@pytest.mark.parametrize("guarded", [False, True])
def test_a_vector_that_is_mostly_one_samples_does_not_take_it_out(
    table_with_wild_cells, monkeypatch, record, guarded
):
    """Of an honest run: what such a sample weighs falls with the vector, and nobody else's does."""
    room, told = "weft.solvers.subspace.party_sample_values", []

    def noted(columns, weights, least):
        found = levelled(columns, weights, least)
        told.append(found[1])
        return found

    monkeypatch.setattr(f"{room}.levelled", noted)
    if not guarded:
        monkeypatch.setattr(f"{room}.unsteady", lambda columns, z, weights: weights)
    settings = Settings(lam=1e-5, loss="logistic", solver="span-newton", gap=1e-5, iterations=20)
    stage = FastStage(by_rows(table_with_wild_cells, 3), settings, "subspace.search", 7)
    answers = [reply for phase, _, _, reply in stage.entries if phase == "subspace.search"]
    searches = [dict(zip(stage.names, answers[k : k + 3], strict=True)) for k in range(0, 21, 3)]
    before, after = read(searches[-2]), read(searches[-1])
    held = len(before) - 1
    rows = [stage.half(name).rows for name in stage.names]
    z = np.vstack([half.vectors.columns(0, np.arange(half.labelled.size)) for half in rows])
    change = np.concatenate(told[-3:]) - np.concatenate(told[-6:-3])
    # The anchor is zero.
    cosines, share = between(
        before[1:, 1:], after[1 : held + 1, 1 : held + 1], change, z[:, 1 : held + 1]
    )
    alone = cosines[share > 0.5].max(initial=0.0)
    if guarded:
        assert alone == 0.0
        record("77", "guarded", "from two searches of an honest run: no row")
    else:
        assert alone > 0.95
        record("77", "unguarded", f"from two searches of an honest run: a row, cosine {alone:.2f}")


def test_questions_that_differ_have_other_weights_and_the_same_question_the_same():
    random = np.random.default_rng(0)
    columns, z, weights = random.standard_normal((6000, 24)), np.zeros(6000), np.full(6000, 0.25)
    first = unsteady(columns, z, weights)
    np.testing.assert_array_equal(first, unsteady(columns, z, weights))
    assert first.min() >= 0.0
    assert first.mean() == pytest.approx(0.25, rel=0.03)
    for other in (unsteady(columns, z + 1e-12, weights), unsteady(columns[:, :23], z, weights)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05


def test_thirty_pairs_of_searches_do_not_take_a_sample_out(record):
    """A coordinator that lies asks again and again, a little beside, to have it all cancel."""
    random = np.random.default_rng(0)
    rows, even = random.standard_normal((6000, 24)), np.full(6000, 0.25)
    rows[7, 23] = 50.0
    nearest = {}
    for guarded in (False, True):
        with_it = without = 0.0
        for k in range(30 if guarded else 1):
            z = np.full(6000, 1e-9 * k)
            for columns in (rows, rows[:, :23]):
                weights = unsteady(columns, z, even) if guarded else even
                told, weights = levelled(columns, weights, 10)
                moments = (told.T @ (told * weights[:, None]))[:23, :23]
                if columns is rows:
                    with_it = with_it + moments
                else:
                    without = without + moments
        units = np.linalg.cholesky(np.linalg.inv(without))
        change = units.T @ (without - with_it) @ units
        change -= np.median(np.diag(change)) * np.eye(23)
        values, ways = np.linalg.eigh(change)
        found = rows[:, :23] @ units @ ways[:, np.abs(values).argmax()]
        nearest[guarded] = abs(found[7]) / np.linalg.norm(rows[7, :23] @ units)
    assert nearest[False] > 0.99
    assert nearest[True] < 0.9
    record("77", "unguarded", f"with a vector and without, a row, cosine {nearest[False]:.3f}")
    record("77", "guarded", "with a vector and without, thirty times: no row")

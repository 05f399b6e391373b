"""Scenes: deals with the counts that the texts print, and files read as their authors write them.

Sets that this project does not keep are written in miniature, in their own formats.
"""

from __future__ import annotations

import json
import pickle
import sys
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.data.named_data_set_files import DataFolder
from weft.errors import DataError
from weft_neural import named_scenes as library_scenes
from weft_papers.data.original_file_readers import mnist_images
from weft_papers.hyfem.scenes import SCENES, Scene, Share, load_scene
from weft_papers.hyfem.scenes import blocks_and_classes_per_party as dealing
from weft_papers.hyfem.scenes.cifar10_files import read_cifar10
from weft_papers.hyfem.scenes.quadrants_and_stratified_rows import (
    QUADRANT_COLOURS,
    QUADRANTS,
    part,
    quadrants,
    thin,
)
from weft_papers.hyfem.scenes.scene import usage

FOUR = ("v1", "v2", "v3", "v4")
TWELVE = tuple(f"v{number}" for number in range(1, 13))

# Figure 11(b), class by class: counts up to 2 in the order of the views. Counts above 2 are printed
# apart from them, in the order of classes and views.
FIGURE_11B = """
000111222111 21222101121 22212121101 111111111111 21222101121 000111111000 222111222 111222222
222222111 222111222111 000111111222 21212121 000111111000 12121212 1212120102 111222111222
000111000111 2121212010 222222 222111111222 212121212121 21222212010 111000222111 1212120102
21222212010 121212222 111111111111 222111111000 222111222111 222 222121212 2222 111000222111
2121212010 01021222212 121212121212 212121222 111111000000 222222111111 121101121101
"""
FIGURE_11B_ABOVE = "3" * 43 + "444" + "333" + "34343434" + "333333"
# Figure 11(c), likewise.
FIGURE_11C = "12221222 2212122 12221222 222 1212 22 22212 21222122 21222 22212221"
FIGURE_11C_ABOVE = "3333 33433 3333 434343333 33433343 3433334333 3333344 3333 3333434 3333"
# Figure 12(a): views 1 to 4 of each class. Counts above 3, of views 1 and 3, are printed apart.
FIGURE_12A = """
22 3031 3230 2121 3231 22 3131 3131 3231 21 3131 21 11 21 3131 2020 11 2022 21 2022 2120 11 12 22 12
22 12 21 22 11 3031 22 2021 21 3131 11 22 12 3032 3230
"""
FIGURE_12A_ABOVE = "6454444545656445445455"


def below(counts, most):
    """Counts up to ``most`` as a figure prints them, one word for each class."""
    return ["".join(str(n) for n in column if n <= most) for column in counts.T]


def above(counts, most):
    return ["".join(str(n) for n in column if n > most) for column in counts.T]


def sizes(shares):
    return [(len(share.blocks), len(share.classes)) for share in shares]


def test_modelnet40_1_has_the_counts_of_figure_11a():
    shares = dealing.four_view_deal(FOUR)
    expected = np.repeat([[1, 1, 2, 2], [1, 2, 2, 1], [2, 2, 1, 1], [2, 1, 1, 2]], 10, axis=0)
    assert np.array_equal(usage(shares, FOUR, 40), expected.T)
    assert sizes(shares) == [(3, 20)] * 4


def test_modelnet40_2_has_the_counts_of_figure_11b():
    shares = dealing.twelve_view_deal(TWELVE)
    counts = usage(shares, TWELVE, 40)
    assert below(counts, 2) == FIGURE_11B.split()
    assert "".join(above(counts, 2)) == FIGURE_11B_ABOVE
    assert sizes(shares) == [(6, 15)] * 8
    assert round(100 * (counts == 0).mean(), 2) == 12.08


def test_table_3_has_the_counts_of_figure_12a():
    shares = dealing.table3(FOUR)
    counts = usage(shares, FOUR, 40)
    assert np.array_equal(counts[0], counts[2])
    assert below(counts, 3) == FIGURE_12A.split()
    assert "".join(word[:1] for word in above(counts, 3)) == FIGURE_12A_ABOVE
    assert [len(share.classes) for share in shares] == [25] * 6
    held = [[int(view[1:]) for view in share.blocks] for share in shares]
    assert held == [[1, 2, 3], [1, 2, 3], [1, 3, 4], [1, 3, 4], [1, 3], [1, 3]]
    assert round(100 * (counts == 0).mean(), 2) == 6.88


def test_table_4_is_as_printed_and_has_the_counts_of_figure_12b():
    shares = dealing.table4(FOUR)
    rows = [("".join(view[1] for view in s.blocks), s.classes[0] + 1) for s in shares]
    expected = [("123", 1), ("123", 6), ("134", 1), ("134", 6), ("13", 1), ("13", 6)]
    assert rows == expected
    assert all(s.classes == tuple(range(s.classes[0], s.classes[0] + 5)) for s in shares)
    assert np.array_equal(usage(shares, FOUR, 10), np.repeat([[3], [1], [3], [1]], 10, axis=1))


def test_cifar10_is_dealt_in_the_manner_of_table_2_and_figure_11c():
    shares = dealing.colour_deal(QUADRANT_COLOURS)
    counts = usage(shares, QUADRANT_COLOURS, 10)
    assert (counts.min(), counts.max()) == (1, 4)
    assert all(6 <= blocks <= 8 and classes == 5 for blocks, classes in sizes(shares))
    assert len(shares) == 9
    printed = sum(int(digit) for digit in FIGURE_11C + FIGURE_11C_ABOVE if digit != " ")
    assert counts.sum() == printed == 300


@pytest.mark.parametrize(
    ("shares", "blocks", "common"),
    [
        (dealing.quadrant_deal(FOUR), FOUR, {"v1", "v3"}),
        (dealing.view_deal("v1", ("v2", "v3"), ("v4", "v5", "v6")), TWELVE[:6], {"v1"}),
    ],
)
def test_our_deals_of_ten_classes_keep_their_promises(shares, blocks, common):
    counts = usage(shares, blocks, 10)
    assert sizes(shares) == [(3, 5)] * 6
    assert counts.min() >= 1
    assert all(sum(c in s.classes for s in shares) == 3 for c in range(10))
    everywhere = set.intersection(*(set(s.blocks) for s in shares))
    assert everywhere == common
    # No two parties have the same classes, and no line splits classes between two groups.
    assert len({s.classes for s in shares}) == 6
    shared = [len(set(a.classes) & set(b.classes)) for a, b in combinations(shares, 2)]
    assert max(shared) <= 4
    assert not any(set(s.classes) in (set(range(5)), set(range(5, 10))) for s in shares)


def test_the_deal_of_2020_and_that_of_herigraph_have_the_sizes_of_the_texts():
    shares = dealing.four_view_deal_2020(FOUR)
    assert sizes(shares) == [(3, 30)] * 4
    assert usage(shares, FOUR, 40).min() >= 2
    shares = dealing.pair_deal(FOUR)
    assert sizes(shares) == [(2, 6)] * 6
    assert len({s.blocks for s in shares}) == 6
    counts = usage(shares, FOUR, 9)
    assert counts.min() >= 1
    assert counts.sum(axis=0).tolist() == [8] * 9


@st.composite
def scenes(draw):
    """Small scenes with samples that lack blocks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, blocks, classes = draw(st.integers(1, 30)), ["a", "b", "c"], 4
    values = {b: rng.normal(size=(n, 2)).astype(np.float32) for b in blocks}
    having = {b: rng.random(n) < 0.7 for b in blocks[: draw(st.integers(0, 3))]}
    labels = rng.integers(0, classes, n)
    shares = []
    for k in range(draw(st.integers(1, 4))):
        every = draw(st.integers(1, 3))
        shares.append(
            Share(
                f"p{k}",
                tuple(draw(st.lists(st.sampled_from(blocks), min_size=1, unique=True))),
                tuple(draw(st.lists(st.integers(0, classes - 1), min_size=1, unique=True))),
                every,
                draw(st.integers(0, every - 1)),
            )
        )
    names = tuple("wxyz")
    return Scene("s", values, labels, values, labels, names, tuple(shares), having, having)


@given(scenes())
@examples(40, deadline=None)
def test_who_holds_what_is_as_if_asked_cell_by_cell(scene):
    n = len(scene.labels)

    def has(row, block):
        return block not in scene.having or scene.having[block][row]

    def holds(share, row):
        rank = list(scene.labels[:row]).count(scene.labels[row])
        mine = scene.labels[row] in share.classes and rank % share.every == share.first
        return mine and all(has(row, block) for block in share.blocks)

    used = set()
    for share in scene.shares:
        rows = [row for row in range(n) if holds(share, row)]
        used |= {(row, block) for row in rows for block in share.blocks}
        blocks, labels = scene.held(share.party)
        assert tuple(blocks) == share.blocks
        assert labels.tolist() == scene.labels[rows].tolist()
        assert all(np.array_equal(blocks[b], scene.blocks[b][rows]) for b in share.blocks)
        tested, _ = scene.tested(share.party)
        rows = [row for row in range(n) if all(has(row, block) for block in share.blocks)]
        assert all(np.array_equal(tested[b], scene.test_blocks[b][rows]) for b in share.blocks)
    there = {(row, block) for row in range(n) for block in scene.blocks if has(row, block)}
    if there:
        assert scene.unused() == pytest.approx(len(there - used) / len(there))
    pairs = [
        [sum(b in s.blocks and c in s.classes for s in scene.shares) for c in range(4)]
        for b in "abc"
    ]
    assert scene.usage().tolist() == pairs


def test_a_scene_that_does_not_fit_together_is_refused():
    block, labels = {"a": np.zeros((3, 2), np.float32)}, np.array([0, 1, 1])
    good = ("s", block, labels, block, labels, ("x", "y"), (Share("p1", ("a",), (0,)),))
    scene = Scene(*good)
    with pytest.raises(DataError, match="no party 'p2'; its parties are p1"):
        scene.held("p2")
    for place, wrong, sentence in (
        (2, labels[:2], "3 rows for 2 labels"),
        (5, ("x",), "labels go from 0 to 1, but there are 1 classes"),
        (6, (Share("p1", ("b",), (0,)),), "party 'p1' holds 'b'"),
        (6, (Share("p1", ("a",), (2,)),), "party 'p1' holds 2"),
        (6, good[6] * 2, "same name"),
    ):
        with pytest.raises(DataError, match=sentence):
            Scene(*good[:place], wrong, *good[place + 1 :])
    with pytest.raises(DataError, match="party 'p1' holds nothing"):
        Share("p1", (), (0,))


@given(st.lists(st.integers(2, 40), min_size=2, max_size=6), st.data())
@examples(40, deadline=None)
def test_drawn_samples_keep_the_shares_of_classes(counts, data):
    labels = np.repeat(np.arange(len(counts)), counts)
    wanted = data.draw(st.integers(len(counts), len(labels)))
    rows = thin(labels, wanted, 3, "samples")
    assert len(set(rows.tolist())) == len(rows) == wanted
    drawn = np.bincount(labels[rows], minlength=len(counts))
    assert drawn.min() >= 1
    exact = wanted * np.array(counts) / len(labels)
    # Within one sample of the share, but where a class was owed less than one.
    assert (drawn <= np.maximum(np.ceil(exact), 1)).all()
    assert (drawn >= np.floor(exact) - (exact < 1).sum()).all()
    train, test = part(labels, 0.25, 3)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels[test]) == set(range(len(counts)))


def test_too_few_samples_are_refused():
    with pytest.raises(DataError, match="test_samples is 2, but there are 3 classes"):
        thin(np.array([0, 1, 2, 0]), 2, 0, "test_samples")


def test_mnist_is_cut_into_quadrants(data_dir):
    scene = load_scene("mnist", data_dir, samples=300, test_samples=50)
    assert scene.shapes() == dict.fromkeys(QUADRANTS, (1, 14, 14))
    assert (len(scene.labels), len(scene.test_labels)) == (300, 50)
    one, two, three, four = scene.test_blocks.values()
    whole = np.block([[one, two], [three, four]])[:, 0]
    images, labels = mnist_images(DataFolder.of("mnist", data_dir), "test")
    place = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    assert [place[image.tobytes()] for image in whole] == scene.test_labels.tolist()
    assert scene.unused() == 0
    assert scene.common_blocks() == ("top_left", "bottom_left")
    held = [set(scene.held(party)[1].tolist()) for party in scene.parties]
    assert [len(classes) for classes in held] == [5] * 6


@pytest.fixture(scope="module")
def mfeat(data_dir):
    return load_scene("mfeat", data_dir)


def test_mfeat_is_split_by_the_seed_and_scaled_by_its_training_part(mfeat, data_dir):
    scene = mfeat
    widths = {name: shape[0] for name, shape in scene.shapes().items()}
    assert widths == {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}
    assert np.bincount(scene.labels).tolist() == [150] * 10
    assert np.bincount(scene.test_labels).tolist() == [50] * 10
    for block in scene.blocks.values():
        assert np.abs(block.mean(axis=0)).max() < 1e-5
        assert np.allclose(block.std(axis=0), 1, atol=1e-4)
    again = load_scene("mfeat", data_dir)
    other = load_scene("mfeat", data_dir, seed=1, samples=200)
    assert np.array_equal(scene.blocks["pix"], again.blocks["pix"])
    assert np.bincount(other.labels).tolist() == [20] * 10
    assert not np.array_equal(scene.test_blocks["pix"], other.test_blocks["pix"])


def test_rows_of_mfeat_line_up_in_both_parts(mfeat):
    """The nearest of ten means over all views is nearly always that of the right digit."""
    scene = mfeat
    train, test = (
        np.hstack(list(scene.blocks.values())),
        np.hstack(list(scene.tested()[0].values())),
    )
    means = np.stack([train[scene.labels == digit].mean(axis=0) for digit in range(10)])
    nearest = ((test[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == scene.test_labels).mean() > 0.93


@pytest.fixture(scope="module")
def pillow():
    return pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def tiny_cifar(tmp_path_factory, pillow):
    """Twenty images for training and four for testing, in the three forms."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
    labels = np.resize(np.arange(10), 24)
    root = tmp_path_factory.mktemp("forms")
    batches = [(f"data_batch_{k + 1}", slice(4 * k, 4 * k + 4)) for k in range(5)]
    batches.append(("test_batch", slice(20, 24)))
    for form in ("png", "bin", "py"):
        (root / form / "cifar10").mkdir(parents=True)
    inner = root / "py" / "cifar10" / "cifar-10-batches-py"
    inner.mkdir()
    for name, rows in batches:
        strip = images[rows].transpose(0, 2, 3, 1).reshape(4, 1024, 3)
        pillow.fromarray(strip).save(root / "png" / "cifar10" / f"{name}.png")
        records = np.hstack([labels[rows, None].astype(np.uint8), images[rows].reshape(4, -1)])
        (root / "bin" / "cifar10" / f"{name}.bin").write_bytes(records.tobytes())
        (inner / name).write_bytes(python2_batch(images[rows], labels[rows].tolist()))
    for stem, rows in (("train", slice(20)), ("test", slice(20, 24))):
        text = json.dumps(labels[rows].tolist())
        (root / "png" / "cifar10" / f"{stem}_lables.json").write_text(text)
    return root, images, labels


def python2_batch(images, labels):
    """A batch as Python 2 pickled it: its strings are bytes, and numpy had other module names."""
    raw = images.tobytes()
    return (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b"
        b"\x87R(K\x01K"
        + bytes([len(images)])
        + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87"
        b"R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + len(raw).to_bytes(4, "little")
        + raw
        + b"tbU\x06labels]("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eu."
    )


@pytest.mark.parametrize("form", ["png", "bin", "py"])
def test_cifar10_is_read_from_each_of_its_forms(form, tiny_cifar):
    root, images, labels = tiny_cifar
    scene = load_scene("cifar10-quadrants", root / form)
    one, two, three, four = scene.blocks.values()
    assert np.array_equal(np.block([[one, two], [three, four]]), images[:20])
    assert np.array_equal(scene.labels, labels[:20])
    assert np.array_equal(scene.test_labels, labels[20:])
    twelve = load_scene("cifar10", root / form, samples=10)
    assert tuple(twelve.blocks) == QUADRANT_COLOURS
    assert np.bincount(twelve.labels).tolist() == [1] * 10
    whole = load_scene("cifar10", root / form)
    assert np.array_equal(whole.blocks["top_right_green"][:, 0], images[:20, 1, :16, 16:])
    assert np.array_equal(whole.test_blocks["bottom_left_blue"][:, 0], images[20:, 2, 16:, :16])


def test_a_pickle_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(DataError, match=r"not a batch of CIFAR-10 .it names builtins.print"):
        read_cifar10(tmp_path)


def test_damaged_or_missing_batches_are_named(tmp_path, tiny_cifar, monkeypatch):
    root, _, _ = tiny_cifar
    with pytest.raises(DataError, match="put the five data_batch files and test_batch there"):
        read_cifar10(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(b"short")
    with pytest.raises(DataError, match="3,073 bytes"):
        read_cifar10(tmp_path)
    (tmp_path / "data_batch_1.png").write_bytes(b"short")
    with pytest.raises(DataError, match="not an image"):
        read_cifar10(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'weft\[report\]'"):
        read_cifar10(root / "png" / "cifar10")


def test_eurosat_is_split_and_cut(tmp_path, pillow):
    rng = np.random.default_rng(0)
    for number in range(10):
        folder = tmp_path / "eurosat" / f"Class{number}"
        folder.mkdir(parents=True)
        for sample in range(5):
            # Smooth, since JPEG keeps no noise: the left half in the colour of the class.
            pixels = np.full((64, 64, 3), 10 * sample, np.uint8)
            pixels[:, :32, 0] = 20 * number
            pillow.fromarray(pixels).save(folder / f"Class{number}_{rng.integers(9999)}.jpg")
    scene = load_scene("eurosat", tmp_path)
    assert scene.class_names[3] == "Class3"
    assert scene.shapes() == dict.fromkeys(QUADRANT_COLOURS, (1, 32, 32))
    assert np.bincount(scene.labels).tolist() == [4] * 10
    assert np.bincount(scene.test_labels).tolist() == [1] * 10
    red = scene.blocks["bottom_left_red"].mean(axis=(1, 2, 3))
    assert np.abs(red - 20.0 * scene.labels).max() < 12
    assert len(scene.shares) == 9
    few = load_scene("eurosat-quadrants", tmp_path, samples=10)
    assert few.shapes() == dict.fromkeys(QUADRANTS, (3, 32, 32))
    assert np.bincount(few.labels).tolist() == [1] * 10
    (tmp_path / "eurosat" / "Class9").rename(tmp_path / "Class9")
    with pytest.raises(DataError, match="9 folders instead of 10"):
        load_scene("eurosat", tmp_path)


@pytest.fixture(scope="module")
def tiny_modelnet(tmp_path_factory, pillow):
    """Two objects to train on and one to test on of 40 classes; brightness tells class and view."""
    root = tmp_path_factory.mktemp("views")
    for number in range(40):
        for part_name, count in (("train", 2), ("test", 1)):
            folder = root / "modelnet40" / f"kind{number:02d}" / part_name
            folder.mkdir(parents=True)
            for sample in range(count):
                mark = "v" if sample else ""
                for view in range(1, 13):
                    pixels = np.full((2, 2), 5 * number + view, np.uint8)
                    name = f"kind{number:02d}_{sample:04d}_{mark}{view:03d}.png"
                    pillow.fromarray(pixels).save(folder / name, compress_level=0)
    return root


@pytest.mark.parametrize(
    ("name", "views", "parties", "unused"),
    [
        ("modelnet40-1", (1, 4, 7, 10), 4, 0),
        ("modelnet40-2", tuple(range(1, 13)), 8, 58 / 480),
        ("modelnet40-common", (1, 4, 7, 10), 6, 11 / 160),
        ("modelnet40-2020", (1, 4, 7, 10), 4, 0),
    ],
)
def test_modelnet40_is_read_view_by_view(name, views, parties, unused, tiny_modelnet):
    scene = load_scene(name, tiny_modelnet, size=4)
    assert scene.shapes() == dict.fromkeys([f"view{view}" for view in views], (1, 4, 4))
    assert np.bincount(scene.labels).tolist() == [2] * 40
    assert np.bincount(scene.test_labels).tolist() == [1] * 40
    for view in views:
        assert (scene.blocks[f"view{view}"][:, 0, 3, 3] == 5 * scene.labels + view).all()
    assert len(scene.parties) == parties
    assert scene.unused() == pytest.approx(unused)


def test_an_object_without_one_of_its_views_is_named(tiny_modelnet, tmp_path):
    with pytest.raises(DataError, match="size is 0"):
        load_scene("modelnet40-1", tiny_modelnet, size=0)
    first = tiny_modelnet / "modelnet40" / "kind07" / "test" / "kind07_0000_004.png"
    kept = first.read_bytes()
    try:
        first.unlink()
        with pytest.raises(DataError, match="object kind07_0000 has no view 004"):
            load_scene("modelnet40-1", tiny_modelnet)
    finally:
        first.write_bytes(kept)


@pytest.fixture
def posts():
    """Ninety posts of nine classes; every third has no text."""
    rng = np.random.default_rng(0)
    names = ("faces", "places", "scenes", "text")
    blocks = {name: rng.normal(3, 2, (90, 2 + k)) for k, name in enumerate(names)}
    blocks["text"][::3] = np.nan
    return np.repeat([f"class {letter}" for letter in "abcdefghi"], 10), blocks


def test_a_post_without_a_block_is_at_no_party_that_needs_it(tmp_path, posts):
    labels, blocks = posts
    (tmp_path / "herigraph").mkdir()
    np.savez(tmp_path / "herigraph" / "herigraph.npz", labels=labels, **blocks)
    scene = load_scene("herigraph", tmp_path)
    assert (len(scene.labels), len(scene.test_labels)) == (72, 18)
    assert scene.class_names[8] == "class i"
    lacking = ~scene.having["text"]
    assert lacking.sum() + (~scene.test_having["text"]).sum() == 30
    for share in scene.shares:
        expected = np.isin(scene.labels, share.classes)
        if "text" in share.blocks:
            expected &= ~lacking
        assert np.array_equal(scene.rows(share.party), np.flatnonzero(expected))
    assert len(scene.tested()[1]) == scene.test_having["text"].sum()
    assert len(scene.tested("p1")[1]) == 18
    text = scene.blocks["text"]
    assert np.abs(text[~lacking].mean(axis=0)).max() < 1e-6
    assert not text[lacking].any()


def test_herigraph_is_the_same_from_tables_as_from_an_archive(tmp_path, posts):
    labels, blocks = posts
    for form in ("npz", "csv"):
        (tmp_path / form / "herigraph").mkdir(parents=True)
    np.savez(tmp_path / "npz" / "herigraph" / "herigraph.npz", labels=labels, **blocks)
    folder = tmp_path / "csv" / "herigraph"
    pd.DataFrame({"id": range(90), "label": labels}).to_csv(folder / "labels.csv", index=False)
    for name, values in blocks.items():
        frame = pd.DataFrame(values).assign(id=range(90)).dropna()
        # In another order, as files of different sources are.
        frame.iloc[::-1].to_csv(folder / f"{name}.csv", index=False)
    one, other = (load_scene("herigraph", tmp_path / form) for form in ("npz", "csv"))
    assert one.shares == other.shares
    assert np.array_equal(one.labels, other.labels)
    for name in blocks:
        assert np.allclose(one.blocks[name], other.blocks[name], atol=1e-6)
        assert np.allclose(one.test_blocks[name], other.test_blocks[name], atol=1e-6)
    assert np.array_equal(one.having["text"], other.having["text"])
    (folder / "labels.csv").write_text("id,label\n1,a\n1,b\n")
    with pytest.raises(DataError, match="an id is there twice"):
        load_scene("herigraph", tmp_path / "csv")


@pytest.mark.parametrize(
    "name", [name for name, entry in SCENES.items() if not entry.needs.startswith("nothing")]
)
def test_missing_data_says_which_files_go_where(name, tmp_path, monkeypatch):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    place = name.split("-")[0]
    assert SCENES[name].needs.startswith(f"{place}/")
    for data_dir in (None, tmp_path):
        with pytest.raises(DataError, match=place) as refusal:
            load_scene(name, data_dir)
        assert "WEFT_DATA" in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_unknown_scenes_and_options_are_refused():
    with pytest.raises(DataError, match="did you mean 'mnist'"):
        library_scenes.load_scene("mnits")
    for load in (load_scene, library_scenes.load_scene):
        with pytest.raises(DataError, match="no option 'size'; it takes samples, test_samples"):
            load("mnist", size=3)


def test_images_of_odd_size_have_no_quadrants():
    with pytest.raises(DataError, match="images of 5 × 4 pixels"):
        quadrants(np.zeros((1, 1, 5, 4), np.uint8))

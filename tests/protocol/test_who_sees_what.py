"""What crosses the channel: no names, no labels, no foreign slots, nothing readable."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import cache
from itertools import product

import numpy as np
import pytest

from covering import cover, every_value
from small_federations import rough_curvature
from weft.crypto.ciphers.block_format import KIND_CODES, read_block, words_of
from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.solvers.run_settings import Settings

PREPARATION = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
#: For steps that need no rows of norm one: these are found in twenty round trips.
FREE_ROWS = Preprocessing(intercept=True, scaling="standard")
BLOCKS = tuple(KIND_CODES)
SCALARS = ("flags", "squares", "norms", "losses", "norm_change", "estimate")
#: Phases whose messages are names, tokens and sealed boxes.
BOXED = ("announce", "classes", "match.", "release")
#: Which samples have labels, and which of two cohorts each is in, look like labels.
LIKE_LABELS = ("labelled", "view.tile_row_cohorts.places")
LOCALS = ("safe", "practical", "theory")
RULES = {
    "everyone": "everyone",
    "half": 0.5,
    "in turns": {"cyclic": 2},
    "by trace": {"trace": [["north", "east"], ["south", "west", "north"], ["east"]]},
}


def both_ways(trained):
    """(direction, phase, party, field, value) of everything that crossed the channel."""
    for entry in trained.channel.transcript:
        for direction, message in (("down", entry.message), ("up", entry.reply)):
            for field, value in message.items():
                yield direction, entry.phase, entry.party, field, value


def blocks_in(trained, direction=None):
    """(phase, party, kind, block) of every block that crossed."""
    for way, phase, party, field, value in both_ways(trained):
        if field in BLOCKS and direction in (None, way):
            yield phase, party, field, read_block(value, f"{phase} {party} {field}")


def words_in(trained, direction=None):
    """All encrypted words, in the order in which they crossed."""
    found = []
    for *where, block in blocks_in(trained, direction):
        words = words_of(block, str(where)).ravel()
        found.append(words[~untouched(block, words)])
    return np.concatenate(found)


def untouched(block, words):
    """Which words are of totals to which nobody has contributed yet: zero, under no pad."""
    if block.carried.pad_ids.all():
        return np.zeros(words.shape, bool)
    return words == 0


def texts_in(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode("latin-1")]
    if isinstance(value, np.ndarray):
        # Names could also hide in the raw bytes of an array.
        return [
            value.tobytes().decode("latin-1"),
            *(str(v) for v in value.flat if isinstance(v, str)),
        ]
    return []


@pytest.fixture(autouse=True)
def _curvature():
    with rough_curvature():
        yield


@pytest.fixture(scope="module")
def crossed(patchwork, quick):
    """A federation in which east has no labels, and its recorded run; each is made once."""

    @cache
    def found(local, rule):
        settings = quick(local=local, participation=RULES[rule])
        how = PREPARATION if local == "theory" else FREE_ROWS
        federation = Federation(patchwork(unlabelled=("east",)), how, record=True)
        return federation, federation.train(settings)

    return found


every_rule = every_value(rule=RULES, local=LOCALS)


@every_rule
def test_no_message_carries_an_id_a_feature_name_or_the_labels_in_the_clear(
    patchwork, crossed, local, rule
):
    tiles = patchwork(unlabelled=("east",))
    _, trained = crossed(local, rule)
    names = {str(n) for held in tiles.values() for t in held for n in (*t.ids, *t.features)}
    vectors = []
    for (held,) in tiles.values():
        if held.labels is not None:
            classes = held.labels.astype(float)
            vectors += [classes, 2 * classes - 1]
    seen = 0
    for direction, phase, party, field, value in both_ways(trained):
        seen += 1
        where = f"{direction} {phase} {party} {field}"
        for text in texts_in(value):
            assert not any(name in text for name in names), where
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size > 4:
            flat = np.sort(value.astype(float).ravel())
            for labels in vectors:
                if flat.size == labels.size and field not in LIKE_LABELS:
                    assert not np.array_equal(flat, np.sort(labels)), where
    assert seen > 100


def tokens(tiles, field, keys=None):
    federation = Federation(tiles, record=True, keys=keys)
    channel, *_ = federation.assemble(Settings(lam=1.0))
    return {e.party: e.reply[field] for e in channel.transcript if e.phase == "match.tokens"}


def test_tokens_agree_between_parties_and_change_with_every_run(patchwork):
    """Also with the same keys: else one run could be matched with another."""
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles))
    for field, of in (("rows", lambda t: t.ids), ("columns", lambda t: t.features)):
        here = {party: found.tolist() for party, found in tokens(tiles, field, keys).items()}
        # Sorted, so that they do not show the order of the file; as many agree as names do.
        assert all(found == sorted(found) for found in here.values())
        for one, other in product(tiles, repeat=2):
            common = set(of(tiles[one][0])) & set(of(tiles[other][0]))
            assert len(set(here[one]) & set(here[other])) == len(common)
        seen = {token for found in here.values() for token in found}
        for there in (tokens(tiles, field, keys), tokens(tiles, field)):
            assert not seen & {t for v in there.values() for t in v.tolist()}


def test_label_tokens_do_not_show_which_samples_have_equal_labels(patchwork):
    tiles = patchwork()
    for party, found in tokens(tiles, "labels").items():
        assert len(np.unique(found)) == tiles[party][0].n


def test_a_sample_and_a_feature_of_the_same_name_have_different_tokens():
    tiles = {"a": (Tile.make(["x", "y"], ["x", "y"], np.eye(2), [0, 1]),)}
    rows, columns = (tokens(tiles, field)["a"] for field in ("rows", "columns"))
    assert not set(rows.tolist()) & set(columns.tolist())


@every_rule
def test_no_party_sends_or_gets_a_slot_outside_its_own_rows_and_columns(crossed, local, rule):
    federation, trained = crossed(local, rule)
    kinds, told = Counter(), 0
    for entry in trained.channel.transcript:
        party_view = federation.parties[entry.party].view
        for message in (entry.message, entry.reply):
            for kind in BLOCKS:
                where = (entry.phase, entry.party, kind)
                rows = kind != "v"
                shared = party_view.n_shared_rows if rows else party_view.n_shared_columns
                cohorts = len(party_view.shared_rows if rows else party_view.shared_columns) - 1
                if f"{kind}_pads.chain" in message:
                    assert len(message[f"{kind}_pads.chain"]) == cohorts, where
                if f"{kind}_pads.news.slots" in message:
                    # One number stands for slots in a row.
                    news = message[f"{kind}_pads.news.slots"].astype(int)
                    count = int(message[f"{kind}_pads.news.lengths"].sum())
                    last = news[0] + count - 1 if len(news) == 1 else news.max()
                    assert len(news) in (1, count), where
                    assert 0 <= news.min() <= last < shared, where
                    told += 1
                if kind not in message:
                    continue
                kinds[kind] += 1
                block = read_block(message[kind], str(where))
                assert block.slots <= shared, where
                slots = message.get(f"{kind}_slots")
                if slots is not None:
                    assert len(slots) == block.slots, where
                    assert len(np.unique(slots)) == len(slots), where
                    assert ((slots >= 0) & (slots < shared)).all(), where
    assert set(kinds) == {"z", "v", "alpha"} | ({"delta"} if local != "safe" else set())
    assert told


def test_inner_products_go_only_to_parties_that_compute_the_step(crossed):
    for local in LOCALS:
        federation, trained = crossed(local, "half")
        transcript = trained.channel.transcript
        assert any(e.phase == "hyfdca.weights" and e.party == "east" for e in transcript)
        assert not any(e.phase == "hyfdca.step" and e.party == "east" for e in transcript)
        losses = [e for e in transcript if e.phase == "certify.losses"]
        assert losses
        for entry in losses:
            counted = federation.parties[entry.party].view.counted_rows
            shared = federation.parties[entry.party].view.n_shared_rows
            told = read_block(entry.message["z"], "z").slots if "z" in entry.message else 0
            assert told == counted[:shared].sum()


@cover(
    ("local", "participation"),
    [("safe", 0.5), ("theory", "everyone")],
    others=product(LOCALS, ["everyone", 0.5]),
)
def test_a_party_that_shares_nothing_sends_and_gets_only_scalars(
    patchwork, quick, local, participation
):
    rng = np.random.default_rng(5)
    island = Tile.make(
        [f"i{i}" for i in range(9)], ["u", "v"], rng.normal(size=(9, 2)), [0, 1] * 4 + [1]
    )
    tiles = {**patchwork(), "island": (island,)}
    how = Preprocessing(confirm_separate_ids=True, scaling="standard", unit_rows=True)
    settings = quick(local=local, participation=participation, iterations=6)
    trained = Federation(tiles, how, record=True).train(settings)
    for direction, phase, party, field, value in both_ways(trained):
        if party != "island":
            continue
        assert field not in BLOCKS, (direction, phase)
        if not phase.startswith(BOXED) and isinstance(value, np.ndarray):
            allowed = field in ("send", "prefix", "attending")
            assert allowed or value.size == 0, (direction, phase, field)


def test_rows_only_data_needs_no_sums_over_samples(table, quick):
    whole = table()
    tiles = {
        name: (Tile.make(whole.ids[r], whole.features, whole.block[r], whole.labels[r]),)
        for name, r in (("a", slice(0, 20)), ("b", slice(20, 44)))
    }
    for local in LOCALS:
        how = PREPARATION if local == "theory" else FREE_ROWS
        trained = Federation(tiles, how, record=True).train(quick(local=local, iterations=5))
        for _, phase, _, field, _ in both_ways(trained):
            assert not phase.startswith("hyfdca") or field not in ("z", "alpha", "delta")
        phases = {entry.phase for entry in trained.channel.transcript}
        assert "hyfdca.fused" in phases
        assert not phases & {"hyfdca.weights", "hyfdca.step", "hyfdca.dual", "hyfdca.again"}


# ── under encryption ─────────────────────────────────────────────────────────────────────────


def without_costs(history):
    """Records without seconds and bytes, which a cipher may change."""
    gone = ("compute_seconds", "wall_seconds", "bytes_down", "bytes_up")
    return [{k: v for k, v in asdict(record).items() if k not in gone} for record in history]


def same(one, other):
    """Whether two values in messages are equal."""
    if isinstance(one, np.ndarray):
        return type(other) is np.ndarray and np.array_equal(one, other)
    return one == other


@cover(
    ("rule", "local"),
    [("half", "safe"), ("by trace", "practical")],
    others=product(RULES, LOCALS),
)
def test_a_coordinator_that_cannot_read_a_value_reaches_the_same_bits(
    patchwork, quick, local, rule
):
    # Regression, two and three classes: each with every rule and every local method.
    classes = (0, 2, 3)[(list(RULES).index(rule) + LOCALS.index(local)) % 3]
    tiles = patchwork(classes=classes, unlabelled=("east",))
    common = {
        "loss": "squared" if classes == 0 else "hinge",
        "local": local,
        "participation": RULES[rule],
        "iterations": 9,
        "certify_every": 3,
    }
    federation = Federation(tiles, PREPARATION, record=True)
    plain = federation.train(quick(**common, cipher="plain"))
    hidden = federation.train(quick(**common, cipher="pad"))
    assert np.array_equal(plain.model.coef, hidden.model.coef)
    assert np.array_equal(plain.model.intercept, hidden.model.intercept)
    assert plain.model.certificate == hidden.model.certificate
    assert plain.result.certificate == hidden.result.certificate
    assert plain.result.certificate is not None
    assert plain.result.stopped == hidden.result.stopped
    assert plain.result.notes == hidden.result.notes
    assert without_costs(plain.result.history) == without_costs(hidden.result.history)
    # The same was said, but no value in the clear: not even that one is zero.
    compared = Counter()
    for one, other in zip(plain.channel.transcript, hidden.channel.transcript, strict=True):
        assert (one.phase, one.party) == (other.phase, other.party)
        for message, veiled in ((one.message, other.message), (one.reply, other.reply)):
            for field, value in message.items():
                if field in BLOCKS:
                    block = read_block(veiled[field], field)
                    words = words_of(read_block(value, field), field)
                    cover = words_of(block, field)
                    bare = untouched(block, cover)
                    assert (words[~bare] != cover[~bare]).all(), (one.phase, one.party, field)
                    assert not words[bare].any(), (one.phase, one.party, field)
                    compared["words"] += words.size
                elif field in SCALARS:
                    assert value != veiled[field], (one.phase, one.party, field)
                    compared["scalars"] += 1
                elif not one.phase.startswith(BOXED) and field != "settings":
                    assert same(value, veiled[field]), (one.phase, one.party, field)
            extra = {field.partition(".")[0] for field in veiled.keys() - message.keys()}
            allowed = {*(f"{kind}_pads" for kind in BLOCKS), "attending"}
            assert one.phase.startswith(BOXED) or extra <= allowed, (one.phase, extra)
    assert compared["words"] > 1000
    assert compared["scalars"] > 100


@every_rule
def test_no_inner_product_weight_or_dual_variable_crosses_as_a_number(crossed, local, rule):
    _, trained = crossed(local, rule)
    told, numbers = set(), set()
    for _, phase, party, field, value in both_ways(trained):
        if field in (*BLOCKS, *SCALARS):
            assert type(value) is bytes, (phase, party, field)
            told.add(field)
        elif isinstance(value, np.ndarray):
            # Whoever gets the model is named.
            kinds = "biuU" if (phase, field) == ("release", "readers") else "biu"
            assert value.dtype.kind in kinds, (phase, party, field)
        elif isinstance(value, float):
            numbers.add(field)
    assert {"z", "v", "alpha", *SCALARS} - told <= {"squares", "norm_change", "estimate", "norms"}
    # Sizes and steps that are the same for everybody.
    common = {"unit", "label", "lam", "gamma", "omega", "scale", "factor", "bias_value"}
    common |= {"smallest_lam", "offset", "weight", "constants.omega", "constants.share"}
    assert numbers <= common


@every_value(rule=RULES, local=LOCALS, unlabelled=[(), ("north", "south")])
def test_no_estimate_is_the_sum_of_a_single_party(patchwork, quick, local, rule, unlabelled):
    """Masks cancel in the sum over those who are asked: with one of them, it would be its own."""
    settings = quick(local=local, participation=RULES[rule], iterations=6, certify_every=1)
    tiles = patchwork(unlabelled=unlabelled)
    trained = Federation(tiles, PREPARATION, record=True).train(settings)
    asked = Counter(
        (entry.message["round"], field)
        for entry in trained.channel.transcript
        for field in ("norm_change", "estimate")
        if field in entry.reply
    )
    assert all(count > 1 for count in asked.values())
    assert bool(asked) == (rule != "everyone")


@pytest.fixture(scope="module")
def long_run(patchwork, quick):
    """A run with enough words in it to look at them as a crowd."""
    settings = quick(participation=0.75, iterations=70, iic=1.0)
    return Federation(patchwork(), PREPARATION, record=True).train(settings)


def test_without_keys_encrypted_words_look_like_noise(long_run):
    words = words_in(long_run, "up")
    assert len(words) > 10_000
    # A number drawn anew for every word: none comes twice.
    assert len(np.unique(words)) == len(words)
    bits = np.unpackbits(words.view(np.uint8)).reshape(len(words), 64)
    sigma = 0.5 / np.sqrt(len(words))
    # Of 64 means and more, one would be five of them off in some runs of every ten thousand.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * sigma
    # Neighbours have nothing to do with each other either.
    assert np.abs((bits[1:] != bits[:-1]).mean(axis=0) - 0.5).max() < 6 * sigma
    spread = np.bincount(words.view(np.uint8), minlength=256)
    expected = spread.sum() / 256
    chi = ((spread - expected) ** 2 / expected).sum()
    assert chi < 255 + 6 * np.sqrt(2 * 255)
    # Of what fits a total, ±2^49, there is as little as among random words.
    small = np.abs(words.view(np.int64).astype(float)) < 2.0**49
    assert small.mean() < 2.0**-14 * 32


def test_totals_look_like_noise_too(long_run):
    """What comes down is the same for all holders of a slot, but no number in it is small."""
    words = words_in(long_run, "down")
    small = np.abs(words.view(np.int64).astype(float)) < 2.0**49
    assert small.mean() < 2.0**-14 * 32
    bits = np.unpackbits(np.unique(words).view(np.uint8)).reshape(-1, 64)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(len(bits))


def test_masked_scalars_look_like_noise_and_never_come_twice(long_run):
    packs = [
        value[at : at + SCALAR_BYTES]
        for way, _, _, field, value in both_ways(long_run)
        if way == "up" and field in SCALARS
        for at in range(0, len(value), SCALAR_BYTES)
    ]
    assert len(packs) > 1000
    assert len(set(packs)) == len(packs)
    bits = np.unpackbits(np.frombuffer(b"".join(packs), np.uint8)).reshape(len(packs), -1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(len(packs))


# With all ciphers in test_no_reuse.py.
@cover(("local", "same_keys"), [("practical", True)], others=product(LOCALS, [True, False]))
def test_the_same_seed_run_twice_gives_no_equal_block(patchwork, quick, local, same_keys):
    """The values are the same bit for bit; what crosses has nothing in common."""
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles)) if same_keys else None
    settings = quick(local=local, participation=0.75, iterations=6)
    one, two = (
        Federation(tiles, PREPARATION, record=True, keys=keys).train(settings) for _ in range(2)
    )
    assert np.array_equal(one.model.coef, two.model.coef)
    assert len(words_in(one)) == len(words_in(two))
    assert not set(words_in(one).tolist()) & set(words_in(two).tolist())
    secret = (*BLOCKS, *SCALARS, "boxes.content", "seeds.content", "run")
    found = [
        {v for *_, field, v in both_ways(trained) if field in secret and v}
        for trained in (one, two)
    ]
    assert min(map(len, found)) > 100
    assert not found[0] & found[1]


@pytest.mark.release
def test_the_same_seed_gives_the_same_bits_twice_and_another_seed_does_not(patchwork, quick):
    """Quicker: ``test_hyfdca_seeds.py``, and with new keys ``test_cipher_identity.py``."""
    one, two, other = (
        Federation(patchwork(), PREPARATION).train(quick(seed=seed)).model for seed in (3, 3, 4)
    )
    assert np.array_equal(one.coef, two.coef)
    assert not np.array_equal(one.coef, other.coef)

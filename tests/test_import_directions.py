"""Imports point one way; the coordinator's code never loads a reader, a tile or a secret."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.crypto import CIPHERS
from weft.crypto.ciphers.paillier_scheme import PaillierSecret

ROOT = Path(weft.__file__).parent

#: All rooms, lowest first: a room imports only rooms before it.
LAYERS = (
    *(
        "errors",
        "array_types",
        "fast_small_array_operations",
        "arrays_outside_heap",
        "numba_options",
        "lazy_names",
        "thread_safe_decoding",
        "plugins",
        "storage",
        "protocol",
        "guards",
        "losses",
        "crypto",
        "inference",
        "data",
    ),
    *("matching", "sums", "solvers", "privacy", "federation", "all_messages", "cluster"),
    *("config", "report", "network", "estimators", "cli"),
)
#: Rooms that a neighbour below them must not use, though the order would allow it.
FORBIDDEN = {
    # The coordinator's half of a run is made of these: they never see a table.
    "data": {"crypto"},
    "protocol": {"crypto", "data", "guards", "losses"},
    "matching": {"data", "losses"},
    "sums": {"data", "guards"},
    "solvers": {"data"},
}


def rooms():
    found = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    return found - {"__init__", "__main__", "__pycache__", "py"}


def room_files(room):
    single = ROOT / f"{room}.py"
    return [single] if single.exists() else sorted((ROOT / room).rglob("*.py"))


def statements(node):
    """All statements below a node: imports are no expressions, of which there are many more."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def rooms_imported(path):
    """Rooms of Weft that a file names in any import, also inside functions."""
    found = set()
    for node in statements(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module]
            if node.module == "weft":
                names = [f"weft.{alias.name}" for alias in node.names]
        found.update(n.split(".")[1] for n in names if n.startswith("weft."))
    return found - {"__version__"}


#: The library and the packages beside it: each may use those before it.
PACKAGES = ("weft", "weft_neural", "weft_evaluation", "weft_papers", "weft_examples")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_no_plug_in_above_it(package):
    """Networks, the papers and the demos add themselves by entry points, as any plug-in does."""
    above = PACKAGES[PACKAGES.index(package) + 1 :]
    files = sorted((ROOT.parent / package).rglob("*.py"))
    assert files
    for path in files:
        text = path.read_text()
        assert not [name for name in above if re.search(rf"\b{name}\b", text)], path


def test_all_packages_have_a_place():
    found = {path.name for path in ROOT.parent.iterdir() if (path / "__init__.py").exists()}
    assert found == set(PACKAGES)


def test_every_room_has_a_layer():
    assert rooms() - {"py.typed"} == set(LAYERS)


@pytest.mark.parametrize("room", LAYERS)
def test_a_room_imports_only_what_lies_below_it(room):
    files = room_files(room)
    assert files
    allowed = set(LAYERS[: LAYERS.index(room)]) - FORBIDDEN.get(room, set())
    for path in files:
        foreign = rooms_imported(path) - allowed - {room}
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"


#: What a coordinator of each cipher has loaded; processes that begin anew would load it all again.
COORDINATORS = """
import os, sys
import weft.solvers.hyfdca.coordinator, weft.solvers.subspace.coordinator_of_lambda_path
import weft.solvers.secret_sharing.coordinator, weft.solvers.secret_sharing.dealer
import weft.solvers.algorithm_choice, weft.solvers.run_settings
import weft.matching.coordinator, weft.matching.holding_map
import weft.sums.coordinator_totals, weft.sums.latest_slot_values_and_proposals
import weft.sums.gap_certificate
import weft.sums.scaling_coordinator
import weft.protocol, weft.crypto
import weft.federation.coordinator
import weft.federation.joint_prediction_coordinator, weft.federation.study_check_coordinator
import weft.network.coordinator_run, weft.network.nvflare_processes.coordinator_job
import weft_neural.coordinator
for argument in sys.argv[1:]:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        continue
    cipher, _, public = argument.partition("=")
    adder = weft.crypto.Adder(cipher)
    adder.meet(["a", "b"], 7, bytes.fromhex(public))
    assert adder.store(5, 2).copy() is not None
    loaded = sorted(m for m in sys.modules if m.startswith(("weft", "pyarrow")))
    print(cipher, *loaded, flush=True)
    os._exit(0)
import {torch_free}
print("torch-free", *sys.modules)
"""

#: What holds, makes or needs a secret.
SECRET = {
    f"weft.crypto.{name}"
    for name in (
        *(
            "secret_bytes",
            "party_key_pairs",
            "party_seeds_and_shared_key",
            "run_participants",
            "scalar_masks",
            "authenticated_party_letters",
        ),
        *("pads.pad_streams", "pads.pads_all_parties_know"),
        *("pair_secrets", "seed_letters", "ciphers.known_ciphers"),
        *(
            "ciphers.authenticated_pad_cipher",
            "ciphers.paillier_and_bfv_ciphers",
            "ciphers.bfv_by_seal",
            "ciphers.paillier_scheme",
        ),
        *("primitives.aes", "primitives.oprf", "primitives.ristretto"),
    )
}


#: What works without PyTorch: all that is no network, and the coordinator of neural runs.
TORCH_FREE = (
    *("weft", "weft.cli", "weft.federation.local_federation", "weft.network.coordinator_run"),
    *(
        "weft_neural.coordinator",
        "weft_neural.server_aggregation",
        "weft_neural.weighted_means_on_host_or_device",
    ),
    *("weft_neural.history", "weft_neural.trained_model", "weft_neural.neuron_matching"),
    *("weft_neural.settings", "weft_papers.hyfem.scenes"),
)


#: What is dear to load, each with what it brings.
HEAVY = {
    *("numpy", "pandas", "pyarrow", "sklearn", "numba", "matplotlib", "torch", "nvflare"),
    *("scipy", "scipy.special", "scipy.optimize", "scipy.stats", "scipy.sparse.linalg"),
    *("sklearn.metrics", "tenseal", "phe", "gmpy2"),
}


def heavy_modules(code, *arguments, beside="sys"):
    """Modules of `HEAVY` that a piece of code loads in a fresh process, and all that it loads.

    What another module loads first does not count.
    """
    told = (
        f"import sys, {beside}\nthere = set(sys.modules)\n{code}\n"
        "print('loaded', *(name for name in sys.modules if name not in there))"
    )
    done = subprocess.run(
        [sys.executable, "-c", told, *arguments], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded"
    return HEAVY.intersection(loaded), set(loaded)


def test_weft_alone_loads_nothing_heavy():
    heavy, loaded = heavy_modules("import weft")
    assert "weft" in loaded
    assert not heavy


#: Rooms that no estimator needs before its first fit.
LATER = ("weft.crypto", "weft.network", "weft.report")
NAMED = "from weft import HybridClassifier, HybridGLM, HybridRegressor"


def test_to_name_an_estimator_loads_no_scikit_learn_and_no_data_frames():
    heavy, loaded = heavy_modules(NAMED)
    assert {"weft.estimators.classifier", "weft.estimators.glm"} <= loaded
    assert heavy == {"numpy", "scipy"}
    assert not [m for m in loaded if m.startswith(LATER)]


def test_to_make_an_estimator_loads_little_more_than_scikit_learn():
    """No compiler, no reader, no solver, before the first fit."""
    made = "HybridClassifier(), HybridGLM(), HybridRegressor()"
    heavy, loaded = heavy_modules(f"{NAMED}\n{made}", beside="sklearn.base")
    assert {"weft.estimators.classifier", "weft.estimators.glm"} <= loaded
    assert not heavy
    assert not [m for m in loaded if m.startswith(LATER)]


COMMAND = """
from weft.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""


def test_help_and_the_list_of_commands_wait_for_no_numbers():
    """Commands import what they need when they run, also those of plug-ins."""
    heavy, loaded = heavy_modules(COMMAND, "--help")
    assert {"weft.cli", "weft_neural.commands", "weft_papers.reproduce_command"} <= loaded
    assert not heavy
    assert not {"weft.network", "weft.protocol", "weft.report"} & loaded


#: What a training of sums with tokens of ids does without: curves, halves of sealed training,
#: standard errors, and the commands of others.
ELSEWHERE = {
    *("weft.crypto.primitives.ristretto", "weft.crypto.primitives.multiscalar"),
    *(
        "weft.matching.oprf_party",
        "weft.solvers.secret_sharing.coordinator",
        "weft.solvers.secret_sharing.party",
    ),
    *(
        "weft.solvers.secret_sharing.exponential_fourier_series",
        "weft.solvers.secret_sharing.table_product_kernels",
    ),
    *(
        "weft.federation.release.reader_standard_errors",
        "weft.federation.release.standard_errors_party",
    ),
    *("weft_neural.commands", "weft_papers.reproduce_command"),
}


def test_training_loads_no_scikit_learn_no_plots_no_other_cipher_and_no_terminal(tmp_path):
    rows = [(f"s{i}", i % 7, (3 * i) % 5, i % 2) for i in range(60)]
    for name, cells in (("a", rows[:30]), ("b", rows[30:])):
        lines = ["id,x,y,label", *(",".join(map(str, row)) for row in cells)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.toml").write_text(
        'name = "small"\n[data]\nid = "id"\nlabel = "label"\n'
        '[model]\nloss = "hinge"\nlambda = 1e-2\n[solver]\ngap = 1e-1\n'
        "[privacy]\nmin_batch = 2\nallow_pairs = true\nallow_exposure = true\n"
        '[[party]]\nname = "a"\nfile = "a.csv"\n[[party]]\nname = "b"\nfile = "b.csv"\n'
    )
    out = tmp_path / "results"
    command = ("train", str(tmp_path / "config.toml"), "--out", str(out), "--quiet")
    heavy, loaded = heavy_modules(COMMAND, *command)
    assert (out / "report.html").exists()
    assert heavy <= {"numpy", "pandas", "pyarrow", "numba", "scipy"}
    assert all((ROOT.parent / f"{name.replace('.', '/')}.py").exists() for name in ELSEWHERE)
    assert not ELSEWHERE & loaded
    assert "rich.console" not in loaded


def test_coordinators_load_no_reader_no_tile_no_party_nothing_secret_and_no_torch():
    """One process for all ciphers: to load what coordinators need takes seconds."""
    public = {"paillier": PaillierSecret.new().public()}
    code = COORDINATORS.replace("{torch_free}", ", ".join(TORCH_FREE))
    done = subprocess.run(
        [sys.executable, "-c", code, *(f"{c}={public.get(c, b'').hex()}" for c in CIPHERS)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.split()[0]: set(line.split()[1:]) for line in done.stdout.splitlines()}
    assert loaded.keys() == {*CIPHERS, "torch-free"}
    assert all((ROOT.parent / f"{name.replace('.', '/')}.py").exists() for name in SECRET)
    for cipher in CIPHERS:
        loads_nothing_of_the_parties(cipher, loaded[cipher])
    # All that is no network, and the coordinator of neural runs, in the process that the others
    # were forked from.
    assert set(TORCH_FREE) <= loaded["torch-free"]
    assert not [module for module in loaded["torch-free"] if module.split(".")[0] == "torch"]


def loads_nothing_of_the_parties(cipher, loaded):
    """What a coordinator of a cipher has loaded is no reader, no tile, no party and no secret."""
    assert "weft.solvers.hyfdca.coordinator" in loaded
    forbidden = {
        *("weft.federation.party", "weft.federation.local_federation", "weft.federation.model"),
        *(
            "weft.federation.local_joint_prediction",
            "weft.matching.party",
            "weft.matching.oprf_party",
        ),
        *("weft.federation.joint_prediction_party", "weft.federation.study_check_party"),
        "weft.matching.tokens",
    }
    assert all((ROOT.parent / f"{name.replace('.', '/')}.py").exists() for name in forbidden)
    assert not forbidden.intersection(loaded), cipher
    assert not [m for m in loaded if m.startswith(("weft.data", "weft.crypto.keys"))], cipher
    # The totals of these have a file with their secrets.
    own = {"paillier": "paillier_scheme", "bfv": "bfv_by_seal"}.get(cipher)
    assert not (SECRET & loaded) - {f"weft.crypto.ciphers.{own}"}, cipher
    assert "weft.crypto.coordinator_adder" in loaded

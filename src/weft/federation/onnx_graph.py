"""A model as an ONNX graph, for programs that know nothing of Weft.

The graph has its numbers in double precision and fills blank cells in as training did, which
converters of scikit-learn's estimators do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ConfigError
from weft.losses import LOG_LINKED
from weft.storage.atomic_files import replacing

if TYPE_CHECKING:
    from weft.federation.model import Model

#: Of the operators: the first with all that is used here, so that old programs can read it.
_OPSET = 17
_INPUT = "features"


def write_onnx(model: Model, path: Path) -> None:
    """Write a file that computes scores, predictions and, where there are any, probabilities.

    Its input ``features`` is a table of doubles with a column for every feature of the model, in
    its order; their names are in the file's metadata. Outputs are ``score`` (x·w + b, a column for
    every row of ``coef``), ``prediction`` and, for the logistic loss with two classes and for
    softmax, ``probability``. A blank cell (NaN) counts as in training; where training allowed none,
    scores of such rows are NaN.
    """
    onnx = _library()
    nodes, constants, outputs = _scores(onnx, model)
    if model.classes is None:
        linked = model.loss in LOG_LINKED
        nodes.append(onnx.helper.make_node("Exp" if linked else "Identity", ["score"], ["mean"]))
        constants["column"] = np.array([1], np.int64)
        nodes.append(onnx.helper.make_node("Squeeze", ["mean", "column"], ["prediction"]))
        outputs.append(_value(onnx, "prediction", onnx.TensorProto.DOUBLE, [None]))
    else:
        _add_classes(onnx, model, nodes, constants, outputs)
    table = [None, len(model.features)]
    graph = onnx.helper.make_graph(
        nodes,
        "weft",
        [_value(onnx, _INPUT, onnx.TensorProto.DOUBLE, table)],
        outputs,
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = onnx.helper.make_model(
        graph, producer_name="weft", opset_imports=[onnx.helper.make_opsetid("", _OPSET)]
    )
    # The oldest format with these operators: what reads it may be older than what wrote it.
    made.ir_version = 8
    onnx.helper.set_model_props(made, {"features": "\n".join(model.features), "loss": model.loss})
    onnx.checker.check_model(made)
    with replacing(path) as new:
        new.write_bytes(made.SerializeToString())


def _library() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise ConfigError(
            "ONNX files need the package onnx; install it with pip install 'weft[onnx]'"
        ) from None
    return onnx


def _value(onnx: Any, name: str, kind: int, shape: list[int | None]) -> Any:
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def _scores(
    onnx: Any, model: Model
) -> tuple[list[Any], dict[str, np.ndarray[Any, Any]], list[Any]]:
    """From the table to scores: nodes, constants and outputs so far."""
    node = onnx.helper.make_node
    nodes, table = [], _INPUT
    constants = {"weights": np.ascontiguousarray(model.coef.T), "intercept": model.intercept}
    if model.missing != "error":
        filled = model.scaling[0] if model.missing == "mean" else np.zeros(len(model.features))
        constants["blank"] = np.asarray(filled, np.float64)
        nodes.append(node("IsNaN", [_INPUT], ["is_blank"]))
        nodes.append(node("Where", ["is_blank", "blank", _INPUT], ["filled"]))
        table = "filled"
    nodes.append(node("MatMul", [table, "weights"], ["product"]))
    nodes.append(node("Add", ["product", "intercept"], ["score"]))
    return (
        nodes,
        constants,
        [_value(onnx, "score", onnx.TensorProto.DOUBLE, [None, len(model.coef)])],
    )


def _add_classes(
    onnx: Any,
    model: Model,
    nodes: list[Any],
    constants: dict[str, np.ndarray[Any, Any]],
    outputs: list[Any],
) -> None:
    """The class with the larger score; of two classes, or by softmax, how likely each is."""
    node = onnx.helper.make_node
    assert model.classes is not None
    text = model.classes.dtype.kind in "OUT"
    names = model.classes.astype(str).astype(object) if text else model.classes
    constants["classes"] = names
    if len(names) == 2:
        constants["zero"], constants["column"] = np.array(0.0), np.array([1], np.int64)
        nodes.append(node("Greater", ["score", "zero"], ["above"]))
        nodes.append(node("Cast", ["above"], ["first"], to=onnx.TensorProto.INT64))
        nodes.append(node("Squeeze", ["first", "column"], ["place"]))
    else:
        nodes.append(node("ArgMax", ["score"], ["place"], axis=1, keepdims=0))
    nodes.append(node("Gather", ["classes", "place"], ["prediction"]))
    kind = onnx.TensorProto.STRING if text else onnx.helper.np_dtype_to_tensor_dtype(names.dtype)
    outputs.append(_value(onnx, "prediction", kind, [None]))
    if model.loss == "softmax":
        nodes.append(node("Softmax", ["score"], ["probability"], axis=1))
        outputs.append(_value(onnx, "probability", onnx.TensorProto.DOUBLE, [None, len(names)]))
    elif len(names) == 2 and model.loss == "logistic":
        nodes.append(node("Neg", ["score"], ["other_score"]))
        nodes.append(node("Sigmoid", ["score"], ["likely"]))
        nodes.append(node("Sigmoid", ["other_score"], ["unlikely"]))
        nodes.append(node("Concat", ["unlikely", "likely"], ["probability"], axis=1))
        outputs.append(_value(onnx, "probability", onnx.TensorProto.DOUBLE, [None, 2]))

"""Phases in words: what a run spends its round trips on, for readers who do not know the code."""

from __future__ import annotations

#: What a run does, with the phases that it does it in. A phase has a name of its own beside it.
_ACTIVITIES: dict[str, dict[str, str]] = {
    "Agreeing on terms and classes": {
        "hello": "Asking to take part",
        "announce": "Announcing terms and keys",
        "classes.list": "Listing labels",
        "classes": "Telling the class names",
    },
    "Agreeing on columns": {
        "columns.list": "Listing declared columns",
        "columns.differ": "Naming columns that differ",
        "columns.join": "Joining lists of categories",
        "columns.take": "Handing out lists of categories",
    },
    "Matching samples and columns": {
        "match.greet": "Greeting",
        "match.hello": "Meeting the key holders",
        "match.ask": "Asking the key holders about ids",
        "match.evaluate": "Answers of the key holders",
        "match.tokens": "Sending tokens of ids and columns",
        "match.similar": "Naming columns in two spellings",
        "match.units": "Naming columns in other units",
        "match.conflict": "Naming labels that differ",
        "match.view": "Telling each party its groups",
        "match.keys": "Handing out keys of groups",
    },
    "Telling weights and offsets": {
        "beside.tell": "Letters to who has the labels",
        "beside.take": "Handing out these letters",
    },
    "Leaving out what is rare": {
        "rare.classes": "Finding rare classes",
        "rare.leave": "Leaving rare samples and columns out",
    },
    "Scaling columns": {
        "scale.extremes": "Smallest and largest values",
        "scale.sums": "Means of columns",
        "scale.spread": "Spreads of columns",
        "scale.finish": "Applying the scaling",
        "weigh.classes": "Counting the samples of each class",
        "scale.penalties": "Penalties of single columns",
        "scale.size": "Size of the longest row",
        "scale.norms": "Lengths of rows",
        "scale.longest": "The longest row",
        "scale.rows": "Scaling rows",
        "size": "Agreeing on units",
    },
    "Setting up the solver": {
        "start": "Telling the settings",
        "hyfdca.norms": "Lengths of rows",
        "hyfdca.spread": "Curvature, by column",
        "hyfdca.gather": "Curvature, by sample",
        "hyfdca.begin": "Telling the step size",
        "rounds.survey": "Bounds on curvature",
        "rounds.size": "Agreeing on units of steps",
        "rounds.begin": "Telling the step size",
        "sealed.begin": "Sizes of tables and bounds",
        "sealed.tables": "Tables under masks",
    },
    "Training": {
        "hyfdca.fused": "Scores and steps at once",
        "hyfdca.weights": "Scores of the samples drawn",
        "hyfdca.step": "Steps on these samples",
        "hyfdca.dual": "Steps for parties without labels",
        "hyfdca.again": "Steps of a party that fell silent",
        "subspace.spread": "Scores along new directions",
        "subspace.search": "Losses along the line, and next directions",
        "subspace.gather": "Directions at the start, or after a wrong guess",
        "subspace.follow": "Directions of parties without labels",
        "subspace.fallback": "Going on without a party that is away",
        "subspace.here": "Asking whether a party is back",
        "subspace.inherit": "Taking over what was done meanwhile",
        "rounds.local": "Local steps",
        "rounds.merge": "Merging local steps",
        "sealed.first": "Slopes at the start, on shares",
        "sealed.origin": "Gradients at the start, on shares",
        "sealed.held": "Slopes of samples left out, on shares",
        "sealed.vector": "Gradients, on shares",
        "sealed.products": "Inner products of gradients, on shares",
        "sealed.point": "The next point, on shares",
        "sealed.scores": "Scores, on shares",
        "sealed.slopes": "Slopes and losses, on shares",
        "sealed.weigh": "Cutting weighed slopes, on shares",
        "sums.mend": "Taking off masks of silent parties",
    },
    "Certifying the model": {
        "subspace.point": "Scores of the model",
        "subspace.close": "Loss of the model",
        "subspace.evaluate": "Counts of scores of samples left out",
        "certify.freeze": "Freezing a model and its bound",
        "certify.products": "Scores of the frozen model",
        "certify.losses": "Loss of the frozen model",
        "measure.products": "Scores of the measured model",
        "measure.losses": "Loss of the measured model",
        "measure.spread": "The bound, by column",
        "measure.norms": "The bound, as a number",
    },
    "Saving checkpoints": {
        "checkpoint": "Saving",
        "checkpoint.restore": "Going back to a checkpoint",
        "checkpoint.forget": "Deleting older checkpoints",
    },
    "Handing out the model": {
        "subspace.keep": "Keeping the model where the run stopped",
        "sealed.keep": "Choosing the model",
        "sealed.kept_point": "The model, on shares",
        "sealed.gram": "Products of columns, on shares",
        "sealed.bends": "Curvatures of samples, on shares",
        "sealed.weights": "Cutting curvatures, on shares",
        "sealed.sample_weights": "Weights of samples, on shares",
        "sealed.cells": "Cells times curvatures, on shares",
        "sealed.hessian": "The Hessian, on shares",
        "sealed.ratios": "Ratios of responses and means, on shares",
        "sealed.cut_ratios": "Cutting ratios, on shares",
        "sealed.pearson": "The dispersion, on shares",
        "release": "Sealing the model to its readers",
        "release.model": "Delivering it",
        "end": "Telling that the run is over",
    },
    "Looking at a run beforehand": {
        "check.files": "What each party finds in its files",
        "check.view": "Telling each party its groups, and what the run would be",
        "describe.names": "Names of columns that are described",
        "describe.sizes": "Agreeing on units of columns",
        "describe.centres": "Cells, blank cells and sums of columns",
        "describe.middle": "Telling where the middle of every column is",
        "describe.spreads": "Agreeing on how wide columns are",
        "describe.counts": "Spreads of columns, cells by interval, outcomes",
    },
    "Predicting together": {
        "joint.size": "Agreeing on units",
        "joint.partial": "Partial scores",
        "joint.scores": "Delivering scores",
    },
}
_NAMES = {
    phase: (activity, name)
    for activity, phases in _ACTIVITIES.items()
    for phase, name in phases.items()
}


def activity_of(phase: str) -> str:
    """What a phase is for; phases of plug-ins that nobody named go by their first word."""
    known = _NAMES.get(phase)
    return phase.split(".")[0] if known is None else known[0]


def name_of(phase: str) -> str:
    """What happens in a phase, in a few words."""
    known = _NAMES.get(phase)
    return phase if known is None else known[1]

"""Federations on file: a TOML config, read strictly, with one sentence for each mistake.

.. code-block:: toml

    name = "three hospitals"

    [data]
    id = "patient"
    label = "outcome"
    scaling = "standard"

    [model]
    loss = "hinge"
    lambda = [1e-1, 1e-2, 1e-3]

    [solver]
    gap = 1e-3
    folds = 5              # choose the lambda

    [[party]]
    name = "north"
    file = "north.csv"

    [[party]]
    name = "south"
    file = "south.parquet"
    label = false          # this party gives no labels
"""

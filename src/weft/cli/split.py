"""``weft split`` cuts a table into parties' files; ``weft data list`` says what there is to cut."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weft.data.tile import Table


class Format(StrEnum):
    """File formats that parties' files are written in."""

    csv = "csv"
    parquet = "parquet"
    npz = "npz"


def split(
    dataset: Annotated[
        str, typer.Argument(help="Name from 'weft data list', or a file with --id and --label.")
    ],
    out: Annotated[Path, typer.Option(help="New folder for the files and config.toml.")],
    way: Annotated[
        str,
        typer.Option(
            "--split",
            help="rows, columns, grid, overlapping, or another that 'weft data list' names.",
        ),
    ] = "grid",
    k: Annotated[int | None, typer.Option(help="Groups of samples (grid and the like).")] = None,
    q: Annotated[int | None, typer.Option(help="Groups of features (grid and the like).")] = None,
    parties: Annotated[int | None, typer.Option(help="Number of parties (other splits).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, where the split draws.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="'all': every holder has labels; 'first': one holder.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other option of the split."),
    ] = None,
    format: Annotated[Format, typer.Option(help="Format of the parties' files.")] = Format.csv,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with original files.")] = None,
    id: Annotated[str, typer.Option(help="Id column, read and written.")] = "id",
    label: Annotated[str, typer.Option(help="Label column, read and written.")] = "label",
) -> None:
    """Cut a table into parties' files, with a config that trains on them.

    For trying things out: real parties have their files already. A sample's id stays the same in
    all files, so that matching can find it again.
    """
    from weft.cli.terminal_output import say
    from weft.config.write_split_federation import cut_table, write_federation
    from weft.storage.atomic_folder import building, refuse_existing

    refuse_existing(out)
    given = {"k": k, "q": q, "parties": parties, "seed": seed, "labels": labels}
    options: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    for pair in set_ or []:
        name, _, value = pair.partition("=")
        options[name.strip()] = value.strip()
    pieces = cut_table(_table(dataset, data_dir, id, label), way, options)
    with building(out) as draft:
        write_federation(
            draft, pieces, name=out.name, suffix=format.value, id_column=id, label_column=label
        )
    say(
        f"{len(pieces.parties)} parties in {out}: {pieces.note}.",
        f"Next: weft check {out / 'config.toml'}",
    )


def _table(dataset: str, data_dir: Path | None, id_column: str, label_column: str) -> Table:
    from weft.config.write_split_federation import table_of_file
    from weft.data.named_data_sets import load

    path = Path(dataset)
    if path.suffix or path.is_file():
        return table_of_file(path, id_column=id_column, label_column=label_column)
    return load(dataset, data_dir=data_dir)


def data_list() -> None:
    """List the data sets that come by name, and the ways to cut a table.

    Those of scikit-learn are there at once; the others need their original files in the folder
    that the environment variable WEFT_DATA or --data-dir names.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid

    from weft.data.named_data_sets import DATA_SETS
    from weft.data.splits import SPLITS

    grid = Grid(box=SIMPLE_HEAD)
    for title in ("name", "samples", "features", "task"):
        grid.add_column(
            title, justify="right" if title in ("samples", "features") else "left", no_wrap=True
        )
    grid.add_column("what it is, and where it comes from")
    for info in DATA_SETS.values():
        about = f"{info.note} ({info.source})"
        grid.add_row(info.name, f"{info.rows:,}", f"{info.columns:,}", info.task, about)
    console = Console(markup=False, highlight=False)
    console.print(grid)
    console.print(f"weft split --split: {', '.join(SPLITS)}.")
    for problem in dict.fromkeys([*DATA_SETS.problems, *SPLITS.problems]):
        console.print(problem)

"""Scenes of ModelNet40: objects seen from twelve sides, as two texts deal them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.data.named_data_set_files import DataFolder
from weft.errors import DataError
from weft_papers.hyfem.scenes.blocks_and_classes_per_party import (
    four_view_deal,
    four_view_deal_2020,
    table3,
    twelve_view_deal,
)
from weft_papers.hyfem.scenes.image_files import subfolder
from weft_papers.hyfem.scenes.image_folders import class_folders, list_views
from weft_papers.hyfem.scenes.quadrants_and_stratified_rows import thin
from weft_papers.hyfem.scenes.scene import Scene, Share

Deal = Callable[[Sequence[str]], tuple[Share, ...]]
#: The texts choose four views "of different angles"; these are a quarter turn apart.
_FOUR = (1, 4, 7, 10)
_TWELVE = tuple(range(1, 13))


def _scene_of(name: str, views: tuple[int, ...], deal: Deal) -> Callable[..., Scene]:
    def load(
        folder: DataFolder,
        *,
        samples: int | None = None,
        test_samples: int | None = None,
        seed: int = 0,
        size: int = 64,
    ) -> Scene:
        """Grey views of size × size pixels; the data set says what is for training and testing."""
        if size < 1:
            raise DataError(f"size is {size}; give the pixels of a side, such as 64.")
        classes = class_folders(subfolder(folder, "modelnet40", "a folder of each class"), 40)
        names = [f"view{view}" for view in views]
        train, test = (list_views(classes, part, views) for part in ("train", "test"))
        train = train.rows(thin(train.labels, samples, seed, "samples"))
        test = test.rows(thin(test.labels, test_samples, seed, "test_samples"))
        square = (size, size)
        return Scene(
            name,
            {block: train.images(place, "L", square) for place, block in enumerate(names)},
            train.labels,
            {block: test.images(place, "L", square) for place, block in enumerate(names)},
            test.labels,
            tuple(path.name for path in classes),
            deal(names),
        )

    return load


modelnet40_1 = _scene_of("modelnet40-1", _FOUR, four_view_deal)
modelnet40_2 = _scene_of("modelnet40-2", _TWELVE, twelve_view_deal)
modelnet40_common = _scene_of("modelnet40-common", _FOUR, table3)
modelnet40_2020 = _scene_of("modelnet40-2020", _FOUR, four_view_deal_2020)

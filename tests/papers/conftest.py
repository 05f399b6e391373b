"""Networks of tests compute on one thread: theirs are too small for more."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

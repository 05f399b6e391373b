"""Scenes: data cut into blocks of features and dealt to parties, as the texts of HyFEM do it."""

from weft_papers.hyfem.scenes.registry import SCENES, load_scene
from weft_papers.hyfem.scenes.scene import Scene, Share

__all__ = ["SCENES", "Scene", "Share", "load_scene"]

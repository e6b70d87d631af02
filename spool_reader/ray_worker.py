"""The inside of a Ray actor: batches of tasks in, answers out."""

from __future__ import annotations

import importlib
import warnings

import torch

from .answers import Answer, Task, answer
from .device import open_device
from .judging import Judge, JudgeOptions


class RayWorker:
    """Judges on the device that Ray has given to this actor."""

    def __init__(self, device: str, options: JudgeOptions) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(options.threads or 1)
        for module in options.imports:
            importlib.import_module(module)
        self._judge = Judge(open_device(device), options)
        self._options = options

    def ready(self) -> bool:
        """Answers once the constructor is through."""
        return True

    def judge(self, tasks: list[Task]) -> list[Answer]:
        """The answers to a batch, in its order."""
        return [answer(task, self._judge, self._options.save_errors) for task in tasks]

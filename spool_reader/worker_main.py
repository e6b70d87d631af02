"""The inside of a worker process: batches of tasks in, answers out, one progress cell that the parent watches."""

from __future__ import annotations

import importlib
import time
import warnings
from ctypes import c_longlong
from multiprocessing.connection import Connection
from typing import Any

import torch

from spool import SpoolCheckError

from .answers import Answer, answer
from .device import open_device
from .judging import Judge, JudgeOptions

IDLE = -1
# Answers of a batch wait at most this long for the rest of it.
_SEND_AFTER = 0.2


def work(connection: Connection[Any, Any], current: c_longlong, device_name: str, options: JudgeOptions) -> None:
    """Judge until the parent closes the connection. `current` holds the ticket of the bundle in hand."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads or 1)
    try:
        for module in options.imports:
            importlib.import_module(module)
        judge = Judge(open_device(device_name), options)
    except (SpoolCheckError, ImportError, RuntimeError, ValueError) as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    try:
        _serve(connection, current, judge, options)
    except (EOFError, ConnectionError):
        return


def _serve(connection: Connection[Any, Any], current: c_longlong, judge: Judge, options: JudgeOptions) -> None:
    while (batch := connection.recv()) is not None:
        answers: list[Answer] = []
        sent = time.monotonic()
        for task in batch:
            current.value = task.ticket
            answers.append(answer(task, judge, options.save_errors))
            if time.monotonic() - sent > _SEND_AFTER:
                connection.send(answers)
                answers, sent = [], time.monotonic()
        current.value = IDLE
        connection.send(answers)

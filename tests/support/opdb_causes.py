"""Why a call of the operator database need not pass."""

from __future__ import annotations

# Why a call need not pass: the beginning of its message → what the table calls it.
CAUSES = {
    "nothing to compare": "no elements on either side",
    "output": "an output without elements beside others that were compared",
    "random": "random: new numbers on every run",
    "undefined": "uninitialised memory by contract",
    "not replayable (Tensor": "a sparse layout, which a bundle does not hold",
    "not replayable (": "an argument that is a Python function or object",
    "not replayable: ": "`as_strided` and its like: reaches memory beside the tensor's elements",
}


def cause_of(message: str) -> str | None:
    """The accepted cause that a message names; None for everything else."""
    return next((cause for start, cause in CAUSES.items() if message.startswith(start)), None)

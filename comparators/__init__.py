"""Verdicts on a call's outputs: metrics, standards, limits. Tensor maths only; no files but a profile's.

`judge` judges one call, `standard_of` and `describe_standard` say by which standard and which limits.
"""

from __future__ import annotations

from .describe import describe_standard
from .errors import ProfileError
from .judging import judge, needs_golden, standard_of
from .profiles import Profile, load_profile
from .random_ops import is_random, is_undefined
from .result import Judgement, OutputJudgement

__all__ = [
    "Judgement",
    "OutputJudgement",
    "Profile",
    "ProfileError",
    "describe_standard",
    "is_random",
    "is_undefined",
    "judge",
    "load_profile",
    "needs_golden",
    "standard_of",
]

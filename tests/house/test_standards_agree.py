"""The comparators' lists and the fused operators' registry say the same of each fused operator."""

from __future__ import annotations

import pytest

import comparators
import fused_ops


@pytest.mark.parametrize("name", fused_ops.names())
def test_the_registry_and_the_lists_agree(name: str) -> None:
    assert comparators.standard_of(f"NPU.{name}.0") == fused_ops.reference(name).standard

"""One legal call of every fused operator with a reference, by schema names, and what it must return."""

from __future__ import annotations

import fused_examples_attention as attention
import fused_examples_layers as layers
import fused_examples_matrices as matrices
import fused_examples_moe as moe
from fused_make import Example

EXAMPLES: tuple[Example, ...] = (*layers.EXAMPLES, *matrices.EXAMPLES, *moe.EXAMPLES, *attention.EXAMPLES)
BY_NAME = {example.op: example for example in EXAMPLES}

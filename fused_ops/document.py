"""Writes docs/fused_ops.md from the registry: `python -m fused_ops.document > docs/fused_ops.md`."""

from __future__ import annotations

import sys

from .operator import FusedOp
from .registry import names, reference
from .schema import parse_schema

_HEAD = """# Fused operators

References for the NPU's fused operators, in the package `fused_ops`. This page is made from the registry
(`python -m fused_ops.document > docs/fused_ops.md`) and a test holds it current.

A captured call is named `NPU.<operator>.<number>`, whether user code wrote `torch_npu.<operator>` or
`torch.ops.npu.<operator>`. Arguments are taken by position or by the schema's names. Two results come from one
definition: the reference device's run in the inputs' own dtype, with float32 accumulation and one rounding, and the
golden run in float64, computed from the captured inputs and left in float64.

- **Compared**: every output, except those listed under "not compared"; integers and indices exactly.
- **Standard**: how float outputs are judged, unless a profile says otherwise.
- A legal argument that the reference does not implement and that is not at its default is "not supported": the call
  becomes a skip row that says so. A call that breaks a rule of the operator becomes a skip row with that rule.
- An operator without a reference is "not replayable".

Sources: "op-plugin" is the public repository Ascend/op-plugin (schema files, manual, host code, tests) as of August
2026; kernel documentation is CANN's. Where they disagree, the entry says which one is followed. Schemas are given as
they stand there, with a name added to each of several results.

## Your own reference

A reference is one function. Register it in a module and name it to the reader, `spool-check watch … --import MODULE`:

```python
import fused_ops

@fused_ops.register(
    "npu_twice(Tensor self, float factor=2.0) -> Tensor",   # the official schema text
    source="our kernel's manual",
)
def twice(run, self, factor):
    fused_ops.check(factor != 0, "factor", factor, "must not be 0")
    return run.down(run.up(self) * factor, self.dtype)
```

`run.up(tensor)` raises a float input to the dtype to compute in (float32, or float64 for the golden run);
`run.down(value, dtype)` rounds a result once to the operator's output dtype and leaves the golden run's float64 alone.
`register` also takes `standard`, `deterministic`, `backward_of`, `inert` (arguments without numerical effect), `extras`
(documented arguments of other releases, with their defaults), `writes` (arguments that the call overwrites although the
schema does not mark them) and `uncompared` (outputs that must not be compared, with reasons, or a function of the bound
arguments that gives them, with `uncompared_note` saying so in words). `replace=True` puts it in the place of a
reference that exists.
"""


def document() -> str:
    """The whole page."""
    sections = [_HEAD, "## Operators\n", _index(), *(_entry(reference(name)) for name in names())]
    return "\n".join(sections)


def _index() -> str:
    rows = ["| operator | outputs | standard | gradient of |", "|---|---|---|---|"]
    for name in names():
        op = reference(name)
        outputs = len(parse_schema(op.schema).returns)
        rows.append(f"| [{name}](#{name.lower()}) | {outputs} | {op.standard} | {op.backward_of or ''} |")
    return "\n".join(rows) + "\n"


def _entry(op: FusedOp) -> str:
    lines = [f"### {op.name}\n", "```", *(schema.text for schema in op.schemas), "```\n", f"- Source: {op.source}."]
    lines.append(f"- Standard: {op.standard}{'' if op.deterministic else '; not deterministic on the device'}.")
    if op.backward_of:
        lines.append(f"- Gradient of {op.backward_of}.")
    if op.mutates:
        lines.append(f"- Writes: {', '.join(op.mutates)}; compared with the values after the call.")
    lines.append(f"- Not compared: {_uncompared(op)}")
    unsupported = op.unsupported
    if unsupported:
        lines.append(f"- Only at their defaults: {', '.join(unsupported)}.")
    if op.inert:
        lines.append(f"- Without numerical effect: {', '.join(sorted(op.inert))}.")
    return "\n".join(lines) + "\n"


def _uncompared(op: FusedOp) -> str:
    if callable(op.undefined):
        return f"{op.uncompared_note or 'depends on the call'}."
    if not op.undefined:
        return "none."
    return "; ".join(f"output {index} ({reason})" for index, reason in sorted(op.undefined.items())) + "."


if __name__ == "__main__":
    sys.stdout.write(document())

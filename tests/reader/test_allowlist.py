"""Which names stand for a call, and which are refused and why."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import fused_ops
from spool import NotReplayable
from spool_reader.allowlist import resolve

KNOWN = {
    "Torch.add.0": torch.add,
    "Torch.linalg.norm.3": torch.linalg.norm,
    "Torch.linalg_norm.3": torch.linalg.norm,
    "Torch.fft.rfft.0": torch.fft.rfft,
    "Torch.special.expit.0": torch.special.expit,
    "Torch.einsum.0": torch.einsum,
    "Torch.zeros.0": torch.zeros,
    "Torch.relu_.0": torch.relu_,
    "Torch._foreach_add_.0": torch._foreach_add_,
    "Torch._fused_adamw_.0": torch._fused_adamw_,
    "Tensor.add_.12": torch.Tensor.add_,
    "Tensor.__radd__.0": torch.Tensor.__radd__,
    "Tensor.__rpow__.0": torch.Tensor.__rpow__,
    "Tensor.__itruediv__.0": torch.Tensor.__itruediv__,
    "Tensor.__setitem__.0": torch.Tensor.__setitem__,
    "Tensor.new_zeros.0": torch.Tensor.new_zeros,
    "Functional.linear.0": F.linear,
    "Functional.gelu.0": F.gelu,
    "Functional.max_pool2d.0": F.max_pool2d,
    "Functional.scaled_dot_product_attention.0": F.scaled_dot_product_attention,
    "Aten.mm.0": torch.ops.aten.mm,
    "Aten.mm.default.0": torch.ops.aten.mm.default,
    "Aten.add_.Tensor.0": torch.ops.aten.add_.Tensor,
    "Aten._softmax_backward_data.0": torch.ops.aten._softmax_backward_data,
    "NPU.npu_rms_norm.2": fused_ops.reference("npu_rms_norm"),
}


@pytest.mark.parametrize("api", sorted(KNOWN))
def test_a_known_name_is_its_function(api: str) -> None:
    assert resolve(api).call is KNOWN[api]


REFUSED = {
    "file reading": ("Torch.load.0", "unknown API"),
    "file writing": ("Torch.save.0", "unknown API"),
    "hub": ("Torch.hub.load.0", "unknown API"),
    "module path": ("Torch.os.system.0", "unknown API"),
    "file backed tensor": ("Torch.from_file.0", "memory"),
    "file backed tensor by aten": ("Aten.from_file.0", "memory"),
    "TorchScript's own save": ("Aten.save.0", "unknown API"),
    "pickling": ("Tensor.__reduce_ex__.0", "unknown API"),
    "unpickling": ("Tensor.__setstate__.0", "unknown API"),
    "class": ("Functional.__class__.0", "unknown API"),
    "path through a dunder": ("Tensor.__class__.__bases__.0", "unknown API"),
    "builtins through a function": ("Functional.linear.__globals__.0", "unknown API"),
    "init": ("Tensor.__init__.0", "unknown API"),
    "shared memory": ("Tensor.share_memory_.0", "memory"),
    "storage": ("Tensor.untyped_storage.0", "memory"),
    "set_": ("Tensor.set_.0", "memory"),
    "backward": ("Tensor.backward.0", "autograd"),
    "hook": ("Tensor.register_hook.0", "autograd"),
    "python callback": ("Tensor.apply_.0", "Python function"),
    "global state": ("Torch.set_default_dtype.0", "unknown API"),
    "seed": ("Torch.manual_seed.0", "unknown API"),
    "threads": ("Torch.set_num_threads.0", "unknown API"),
    "compile": ("Torch.compile.0", "unknown API"),
    "storage view": ("Tensor.as_strided.0", "storage"),
    "future name": ("Torch.matmul_of_tomorrow.0", "unknown API"),
    "overload that is none": ("Aten.mm.Nonsense.0", "unknown API"),
    "attribute of a packet": ("Aten.mm.__class__.0", "unknown API"),
    "unknown fused operator": ("NPU.npu_nothing.0", "no reference for NPU"),
    "collective": ("Distributed.all_reduce.0", "other ranks"),
    "custom operator": ("Custom.mylib.op.3", "no reference"),
    "unknown type": ("Jit.fork.0", "unknown API"),
    "path traversal": ("../x", "not an API name"),
    "no number": ("Torch.add", "not an API name"),
    "letters for a number": ("Torch.add.x", "not an API name"),
    "foreign digits": ("Torch.add.٣", "not an API name"),
    "empty": ("", "not an API name"),
    "call syntax": ("Torch.add().0", "not an API name"),
    "line feed": ("Torch.add.0\n", "not an API name"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_a_name_outside_the_tables_is_refused_with_the_reason(case: str) -> None:
    api, reason = REFUSED[case]
    with pytest.raises(NotReplayable, match=reason):
        resolve(api)


def test_every_entry_is_callable_and_none_is_a_class_or_a_module() -> None:
    from spool_reader.allowlist import _tables

    for kind, table in _tables().items():
        for name, function in table.items():
            assert callable(function), (kind, name)
            assert not isinstance(function, type), (kind, name)
            assert getattr(function, "__module__", "") not in ("os", "sys", "pickle", "subprocess"), (kind, name)

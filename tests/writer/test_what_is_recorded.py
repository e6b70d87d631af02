"""The values of a bundle: arguments as they were before the call, results and written arguments as they were right after."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import environment
from torch import Tensor
from torch.nn import functional as F

from spool import Bundle, read_bundle


def only(bundles: list[Bundle], base: str) -> Bundle:
    [found] = [bundle for bundle in bundles if bundle.header.api.split(".", 1)[1].rpartition(".")[0] == base]
    return found


def v(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


# name → (base, program, arguments before the call by place, written arguments after it by place)
Case = tuple[str, Callable[[], Any], dict[str, Tensor], dict[str, Tensor]]
WRITES: dict[str, Case] = {
    "in-place method": (
        "add_", lambda: v(1, 2).add_(v(10, 20)), {"args[0]": v(1, 2), "args[1]": v(10, 20)}, {"args[0]": v(11, 22)},
    ),
    "in-place operator": (
        "add_", lambda: v(1, 2).__iadd__(v(10, 20)), {"args[0]": v(1, 2)}, {"args[0]": v(11, 22)},
    ),
    "out": (
        "add", lambda: torch.add(v(1, 2), v(10, 20), out=v(5, 6)), {"kwargs.out": v(5, 6)}, {"kwargs.out": v(11, 22)},
    ),
    "out is an input": (
        "mul", lambda: (lambda t: torch.mul(t, 3, out=t))(v(1, 2)), {"args[0]": v(1, 2)}, {"kwargs.out": v(3, 6)},
    ),
    "inplace switch": (
        "relu", lambda: F.relu(v(-1, 2), inplace=True), {"args[0]": v(-1, 2)}, {"args[0]": v(0, 2)},
    ),
    "inplace switch by position": (
        "relu", lambda: F.relu(v(-1, 2), True), {"args[0]": v(-1, 2)}, {"args[0]": v(0, 2)},
    ),
    "setitem": (
        "__setitem__", lambda: v(1, 2, 3).__setitem__(slice(0, 2), 9.0), {"args[0]": v(1, 2, 3)}, {"args[0]": v(9, 9, 3)},
    ),
    "aten schema": (
        "add_", lambda: torch.ops.aten.add_.Tensor(v(1, 2), v(1, 1)), {"args[0]": v(1, 2)}, {"args[0]": v(2, 3)},
    ),
    "zero_": ("zero_", lambda: v(1, 2).zero_(), {"args[0]": v(1, 2)}, {"args[0]": v(0, 0)}),
}  # fmt: skip


def at(bundle: Bundle, place: str) -> Any:
    if place.startswith("args["):
        return bundle.args[int(place[5:-1])]
    return bundle.kwargs[place.removeprefix("kwargs.")]


@pytest.mark.parametrize("case", sorted(WRITES))
def test_what_a_call_writes_is_recorded_before_and_after(case: str, record: Any) -> None:
    base, program, before, after = WRITES[case]
    bundle = only(record(lambda debugger: program()), base)
    for place, value in before.items():
        assert torch.equal(at(bundle, place), value), place
    assert sorted(bundle.mutated) == sorted(after)
    for place, value in after.items():
        assert torch.equal(bundle.mutated[place], value), place


def test_running_statistics_are_written_only_in_training(record: Any) -> None:
    x, mean, var = torch.randn(8, 3), torch.zeros(3), torch.ones(3)

    def program(debugger: Any) -> None:
        F.batch_norm(x, mean, var, training=False)
        F.batch_norm(x, mean, var, training=True)

    still, moving = record(program)
    assert still.mutated == {}
    assert sorted(moving.mutated) == ["args[1]", "args[2]"]
    assert torch.equal(moving.args[1], torch.zeros(3))
    assert torch.equal(moving.mutated["args[1]"], mean)
    assert not torch.equal(mean, torch.zeros(3))


def test_lists_of_tensors_that_a_foreach_call_writes(record: Any) -> None:
    tensors = [v(1), v(2)]
    bundle = only(record(lambda debugger: torch._foreach_add_(tensors, 1.0)), "_foreach_add_")
    assert [t.item() for t in bundle.args[0]] == [1, 2]
    assert [t.item() for t in bundle.mutated["args[0]"]] == [2, 3]


def test_a_result_that_is_edited_later_stays_as_it_was(record: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3)

    def program(debugger: Any) -> None:
        x.t().mul_(0)

    view, product = record(program)
    assert torch.equal(view.result, torch.arange(6.0).reshape(2, 3).t())
    assert torch.equal(product.args[0], torch.arange(6.0).reshape(2, 3).t())
    assert torch.equal(product.result, torch.zeros(3, 2))


def test_a_call_that_writes_unannounced_is_not_trusted(record: Any) -> None:
    library = torch.library.Library("spool_check_test", "FRAGMENT")
    library.define("sly(Tensor x) -> Tensor")
    library.impl("sly", lambda x: torch.ops.aten.add_(x, 1).clone(), "CPU")
    x = torch.zeros(2)
    [bundle] = record(lambda debugger: torch.ops.spool_check_test.sly(x))
    assert "signature does not name" in (bundle.header.skip or "")


def test_a_vendor_operator_that_writes_without_a_mark_in_its_schema(record: Any) -> None:
    library = torch.library.Library("npu", "FRAGMENT")
    library.define("npu_apply_rotary_pos_emb(Tensor query, Tensor key) -> (Tensor, Tensor)")

    def rotate(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        query.mul_(2), key.mul_(3)
        return query.clone(), key.clone()

    library.impl("npu_apply_rotary_pos_emb", rotate, "CPU")
    q, k = v(1, 2), v(3, 4)
    [bundle] = record(lambda debugger: torch.ops.npu.npu_apply_rotary_pos_emb(q, k))
    assert bundle.header.api == "NPU.npu_apply_rotary_pos_emb.0"
    assert [value.tolist() for value in bundle.args] == [[1, 2], [3, 4]]
    assert {place: value.tolist() for place, value in bundle.mutated.items()} == {"args[0]": [2, 4], "args[1]": [9, 12]}


KINDS: dict[str, Callable[[], Any]] = {
    "transposed": lambda: torch.randn(3, 4).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "strided": lambda: torch.randn(8, 8)[::2, 1:5],
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "0-d": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "bfloat16": lambda: torch.randn(4).bfloat16(),
    "complex128": lambda: torch.randn(4, dtype=torch.complex128),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tensors_keep_values_type_and_layout(kind: str, record: Any) -> None:
    value = KINDS[kind]()
    bundle = only(record(lambda debugger: torch.mul(value, 2)), "mul")
    kept = bundle.args[0]
    assert kept.dtype is value.dtype
    assert kept.shape == value.shape
    assert torch.equal(kept, value.detach())
    assert kept.requires_grad == value.requires_grad
    if kind in ("transposed", "channels last", "expanded"):
        assert kept.stride() == value.stride()


def test_a_small_view_of_a_large_tensor_is_small(record: Any) -> None:
    bundles = record(
        lambda debugger: (torch.zeros(1000, 1000)[0, :1].abs(), torch.zeros(1, 1000).expand(1000, 1000).abs())
    )
    sizes = {b.header.api: b.nbytes for b in bundles}
    one, row = [b for b in bundles if b.header.api.startswith("Tensor.abs")]
    assert one.args[0].numel() == 1, sizes
    assert sum(t.numel() for t in one.tensors.values()) == 2
    assert row.args[0].stride() == (0, 1)


def test_a_value_that_a_bundle_cannot_hold_is_named(record: Any) -> None:
    generator = torch.Generator()
    [bundle] = record(lambda debugger: torch.rand(2, generator=generator))
    assert bundle.header.skip == "not replayable (torch._C.Generator at kwargs.generator)"
    assert bundle.tensors == {}


def test_the_surroundings_are_recorded(record: Any) -> None:
    x, w = torch.randn(2, 3), torch.randn(4, 3)

    def program(debugger: Any) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            F.linear(x, w)

    bundle = only(record(program), "linear")
    assert bundle.header.context["autocast"] == {"cpu": "bfloat16"}
    assert bundle.header.context["grad"] is False
    assert bundle.header.context["default_dtype"] == "float32"
    assert bundle.header.producer["device"] == "cpu"
    assert bundle.result.dtype is torch.bfloat16


def test_the_new_switches_for_tf32_are_understood() -> None:
    # Having used them, torch refuses the old question for the rest of the process: hence one of its own.
    program = (
        "import sys, torch\n"
        "from spool_check import PrecisionDebugger\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "torch.backends.cudnn.conv.fp32_precision = 'ieee'\n"
        "with PrecisionDebugger(spool=sys.argv[1], strict=True):\n"
        "    torch.ones(2).add(1)\n"
    )
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the old switches only")
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([sys.executable, "-c", program, folder], env=environment(), capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        [path] = Path(folder).rglob("*.add.0.safetensors")
        assert read_bundle(path).header.context["tf32"] == {"matmul": True, "cudnn": False}


SUBCLASSES = """
import sys, warnings, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from spool_check import PrecisionDebugger
warnings.filterwarnings("ignore")

class Plain(torch.Tensor):
    pass

class Overriding(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
x = torch.randn(4, 4)
makers = {
    "plain subclass": lambda: x.as_subclass(Plain),
    "overriding subclass": lambda: x.clone().as_subclass(Overriding).requires_grad_(),
    "jagged": lambda: torch.nested.nested_tensor([x[:2], x[:3]], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([x[:2], x[:3]]),
    "sparse": lambda: x.to_sparse(),
    "meta": lambda: x.to("meta"),
    "distributed": lambda: distribute_tensor(x.clone(), mesh, [Shard(0)]).requires_grad_(),
}
value = makers[sys.argv[2]]()
expected = value * 3
debugger = PrecisionDebugger(spool=sys.argv[1], strict=True)
debugger.start()
product = value * 3
debugger.stop()
debugger.close()
assert type(product) is type(expected)
counts = debugger.counts()
assert counts["seen"] == counts["captured"] + counts["unreplayable"] == 1, counts
"""


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("plain subclass", "__main__.Plain at args[0]"),
        ("overriding subclass", "__main__.Overriding at args[0]"),
        ("jagged", "torch.nested._internal.nested_tensor.NestedTensor at args[0]"),
        ("nested", "Tensor (nested) at args[0]"),
        ("sparse", "Tensor (torch.sparse_coo) at args[0]"),
        ("meta", "Tensor (meta) at args[0]"),
        ("distributed", None),
    ],
)
def test_tensors_of_other_kinds_are_named_and_training_goes_on(kind: str, why: str | None, tmp_path: Path) -> None:
    path = tmp_path / "training.py"
    path.write_text(SUBCLASSES, encoding="utf-8")
    command = [sys.executable, str(path), str(tmp_path / "spool"), kind]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    [bundle] = [read_bundle(path) for path in (tmp_path / "spool").rglob("*.safetensors")]
    assert bundle.header.skip == (f"not replayable ({why})" if why else None)
    if why is None:
        assert bundle.header.args["$tuple"][0]["placements"] == "(Shard(dim=0),)"

"""Situations of a recorded call that a replay must survive, each with the verdict that is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from spool import LocalShard

nan, inf = math.nan, math.inf
x, y = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
total = torch.tensor([11.0, 22.0])
scores = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
dropped = torch.arange(1000).remainder(2) * 2.0
wide = torch.linspace(-2, 2, 64).reshape(8, 8)

image, kernel = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1)
# gradient, input, weight, bias sizes, stride, padding, dilation, transposed, output padding, groups, which gradients
conv_backward = (image, image, kernel, [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False])


@dataclass(frozen=True)
class Case:
    """A call as it was recorded and the verdict that it deserves."""

    api: str
    args: tuple[Any, ...]
    result: Any
    verdict: str = "pass"
    kwargs: dict[str, Any] = field(default_factory=dict)
    mutated: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    context: dict[str, Any] = field(default_factory=dict)


def _bn(shift: float = 0.0) -> Case:
    mean, var = torch.zeros(3), torch.ones(3)
    value = torch.linspace(0, 5, 24).reshape(8, 3)
    new_mean, new_var = mean.clone(), var.clone()
    out = F.batch_norm(value, new_mean, new_var, training=True)
    return Case(
        "Functional.batch_norm.0",
        (value, mean, var),
        out,
        "error" if shift else "pass",
        {"training": True},
        {"args[1]": new_mean + shift, "args[2]": new_var},
    )


CASES = {
    "1 in-place: result and argument": Case("Tensor.add_.0", (x, y), total, mutated={"args[0]": total}),
    "1 in-place: wrong argument": Case("Tensor.add_.0", (x, y), total, "error", mutated={"args[0]": total + 1}),
    "1 in-place: wrong result": Case("Tensor.add_.0", (x, y), total + 1, "error", mutated={"args[0]": total}),
    "1 out=": Case("Torch.add.0", (x, y), total, kwargs={"out": torch.zeros(2)}, mutated={"kwargs.out": total}),
    "1 out= that was not written": Case(
        "Torch.add.0", (x, y), total, "error", kwargs={"out": torch.zeros(2)}, mutated={"kwargs.out": torch.zeros(2)}
    ),
    "1 list of written tensors": Case(
        "Torch._foreach_add_.0", ([x, y], 1.0), [x + 1, y + 1], mutated={"args[0][0]": x + 1, "args[0][1]": y + 1}
    ),
    "1 list of written tensors, by a torch that does not return it": Case(
        "Torch._foreach_add_.0", ([x, y], 1.0), None, mutated={"args[0][0]": x + 1, "args[0][1]": y + 1}
    ),
    "1 one wrong in a list of written tensors": Case(
        "Torch._foreach_add_.0", ([x, y], 1.0), None, "error", mutated={"args[0][0]": x + 1, "args[0][1]": y}
    ),
    "6 0-d tensor": Case("Tensor.sum.0", (x,), torch.tensor(3.0)),
    "6 bool": Case("Torch.equal.0", (x, x), True),
    "6 wrong bool": Case("Torch.equal.0", (x, x), False, "error"),
    "6 number": Case("Tensor.item.0", (torch.tensor(7),), 7),
    "6 wrong number": Case("Tensor.item.0", (torch.tensor(7),), 8, "error"),
    "6 setitem returns nothing": Case(
        "Tensor.__setitem__.0", (x, 0, 5.0), None, mutated={"args[0]": torch.tensor([5.0, 2.0])}
    ),
    "6 setitem wrote something else": Case("Tensor.__setitem__.0", (x, 0, 5.0), None, "error", mutated={"args[0]": x}),
    "6 None where a tensor belongs": Case("Torch.add.0", (x, y), None, "error"),
    "7 empty and not": Case("Torch.cat.0", ([torch.zeros(0), x],), x),
    "7 empty of another shape": Case("Torch.neg.0", (torch.zeros(0, 3),), torch.zeros(0, 4), "error"),
    "8 all NaN": Case("Torch.mul.0", (x, y), torch.full((2,), nan), "error"),
    "8 one inf": Case("Torch.mul.0", (x, y), torch.tensor([10.0, inf]), "error"),
    "9 the same NaN and inf": Case("Torch.add.0", (torch.tensor([nan, inf, 1.0]), 0), torch.tensor([nan, inf, 1.0])),
    "9 the other inf": Case("Torch.add.0", (torch.tensor([inf, 1.0]), 0), torch.tensor([-inf, 1.0]), "error"),
    "10 another shape": Case("Torch.add.0", (x, y), total[:, None], "error"),
    "10 another kind of dtype": Case("Torch.add.0", (x, y), total.int(), "error"),
    "10 an output too many": Case("Torch.add.0", (x, y), (total, total), "error"),
    "11 int32 targets": Case(
        "Functional.cross_entropy.0",
        (wide, torch.arange(8, dtype=torch.int32)),
        F.cross_entropy(wide, torch.arange(8)),
        says="widened to int64",
    ),
    "11 int32 one_hot": Case(
        "Functional.one_hot.0",
        (torch.tensor([0, 2], dtype=torch.int32), 3),
        F.one_hot(torch.tensor([0, 2]), 3),
        says="widened to int64",
    ),
    "11 half cdist": Case(
        "Torch.cdist.0",
        (wide.half(), wide.half()),
        torch.cdist(wide.half().float(), wide.half().float()).half(),
        says="computed in float32",
    ),
    "11 half svd": Case(
        "Torch.linalg.svdvals.0",
        (wide.half(),),
        torch.linalg.svdvals(wide.half().float()).half(),
        says="computed in float32",
    ),
    "12 bfloat16": Case("Torch.mul.0", (wide.bfloat16(), 3), wide.bfloat16() * 3),
    "13 complex": Case("Torch.fft.fft.0", (wide,), torch.fft.fft(wide)),
    "13 wrong imaginary part": Case(
        "Torch.fft.fft.0", (wide,), torch.complex(torch.fft.fft(wide).real, torch.fft.fft(wide).imag * 1.1), "error"
    ),
    "14 float64": Case("Torch.matmul.0", (wide.double(), wide.double()), wide.double() @ wide.double()),
    "15 dropout": Case("Functional.dropout.0", (torch.ones(1000), 0.5), dropped),
    "15 dropout that scales wrongly": Case("Functional.dropout.0", (torch.ones(1000), 0.5), dropped * 1.5, "error"),
    "15 dropout that is off": Case("Functional.dropout.0", (wide, 0.5, False), wide),
    "16 ties in topk": Case(
        "Torch.topk.0",
        (scores, 2),
        torch.return_types.topk((torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 1]]))),
    ),
    "16 an index that is no tie": Case(
        "Torch.topk.0",
        (scores, 2),
        torch.return_types.topk((torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 0]]))),
        "error",
    ),
    "17 named tuple": Case("Torch.max.0", (wide, 1), torch.max(wide, 1)),
    "17 list of tensors": Case("Torch.chunk.0", (wide, 2), list(torch.chunk(wide, 2))),
    "17 one wrong in a list": Case("Torch.chunk.0", (wide, 2), [wide[:4], wide[4:] + 1], "error"),
    "18 slices and Ellipsis": Case("Tensor.__getitem__.0", (wide, (Ellipsis, slice(1, 3))), wide[..., 1:3]),
    "18 tensor in an index": Case("Tensor.__getitem__.0", (x, torch.tensor([1, 0])), x[[1, 0]]),
    "18 dtype": Case("Tensor.to.0", (x, torch.bfloat16), x.bfloat16()),
    "18 device as keyword": Case("Torch.zeros.0", (2,), torch.zeros(2), kwargs={"device": "npu:3"}),
    "18 device as object": Case("Torch.zeros.0", (2,), torch.zeros(2), kwargs={"device": torch.device("cuda", 1)}),
    "18 device by position": Case("Tensor.to.0", (x, "npu:0"), x),
    "18 device and dtype": Case("Tensor.to.0", (x, torch.device("cuda"), torch.float16), x.half()),
    "18 move to a device": Case("Tensor.cuda.0", (x,), x),
    "18 memory format": Case(
        "Tensor.contiguous.0",
        (torch.ones(1, 2, 2, 2),),
        torch.ones(1, 2, 2, 2),
        kwargs={"memory_format": torch.channels_last},
    ),
    "20 gradients that nobody wanted": Case(
        "Aten.convolution_backward.0",
        conv_backward,
        (image, None, None),
    ),
    "20 a gradient where none belongs": Case(
        "Aten.convolution_backward.0",
        conv_backward,
        (image, kernel, None),
        "error",
    ),
    "22 softmax of bool": Case(
        "Functional.softmax.0", (torch.tensor([True, False]), 0), F.softmax(torch.tensor([1.0, 0.0]), 0),
        kwargs={"dtype": torch.float32},
    ),
    "22 half with float32 weights": Case(
        "Functional.layer_norm.0",
        (wide.half(), [8], torch.ones(8), torch.zeros(8)),
        F.layer_norm(wide.half().float(), [8]).half(),
        says="",
    ),
    "23 running statistics": _bn(),
    "23 wrong running mean": _bn(0.5),
    "24 undefined values": Case("Torch.empty_like.0", (x,), torch.tensor([nan, 7.0]), "skip"),
    "25 default dtype": Case(
        "Torch.ones.0", (2,), torch.ones(2, dtype=torch.float64), context={"default_dtype": "float64"}
    ),
    "40 unknown API": Case("Torch.matmul_of_tomorrow.0", (x, y), total, "skip", says="unknown API"),
    "call that raises": Case("Torch.matmul.0", (torch.ones(2, 3), torch.ones(2, 3)), total, "skip", says="raises on"),
    "random call": Case("Torch.rand_like.0", (x,), x, "skip"),
    "written path that is not there": Case("Tensor.add_.0", (x, y), total, "skip", mutated={"args[7]": x}),
    "unrecorded write": Case("Functional.relu.0", (-x, True), torch.zeros(2), "skip", says="does not name as written"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_verdict_is_right(name: str, row: Callable[..., dict[str, Any]]) -> None:
    case = CASES[name]
    found = row(case.api, case.args, case.kwargs, case.result, case.mutated, context=case.context)
    assert found["verdict"] == case.verdict, found
    if case.says:
        assert any(case.says in text for text in (found["message"], *found["notes"])), found
    if case.verdict == "skip":
        assert found["message"]


def test_a_row_names_outputs_and_written_arguments(row: Callable[..., dict[str, Any]]) -> None:
    found = row("Torch._foreach_add_.0", ([x, y], 1.0), {}, None, {"args[0][0]": x + 1, "args[0][1]": y + 2})
    assert [(output["index"], output["path"]) for output in found["outputs"]] == [(0, "args[0][0]"), (1, "args[0][1]")]


def test_a_call_that_could_not_be_captured_is_a_skip_row(row: Callable[..., dict[str, Any]]) -> None:
    from spool import Bundle
    from spool_reader.device import Device
    from spool_reader.judging import Judge, JudgeOptions

    bundle = Bundle.unreplayable(
        session="s1", rank=0, step=0, seq=4, api="Torch.randn.0", phase="forward", context={}, producer={}, time=0.0,
        reason="not replayable (torch.Generator at kwargs.generator)",
    )  # fmt: skip
    found = Judge(Device(), JudgeOptions()).row(bundle)
    assert found["verdict"] == "skip"
    assert "torch.Generator at kwargs.generator" in found["message"]
    assert found["seq"] == 4


WRITERS = {
    "in-place": ("Tensor.mul_.0", (x, 3), {}, {"args[0]": x * 3}),
    "in-place without a record of it": ("Tensor.mul_.0", (x, 3), {}, {}),
    "augmented": ("Tensor.__imul__.0", (x, 3), {}, {"args[0]": x * 3}),
    "out": ("Torch.mul.0", (x, 3), {"out": torch.zeros(2)}, {"kwargs.out": x * 3}),
    "inplace=True": ("Functional.relu.0", (x,), {"inplace": True}, {"args[0]": x}),
}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_replay_never_writes_to_the_bundle(name: str, bundle: Callable[..., Any]) -> None:
    from spool_reader.allowlist import resolve
    from spool_reader.device import Device
    from spool_reader.replay import Replay

    api, args, kwargs, mutated = WRITERS[name]
    made = bundle(api, args, kwargs, None, mutated)
    before = {key: tensor.clone() for key, tensor in made.tensors.items()}
    replay = Replay(made, resolve(api))
    replay.reference(Device())
    replay.golden()
    assert all(torch.equal(made.tensors[key], tensor) for key, tensor in before.items())


def test_the_same_tensor_twice_stays_one_tensor(row: Callable[..., dict[str, Any]]) -> None:
    """`x.add_(x)` doubles; two copies would only add."""
    found = row("Tensor.cumsum_.0", (x, 0), {}, x.cumsum(0), {"args[0]": x.cumsum(0)})
    assert found["verdict"] == "pass"
    doubled = row("Torch.add.0", (x, x), {"out": x}, x + x, {"kwargs.out": x + x, "args[0]": x + x, "args[1]": x + x})
    assert doubled["verdict"] == "pass"


def test_surroundings_are_restored(row: Callable[..., dict[str, Any]]) -> None:
    row("Torch.ones.0", (2,), {}, torch.ones(2), context={"default_dtype": "float64"})
    row("Torch.matmul.0", (torch.ones(2), torch.ones(3)), {}, None, context={"default_dtype": "float16"})
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    assert not torch._C._is_any_autocast_enabled()


SHARDED, WHOLE = "(Shard(dim=0),)", "(Replicate(), Replicate())"


@pytest.mark.parametrize(
    ("placements", "result", "verdict"),
    [(SHARDED, x.softmax(0), "pass"), (SHARDED, x.softmax(0) / 2, "skip"), (WHOLE, x.softmax(0) / 2, "error")],
)
def test_parts_of_distributed_tensors(
    placements: str, result: torch.Tensor, verdict: str, row: Callable[..., dict[str, Any]]
) -> None:
    """Over a dimension that is spread over ranks, one rank's part says nothing: such a difference is nobody's fault."""
    found = row("Functional.softmax.0", (LocalShard(x, placements), 0), {}, LocalShard(result, placements))
    assert found["verdict"] == verdict
    assert verdict != "skip" or placements in found["message"]

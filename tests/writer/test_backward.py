"""What is recorded of a backward: names, origins, values; and that checkpointing, hooks and other modes go on as without us."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_npu import fake_npu
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from spool import Bundle

X = torch.linspace(-2, 2, 12).reshape(3, 4)
W = torch.linspace(-1, 1, 16).reshape(4, 4)
V = torch.linspace(1, -1, 16).reshape(4, 4)


def leaf(value: Tensor = X) -> Tensor:
    return value.clone().requires_grad_()


def block(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, w)), v)


def plain() -> list[Tensor]:
    leaves = [leaf(), leaf(W), leaf(V)]
    block(*leaves).sum().backward()
    return leaves


def checkpointed(**options: Any) -> Callable[[], list[Tensor]]:
    def program() -> list[Tensor]:
        leaves = [leaf(), leaf(W), leaf(V)]
        checkpoint(block, *leaves, **options).sum().backward()
        return leaves

    return program


def nested_checkpoint() -> list[Tensor]:
    leaves = [leaf(), leaf(W), leaf(V)]

    def outer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return checkpoint(block, F.relu(x), w, v, use_reentrant=True)

    checkpoint(outer, *leaves, use_reentrant=True).sum().backward()
    return leaves


def twice_through_one_graph() -> list[Tensor]:
    leaves = [leaf(), leaf(W)]
    out = F.linear(*leaves).sum()
    out.backward(retain_graph=True)
    out.backward()
    return leaves


def autograd_backward() -> list[Tensor]:
    leaves = [leaf(), leaf(W)]
    torch.autograd.backward([F.linear(*leaves)], [X @ W])
    return leaves


def autograd_grad() -> list[Tensor]:
    leaves = [leaf(), leaf(W)]
    for tensor, gradient in zip(leaves, torch.autograd.grad(F.linear(*leaves).sum(), leaves), strict=True):
        tensor.grad = gradient
    return leaves


def double_backward() -> list[Tensor]:
    x, w = leaf(), leaf(W)
    [gradient] = torch.autograd.grad(torch.tanh(F.linear(x, w)).sum(), [x], create_graph=True)
    gradient.square().sum().backward()
    return [x, w]


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def own_function() -> list[Tensor]:
    x = leaf()
    F.gelu(_Doubled.apply(x)).sum().backward()
    return [x]


def doubled(tensor: Tensor) -> None:
    assert tensor.grad is not None
    tensor.grad.mul_(2)


def hooks() -> list[Tensor]:
    x, w = leaf(), leaf(W)
    y = F.linear(x, w)
    y.register_hook(lambda gradient: torch.clamp(gradient * 3, max=1))
    x.register_post_accumulate_grad_hook(doubled)
    F.relu(y).sum().backward()
    return [x, w]


def shared_input() -> list[Tensor]:
    x, w = leaf(), leaf(W)
    (F.linear(x, w) + F.linear(x, weight=w)).sum().backward()
    return [x, w]


def unused_part() -> list[Tensor]:
    x = leaf()
    first, _ = torch.split(x, 2, dim=1)
    first.square().sum().backward()
    return [x]


def norms() -> list[Tensor]:
    x, w = leaf(), leaf(torch.ones(4))
    y = F.batch_norm(x, torch.zeros(4), torch.ones(4), w, torch.zeros(4), training=True)
    F.layer_norm(y, (4,), w).square().sum().backward()
    return [x, w]


PROGRAMS: dict[str, Callable[[], list[Tensor]]] = {
    "plain": plain,
    "checkpoint": checkpointed(use_reentrant=False),
    "checkpoint, reentrant": checkpointed(use_reentrant=True),
    "checkpoint, no early stop": lambda: _without_early_stop(checkpointed(use_reentrant=False)),
    "checkpoint in checkpoint": nested_checkpoint,
    "two backwards through one graph": twice_through_one_graph,
    "torch.autograd.backward": autograd_backward,
    "torch.autograd.grad": autograd_grad,
    "double backward": double_backward,
    "a function of the user's": own_function,
    "hooks": hooks,
    "one input of two calls": shared_input,
    "an output that nobody uses": unused_part,
    "norms": norms,
}


def _without_early_stop(program: Callable[[], list[Tensor]]) -> list[Tensor]:
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        return program()


def backward_of(bundles: list[Bundle]) -> list[tuple[str, str | None]]:
    return [(b.header.api, b.header.origin) for b in bundles if b.header.phase == "backward"]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_gradients_are_bit_equal_and_every_call_is_recorded(name: str, record: Any) -> None:
    expected = [tensor.grad for tensor in PROGRAMS[name]()]
    kept: list[Tensor] = []
    bundles = record(lambda debugger: kept.extend(PROGRAMS[name]()))
    for ours, theirs in zip(kept, expected, strict=True):
        assert ours.grad is not None
        assert theirs is not None
        assert torch.equal(ours.grad, theirs)
    assert [bundle.header.seq for bundle in bundles] == list(range(len(bundles)))
    assert all(bundle.header.skip is None for bundle in bundles)
    found = backward_of(bundles)
    assert found
    assert all(api.startswith("Aten.") for api, _ in found)
    forward = {bundle.header.api for bundle in bundles if bundle.header.phase == "forward"}
    assert {origin for _, origin in found} - {None} <= forward
    assert any(origin for _, origin in found)


LINEAR_GELU_LINEAR = [
    ("Aten.mm", "Functional.linear.1"),
    ("Aten.mm", "Functional.linear.1"),
    ("Aten.gelu_backward", "Functional.gelu.0"),
    ("Aten.mm", "Functional.linear.0"),
    ("Aten.mm", "Functional.linear.0"),
]


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name == "plain" or name.startswith("checkpoint")])
def test_gradients_belong_to_the_same_calls_with_and_without_checkpointing(name: str, record: Any) -> None:
    found = backward_of(record(lambda debugger: PROGRAMS[name]()))
    gradients = [
        (api.rpartition(".")[0], origin)
        for api, origin in found
        if api.rpartition(".")[0] in ("Aten.mm", "Aten.gelu_backward") and origin
    ]
    assert gradients == LINEAR_GELU_LINEAR
    # A forward that runs again is no gradient of anything.
    assert [origin for api, origin in found if api.startswith(("Aten.addmm.", "Aten.gelu."))].count(None) == sum(
        api.startswith(("Aten.addmm.", "Aten.gelu.")) for api, _ in found
    )


def test_a_checkpointed_forward_keeps_its_names(record: Any) -> None:
    def forward_names(name: str) -> list[str]:
        return [b.header.api for b in record(lambda debugger: PROGRAMS[name]()) if b.header.phase == "forward"]

    assert forward_names("checkpoint") == forward_names("plain")


def test_second_order_gradients_belong_to_the_first_calls(record: Any) -> None:
    found = dict(backward_of(record(lambda debugger: double_backward())))
    assert found["Aten.tanh_backward.0"] == "Torch.tanh.0"
    origins = [origin for api, origin in found.items() if api.startswith("Aten.mm.")]
    assert set(origins) == {"Functional.linear.0"}


def test_each_use_of_one_input_has_its_own_gradient(record: Any) -> None:
    found = backward_of(record(lambda debugger: shared_input()))
    origins = [origin for api, origin in found if api.startswith("Aten.mm.")]
    assert sorted(set(origins)) == ["Functional.linear.0", "Functional.linear.1"]


def test_values_of_a_backward_are_those_of_its_moment(record: Any) -> None:
    x = leaf()

    def program(debugger: Any) -> None:
        F.relu(x).sum().backward()
        x.grad.zero_()
        F.relu(x).sum().backward()

    [first, second] = [b for b in record(program) if b.header.api.startswith("Aten.threshold_backward.")]
    assert torch.equal(first.result, (X > 0).float())
    assert torch.equal(first.args[0], torch.ones(3, 4))
    assert torch.equal(second.args[1], X.relu())
    assert not any(tensor.requires_grad for tensor in first.args if isinstance(tensor, Tensor))


def test_an_accumulated_gradient_is_recorded_before_and_after(record: Any) -> None:
    x = leaf()

    def program(debugger: Any) -> None:
        (x * 2).sum().backward()
        (x * 3).sum().backward()

    [added] = [b for b in record(program) if b.header.api == "Aten.add_.0"]
    assert torch.equal(added.args[0], torch.full((3, 4), 2.0))
    assert torch.equal(added.mutated["args[0]"], torch.full((3, 4), 5.0))


def test_running_statistics_that_a_repeated_forward_writes_are_recorded(record: Any) -> None:
    mean, var = torch.zeros(4), torch.ones(4)

    def program(debugger: Any) -> None:
        checkpoint(F.batch_norm, leaf(), mean, var, training=True, use_reentrant=False).sum().backward()

    [repeated] = [b for b in record(program) if "batch_norm" in b.header.api and b.header.phase == "backward"
                  and "backward" not in b.header.api]  # fmt: skip
    assert {"args[3]", "args[4]"} <= set(repeated.mutated)
    assert not torch.equal(repeated.mutated["args[3]"], repeated.args[3])


def test_switched_off_no_backward_is_recorded(record: Any) -> None:
    assert backward_of(record(lambda debugger: plain(), backward=False)) == []


def test_filters_hold_for_operators_and_leave_numbers_alone(record: Any) -> None:
    everything = backward_of(record(lambda debugger: plain()))
    some = backward_of(record(lambda debugger: plain(), white_list=["mm"]))
    assert some == [(api, origin) for api, origin in everything if api.startswith("Aten.mm.")]
    assert some


def test_a_graph_that_lives_into_the_next_step_has_no_origin_there(record: Any) -> None:
    def program(debugger: Any) -> None:
        out = F.gelu(leaf()).sum()
        debugger.step()
        F.relu(leaf())
        out.backward()

    [(api, origin)] = [entry for entry in backward_of(record(program)) if "gelu" in entry[0]]
    assert (api, origin) == ("Aten.gelu_backward.0", None)


class _Operators(TorchDispatchMode):
    """A mode of the user's, such as a counter of floating-point operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_another_mode_sees_the_same_operators_as_without_us(record: Any) -> None:
    def watched() -> list[str]:
        leaves = [leaf(), leaf(W), leaf(V)]
        with _Operators() as mode:
            checkpoint(block, *leaves, use_reentrant=False).sum().backward()
        return mode.seen

    alone, together = watched(), []
    record(lambda debugger: together.extend(watched()))
    assert together == alone


def test_selective_checkpointing_sees_its_own_operators_only(record: Any) -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def program() -> list[Tensor]:
        leaves = [leaf(), leaf(W), leaf(V)]
        contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
        checkpoint(block, *leaves, use_reentrant=False, context_fn=contexts).sum().backward()
        return leaves

    expected = [tensor.grad for tensor in program()]
    kept: list[Tensor] = []
    found = backward_of(record(lambda debugger: kept.extend(program())))
    assert all(torch.equal(a.grad, b) for a, b in zip(kept, expected, strict=True))  # type: ignore[arg-type]
    assert ("Aten.gelu_backward.0", "Functional.gelu.0") in found


def test_an_error_in_a_backward_passes_through_and_leaves_no_bundle(record: Any) -> None:
    class Wrong(Exception):
        pass

    def refuse(gradient: Tensor) -> Tensor:
        raise Wrong

    def program(debugger: Any) -> None:
        x = leaf()
        y = F.gelu(x)
        y.register_hook(refuse)
        with pytest.raises(Wrong):
            F.relu(y).sum().backward()
        # The next backward is recorded as ever.
        F.silu(leaf()).sum().backward()

    found = [api for api, _ in backward_of(record(program))]
    assert "Aten.threshold_backward.0" in found
    assert "Aten.silu_backward.0" in found
    assert not any("gelu" in api for api in found)


def test_two_threads_keep_their_origins_apart(record: Any) -> None:
    def program(debugger: Any) -> None:
        def work(function: Callable[[Tensor], Tensor]) -> None:
            debugger.start()
            for _ in range(10):
                function(leaf()).sum().backward()
            debugger.stop()

        threads = [threading.Thread(target=work, args=(function,)) for function in (F.gelu, F.silu)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for api, origin in backward_of(record(program)):
        if origin is not None:
            assert ("gelu" in api) == ("gelu" in origin)
            assert ("silu" in api) == ("silu" in origin)


def test_a_compiled_model_trains_as_without_us(record: Any) -> None:
    def program() -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
        torch.compile(model, backend="aot_eager")(X).sum().backward()
        return list(model.parameters())

    expected = [tensor.grad for tensor in program()]
    torch._dynamo.reset()
    kept: list[Tensor] = []
    bundles = record(lambda debugger: kept.extend(program()))
    torch._dynamo.reset()
    assert all(torch.equal(a.grad, b) for a, b in zip(kept, expected, strict=True))  # type: ignore[arg-type]
    assert all(bundle.header.skip is None for bundle in bundles)


def test_operators_of_a_vendor_have_their_own_names(record: Any) -> None:
    x, gamma = leaf(), leaf(torch.ones(4))
    with fake_npu():
        import torch_npu  # type: ignore[import-not-found]

        def program(debugger: Any) -> None:
            torch_npu.npu_rms_norm(x, gamma)[0].sum().backward()

        found = backward_of(record(program))
    assert ("NPU.npu_rms_norm_backward.0", "NPU.npu_rms_norm.0") in found


def test_an_operator_of_higher_order_passes_whole(record: Any) -> None:
    """Torch refuses to run one under a mode that does not say that it takes them."""

    def program() -> list[Tensor]:
        x = leaf()
        torch.cond(x.sum() < 1, lambda t: t.sin(), lambda t: t.cos(), (x,)).sum().backward()
        return [x]

    [expected] = program()
    torch._dynamo.reset()
    kept: list[Tensor] = []
    record(lambda debugger: kept.extend(program()))
    torch._dynamo.reset()
    assert expected.grad is not None
    assert kept[0].grad is not None
    assert torch.equal(kept[0].grad, expected.grad)

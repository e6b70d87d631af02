"""Real models of a public package, captured and replayed on the same device: no false alarm, every skip has a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import left_in, rows_of

# A model is made by `make()`, and `loss_of(model)` runs it once; whatever is random has been drawn before.
PROGRAM = """
import sys, torch, warnings
warnings.filterwarnings("ignore")
from torch import nn
from torch.nn import functional as F
from spool_check import PrecisionDebugger
torch.set_num_threads(1)
torch.manual_seed(0)
{model}

def train(debugger):
    torch.manual_seed(1)
    model = make()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for step in range(2):
        loss = loss_of(model)
        loss.backward()
        seen += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
        optimizer.zero_grad()
        if debugger is not None:
            debugger.step()
    return seen + [p.detach() for p in model.parameters()]

off = train(None)
with PrecisionDebugger(spool=sys.argv[1]) as debugger:
    on = train(debugger)
assert len(off) == len(on)
assert all(torch.equal(a, b) for a, b in zip(off, on)), "training is not the same with the tool on"
"""

LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
ids = torch.randint(0, 64, (2, 16))
def make():
    return LlamaForCausalLM(config)
def loss_of(model):
    return model(input_ids=ids, labels=ids, use_cache=False).loss
"""

BERT = """
from transformers import BertConfig, BertForMaskedLM
config = BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ids = torch.randint(0, 64, (2, 16))
mask = torch.ones(2, 16, dtype=torch.long)
mask[1, 10:] = 0
def make():
    return BertForMaskedLM(config)
def loss_of(model):
    return model(input_ids=ids, attention_mask=mask, labels=ids).loss
"""

VIT = """
from transformers import ViTConfig, ViTForImageClassification
config = ViTConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                   patch_size=8, num_labels=5)
images, labels = torch.randn(2, 3, 32, 32), torch.tensor([1, 3])
def make():
    return ViTForImageClassification(config)
def loss_of(model):
    return model(pixel_values=images, labels=labels).loss
"""

RESNET = """
from transformers import ResNetConfig, ResNetForImageClassification
config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
images, labels = torch.randn(2, 3, 32, 32), torch.tensor([1, 3])
def make():
    return ResNetForImageClassification(config)
def loss_of(model):
    return model(pixel_values=images, labels=labels).loss
"""

LSTM = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(24, 8, batch_first=True)
        self.head = nn.Linear(8, 5)
    def forward(self, ids):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(self.gru(out)[0])
ids, lengths, labels = torch.randint(0, 32, (3, 9)), torch.tensor([9, 7, 4]), torch.randint(0, 5, (3, 9))
make = Tagger
def loss_of(model):
    return F.cross_entropy(model(ids).transpose(1, 2), labels)
"""

EXPERTS = """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4, bias=False)
        self.up = nn.Parameter(torch.randn(4, 16, 32) / 4)
        self.down = nn.Parameter(torch.randn(4, 32, 16) / 6)
    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert in range(4):
            token, place = torch.where(chosen == expert)
            hidden = F.silu(x[token] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, token, hidden * weights[token, place, None])
        counts = F.one_hot(chosen, 4).float().mean((0, 1))
        return out, (counts * self.gate(x).softmax(-1).mean(0)).sum()
x, y = torch.randn(24, 16), torch.randn(24, 16)
make = Experts
def loss_of(model):
    out, balance = model(x)
    return F.mse_loss(out, y) + 0.01 * balance
"""

UNET = """
class Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(16, outside)
        self.norm2, self.conv2 = nn.GroupNorm(4, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1)
    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down, self.pool = Block(8, 16), nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.last = Block(32, 8)
        self.leave = nn.Conv2d(8, 3, 3, padding=1)
    def forward(self, x, t):
        angles = t[:, None] * torch.exp(-torch.arange(8) / 3.0)
        t = torch.cat([angles.sin(), angles.cos()], 1)
        left = self.down(self.enter(x), t)
        h = self.pool(left)
        flat = h.flatten(2).transpose(1, 2)
        h = (flat + self.attention(flat, flat, flat, need_weights=False)[0]).transpose(1, 2).reshape(h.shape)
        h = torch.cat([self.up(h), F.interpolate(h, scale_factor=2, mode="nearest")[:, :0], left], 1)
        return self.leave(self.last(h, t))
x, noise, t = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8), torch.tensor([1.0, 5.0])
make = UNet
def loss_of(model):
    return F.mse_loss(model(x + noise, t), noise)
"""


def with_autocast(model: str) -> str:
    """The same with its forward in bfloat16 autocast."""
    head, _, body = model.rpartition("    return ")
    return f"{head}    with torch.autocast('cpu', dtype=torch.bfloat16):\n        return {body}"


def with_checkpointing(model: str, *, reentrant: bool) -> str:
    """The same with the activations of its layers thrown away and computed again."""
    how = f"model.gradient_checkpointing_enable({{'use_reentrant': {reentrant}}})"
    return (
        model
        + f"""
make_plain = make
def make():
    model = make_plain()
    {how}
    model.enable_input_require_grads() if hasattr(model, "get_input_embeddings") and {reentrant} else None
    return model
"""
    )


MODELS = {
    "llama": LLAMA,
    "llama, bf16 autocast": with_autocast(LLAMA),
    "llama, checkpointing": with_checkpointing(LLAMA, reentrant=False),
    "llama, reentrant checkpointing, bf16 autocast": with_checkpointing(with_autocast(LLAMA), reentrant=True),
    "bert": BERT,
    "bert, checkpointing, bf16 autocast": with_checkpointing(with_autocast(BERT), reentrant=False),
    "vit": VIT,
    "vit, bf16 autocast": with_autocast(VIT),
    "resnet": RESNET,
    "lstm": LSTM,
    "mixture of experts": EXPERTS,
    "diffusion unet": UNET,
}


# What is in these is in the others too, one thing at a time; `make test-slow` runs them.
SLOW = {"llama, bf16 autocast", "llama, checkpointing", "bert", "vit, bf16 autocast"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in sorted(MODELS)]


@pytest.mark.parametrize("name", NAMES)
def test_a_real_model_passes(name: str, tmp_path: Path, cli: Any, script: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    run = script(PROGRAM.replace("{model}", MODELS[name]), spool)
    assert run.returncode == 0, run.stderr
    sessions = [json.loads(path.read_text()) for path in spool.glob("rank0/session-*.json")]
    captured = sum(record["counts"]["captured"] + record["counts"]["unreplayable"] for record in sessions)
    judged = cli("reprocess", spool, "--out", out, "--workers", 1)
    rows = rows_of(out)
    bad = [(row["api"], row["verdict"], row["message"]) for row in rows if row["verdict"] in ("error", "warning")]
    assert not bad, bad
    assert judged.returncode == 0, judged.stderr
    assert len(rows) == captured > 50
    assert all(row["message"] for row in rows if row["verdict"] == "skip")
    assert sum(row["verdict"] == "pass" for row in rows) > 0.8 * len(rows)
    backward = [row for row in rows if row["phase"] == "backward"]
    assert len(backward) > 20
    assert sum(row["origin"] is not None for row in backward) > 0.4 * len(backward)
    assert left_in(spool) == []

"""Real models of a public package, captured and replayed on the same device: no false alarm, every skip has a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import left_in, rows_of

SETUP = """
import sys, torch, warnings
warnings.filterwarnings("ignore")
from spool_check import PrecisionDebugger
torch.manual_seed(0)
torch.set_num_threads(1)
"""

LOOP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
with PrecisionDebugger(spool=sys.argv[1]) as debugger:
    for step in range(2):
        loss = compute_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.step()
"""

LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
model = LlamaForCausalLM(config)
ids = torch.randint(0, 64, (2, 16))
def compute_loss():
    return model(input_ids=ids, labels=ids).loss
"""

LLAMA_AUTOCAST = LLAMA.replace(
    "    return model(", "    with torch.autocast('cpu', dtype=torch.bfloat16):\n        return model("
)

RESNET = """
from transformers import ResNetConfig, ResNetForImageClassification
config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
model = ResNetForImageClassification(config)
model.train()
images, labels = torch.randn(2, 3, 32, 32), torch.tensor([1, 3])
def compute_loss():
    return model(pixel_values=images, labels=labels).loss
"""

MODELS = {"llama": LLAMA, "llama-bf16-autocast": LLAMA_AUTOCAST, "resnet": RESNET}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_real_model_passes(name: str, tmp_path: Path, cli: Any, script: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    run = script(SETUP + MODELS[name] + LOOP, spool)
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
    assert left_in(spool) == []

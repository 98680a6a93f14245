"""A run that goes on from a checkpoint ends with the weights of one that was never stopped, whatever it trains."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import memcfg
from memcfg.engine.execute import train
from memcfg.registry import load

pytestmark = pytest.mark.torch

ROWS = [{"text": f"def f{n}(x):\n    return {'x + ' * (n % 5)}{n}"} for n in range(12)]
SMALL = [
    "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.layers=2", "run.batch_size=4", "run.steps=3",
    "run.save_steps=2", "run.log_steps=1", "run.learning_rate=1e-2",
]  # fmt: skip
BF16 = "model.dtype=bfloat16"

RUNS: dict[str, list[str]] = {
    "nf4": ["quantization=nf4", "peft=lora"],
    "int8": ["quantization=int8", "peft=lora"],
    "an adapter in the model's bfloat16": [BF16, "peft=lora", "peft.dtype=base"],
    "magnitudes and whole layers": [BF16, "peft=lora", "peft.dora=true", "peft.dtype=bfloat16", "peft.modules_to_save=[norm]"],
    "projections that are drawn": [BF16, "peft.method=vera", "peft.dtype=bfloat16"],
    "prompts that are computed": ["peft=p_tuning", "peft.modules_to_save=[norm]"],
    "prefixes that are computed": [BF16, "peft=prefix", "peft.dtype=base", "peft.config={prefix_projection: true, encoder_hidden_size: 8}"],
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_it_goes_on_to_the_last_bit(run: str, tmp_path: Path) -> None:
    if run in ("nf4", "int8") and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    torch.set_num_threads(1)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    asked = ["data=jsonl", f"data.path={tmp_path / 'rows.jsonl'}", *SMALL, *RUNS[run]]
    plan = memcfg.resolve(asked)
    train(plan, load().hooks(plan), tmp_path / "whole")
    resumed = memcfg.resolve([*asked, f"run.resume={tmp_path / 'whole' / 'checkpoint-2'}"])
    train(resumed, load().hooks(resumed), tmp_path / "again")
    weights = sorted(path.name for path in (tmp_path / "whole" / "model").glob("*.safetensors"))
    assert weights
    for name in weights:
        assert (tmp_path / "again" / "model" / name).read_bytes() == (
            tmp_path / "whole" / "model" / name
        ).read_bytes(), name


def test_prompts_of_a_checkpoint_without_what_computes_them_are_refused(tmp_path: Path) -> None:
    """Checkpoints of earlier versions held the prompts alone."""
    from memcfg_peft.continued import continued
    from peft import PromptEncoderConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes))
    made = get_peft_model(model, PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    continued(made)
    made.save_pretrained(str(tmp_path))
    (tmp_path / "prompt_encoder.safetensors").unlink()
    with pytest.raises(memcfg.RunError) as caught:
        made.load_adapter(str(tmp_path), "default", is_trainable=True)
    assert str(caught.value) == (
        f"`run.resume`: `{tmp_path}` holds virtual tokens, and not what computes them\n  begin a new run: it was saved by an "
        "earlier version"
    )

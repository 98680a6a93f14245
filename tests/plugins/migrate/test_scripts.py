"""What is read of a Python file. `given` is source, `then` what was found by name, `unread` what was listed."""

from __future__ import annotations

import pytest
from memcfg_migrate.trl.script import read

SCRIPTS = [
    # given, then, unread, because
    ("SFTConfig('out', seed=1)", {"output_dir": "out", "seed": 1}, [], "the first positional argument is the folder"),
    ("trl.SFTConfig(seed=1)", {"seed": 1}, [], "however the class was imported"),
    ("N = 3\nSFTConfig(seed=N * 2 + 1)", {"seed": 7}, [], "names bound once and arithmetic are written"),
    ("N = 3\nN = 4\nSFTConfig(seed=N)", {}, ["seed"], "which of the two holds is not"),
    ("def f(N):\n    return SFTConfig(seed=N)", {}, ["seed"], "an argument is given elsewhere"),
    ("SFTConfig(seed=int('3'))", {}, ["seed"], "a call is not run"),
    ("SFTConfig(seed=1 // 0)", {}, ["seed"], "nor is what would fail"),
    ("a = {'seed': 1}\nSFTConfig(**a)", {"seed": 1}, [], "a mapping that is written is read"),
    ("SFTConfig(**a)", {}, ["**"], "another is not"),
    ("c = SFTConfig(seed=1)\nc.max_length = 5", {"seed": 1, "max_length": 5}, [], "assigned afterwards"),
    ("SFTTrainer('org/m', SFTConfig(seed=1))", {"seed": 1, "from_pretrained.path": "org/m"}, [], "the model's name"),
    ("m = A.from_pretrained('org/m', dtype=torch.bfloat16)\nSFTTrainer(model=m)",
     {"from_pretrained.path": "org/m", "from_pretrained.dtype": "bfloat16"}, [], "a loaded model"),
    ("SFTTrainer(model=make())", {}, ["model"], "another model is not known"),
    ("d = load_dataset('a', split='train[:9]')\nSFTTrainer(train_dataset=d)",
     {"load_dataset.path": "a", "load_dataset.split": "train[:9]"}, [], ""),
    ("d = load_dataset('a')\nSFTTrainer(train_dataset=d['x'], eval_dataset=d['y'])",
     {"load_dataset.path": "a", "load_dataset.split": "x", "load_dataset.eval_split": "y"}, [], "splits by name"),
    ("d = load_dataset('a')\nd = d.map(f)\nSFTTrainer(train_dataset=d)", {"load_dataset.path": "a"}, [], "changed after"),
    ("SFTTrainer(train_dataset=rows())", {}, ["train_dataset"], ""),
    ("DPOTrainer(model='m', ref_model=A.from_pretrained('r'))", {"from_pretrained.path": "m", "Trainer.ref_model": "r"}, [],
     "two models are told apart"),
    ("SFTTrainer(peft_config=LoraConfig(8, lora_alpha=16))", {"LoraConfig.r": 8, "LoraConfig.lora_alpha": 16}, [], ""),
    ("SFTTrainer(max_seq_length=5)", {"max_seq_length": 5}, [], "older releases took it there"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "then", "unread", "because"), SCRIPTS)
def test_what_is_read_of_a_script(tmp_path, given, then, unread, because):
    path = tmp_path / "train.py"
    path.write_text(given, encoding="utf-8")
    found = read(path, None)
    assert {name: item.value for name, item in found.given.items()} == then, because
    assert [item.label for item in found.unread] == unread, because


def test_code_that_changes_the_rows_is_named(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("d = load_dataset('a')\nd = d.map(f)\nSFTTrainer(train_dataset=d.filter(g))", encoding="utf-8")
    said = [what for kind, what, _ in read(path, None).remarks if kind == "open"]
    assert said == [f"`.filter(...)` ({path}:3)", f"`d.map(f)` ({path}:2)"]

"""`from-trl` and its siblings on the command line: files that cannot be read, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCRIPT = """
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

NAME = "org/model"
model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16, device_map="auto")
rows = load_dataset("org/rows", "small", split="train[:160]")
args = SFTConfig("out", learning_rate=2e-4 / 2, packing=True, max_steps=find_steps(), **dict(seed=7))
args.max_length = 256 * 2
trainer = SFTTrainer(
    model=model, args=args, train_dataset=rows, processing_class=AutoTokenizer.from_pretrained(NAME),
    peft_config=LoraConfig(r=4, lora_dropout=0.1, bias="all"), callbacks=[Printer()],
)
raise SystemExit("this is never run")
"""

PRINTED = """\
python -m memcfg trainer=sft model=hub model.path=org/model \\
  model.dtype=bfloat16 data=hub data.path=org/rows data.config=small \\
  data.limit=160 packing=bfd peft=lora peft.alpha=8 'peft.config={bias: all}' \\
  peft.dropout=0.1 peft.rank=4 truncation.max_length=512 run.batch_size=8 \\
  run.dir=out run.learning_rate=0.0001 run.save_steps=500 run.seed=7

to be decided before it is the same run
  `run.steps`: `num_train_epochs` and `max_steps` could not both be read: append
    `run.steps=N`

not read, because only running the file would tell: append the overrides
  `max_steps` (train.py:11): `find_steps()`

where it comes from, in TRL's words
  trainer=sft                `SFTConfig`
  model=hub                  `from_pretrained.path=org/model` (train.py:9)
  model.path=org/model       `from_pretrained.path=org/model` (train.py:9)
  model.dtype=bfloat16       `from_pretrained.dtype=bfloat16` (train.py:9)
  data=hub                   `load_dataset.path=org/rows` (train.py:10)
  data.path=org/rows         `load_dataset.path=org/rows` (train.py:10)
  data.config=small          `load_dataset.name=small` (train.py:10)
  data.limit=160             `load_dataset.split=train[:160]` (train.py:10)
  packing=bfd                `packing=true` (train.py:11),
                             `packing_strategy=bfd` (default)
  peft=lora                  `LoraConfig`
  peft.alpha=8               `lora_alpha=8` (default)
  peft.config={bias: all}    `LoraConfig.bias=all` (train.py:15)
  peft.dropout=0.1           `LoraConfig.lora_dropout=0.1` (train.py:15)
  peft.rank=4                `LoraConfig.r=4` (train.py:15)
  truncation.max_length=512  `max_length=512` (train.py:12)
  run.batch_size=8           `per_device_train_batch_size=8` (default)
  run.dir=out                `output_dir=out` (train.py:11)
  run.learning_rate=0.0001   `learning_rate=0.0001` (train.py:11)
  run.save_steps=500         `save_steps=500` (default)
  run.seed=7                 `seed=7` (train.py:11)

no equivalent, and it changes what is learned
  `callbacks=[Printer()]` (train.py:15): nothing is called while training

done differently here
  `seed=7` (train.py:11): the order of rows is memcfg's own, so the batches are
    others

2 other arguments that memcfg heeds anyway (`--all`)

memcfg has a plan for this: `resolve` in front of the overrides shows it
"""


def test_a_script_is_read_and_not_run(memcfg):
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    code, out, err = memcfg("from-trl", "train.py")
    assert (code, err) == (0, "")
    assert out == PRINTED


def test_the_same_as_data(memcfg):
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    code, out, _ = memcfg("from-trl", "train.py", "--json", "run.steps=3")
    found = json.loads(out)
    assert (code, found["ok"], found["trainer"]) == (0, True, "sft")
    assert found["overrides"][-1] == "run.steps=3"
    assert found["unread"] == [{"what": "`max_steps`", "text": "`find_steps()`", "where": "train.py:11"}]
    assert {"override": "peft.rank=4", "key": "peft.rank", "value": 4, "from": "`LoraConfig.r=4` (train.py:15)", "given": True} in found["carried"]  # fmt: skip


def test_a_migration_is_written_as_a_preset_that_resolves(memcfg):
    Path("dpo.yaml").write_text("beta: 0.3\nlearning_rate: 1e-5\n", encoding="utf-8")
    Path("mine/experiment").mkdir(parents=True)
    code, _, err = memcfg("from-trl", "dpo.yaml", "--trainer", "dpo", "--write", "mine/experiment/old.yaml")
    assert code == 0
    assert err == "wrote mine/experiment/old.yaml: `python -m memcfg --config-dir mine experiment=old`\n"
    text = Path("mine/experiment/old.yaml").read_text(encoding="utf-8")
    assert "  beta: 0.3  # beta=0.3 (dpo.yaml:1)\n" in text
    code, out, _ = memcfg("resolve", "--json", "--config-dir", "mine", "experiment=old")
    options = json.loads(out)["options"]
    assert options["dpo.beta"]["value"] == 0.3
    assert options["run.learning_rate"]["value"] == 1e-5
    assert options["trainer.name"]["origin"].startswith("mine/experiment/old.yaml")


UNREADABLE = [
    # name, content, the whole message
    ("two.py", "a = SFTConfig(seed=1)\nb = DPOConfig(seed=1)", "error: `two.py`: holds `DPOConfig` and `SFTConfig`\n  say which: `--trainer dpo`, `--trainer sft`\n"),
    ("twice.py", "a = SFTConfig(seed=1)\nb = SFTConfig(seed=2)", "error: `twice.py`: `SFTConfig` is made in lines 1 and 2: one file is one run\n  leave one of them in a copy of the file\n"),
    ("parser.py", "p = TrlParser((SFTConfig,))\nSFTTrainer('x', args=p.parse())", "error: `parser.py`: the config is read from the command line (line 1), not\n  written here\n  give the YAML file that the script is started with (`--config`)\n"),
    ("broken.py", "a = (", "error: `broken.py:1`: no Python: '(' was never closed\n"),
    ("torn.json", '{"seed": ', "error: `torn.json:1`: no JSON: expecting value\n"),
    ("list.json", "[1, 2]", "error: `list.json`: holds a list, not arguments by name\n"),
    ("empty.yaml", "", "error: `empty.yaml`: is empty\n"),
    ("twice.yaml", "seed: 1\nseed: 2", "error: `seed (twice.yaml)`: said twice, in lines 1 and 2\n"),
    ("code.yaml", "!!python/object/apply:os.system ['true']", "error: `code.yaml:1`: no YAML: could not determine a constructor for the tag\n  'tag:yaml.org,2002:python/object/apply:os.system'\n"),
    ("any.yaml", "max_length: 9", "error: `any.yaml`: more than one trainer could read this\n  say which: `--trainer sft`, `--trainer dpo`, `--trainer kto` or\n  `--trainer reward`\n"),
    ("training_args.bin", "", "error: `training_args.bin`: a pickle, which could run code, is never read\n  write the config as JSON (`args.to_json_string()`), or give the script\n"),
    ("absent.yaml", None, "error: `absent.yaml`: no such file\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE, ids=[row[0] for row in UNREADABLE])
def test_a_file_that_cannot_be_read(memcfg, name, content, message):
    if content is not None:
        Path(name).write_text(content, encoding="utf-8")
    assert memcfg("from-trl", name) == (2, "", message)


def test_each_argument_that_is_none_is_listed_and_the_rest_is_migrated(memcfg):
    Path("odd.yaml").write_text("packing: true\npackng: true\nlora_alfa: 8\nmax_length: long\n", encoding="utf-8")
    code, out, err = memcfg("from-trl", "odd.yaml", "--trainer", "sft", "-q")
    assert code == 1
    assert "packing=bfd" in out
    assert err == (
        "error: `packng`: no argument of `SFTConfig` (odd.yaml:2)\n  did you mean `packing`?\n"
        "error: `lora_alfa`: no argument of `SFTConfig` (odd.yaml:3)\n  did you mean `lora_alpha`?\n"
        "error: `max_length`: `long` is no whole number (odd.yaml:4)\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "error: `from-trl`: needs a file\n  write `memcfg from-trl CONFIG.json, CONFIG.yaml or SCRIPT.py`\n"),
        (("a.yaml", "--rows", "x"), "error: `--rows`: `x` is no whole number above 0\n"),
        (("a.yaml", "--rows"), "error: `--rows`: needs a value\n"),
        (("a.yaml", "--multirun"), "error: `--multirun`: `from-trl` does not read this flag\n"),
    ],
)
def test_words_that_are_wrong(memcfg, words, message):
    assert memcfg("from-trl", *words) == (2, "", message)


def test_neither_torch_nor_trl_is_imported(python, tmp_path):
    (tmp_path / "dpo.yaml").write_text("beta: 0.3\nmodel_name_or_path: org/model", encoding="utf-8")
    code = (
        "import sys; from memcfg.cli import main; main(['from-trl', 'dpo.yaml', '--trainer', 'dpo', '-q']);"
        "print([m for m in ('torch', 'transformers', 'trl', 'datasets') if m in sys.modules])"
    )
    assert python(code, tmp_path).splitlines()[-1] == "[]"

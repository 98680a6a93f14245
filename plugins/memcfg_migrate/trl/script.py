"""A Python file that trains with TRL, read as text. Nothing in it is run.

Found are the calls of TRL's config classes, of `LoraConfig`, `BitsAndBytesConfig`, `from_pretrained` and
`load_dataset`, and what is handed to the trainer. Arguments that are no literals are listed as not read."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from memcfg import Problem, RequestError
from memcfg_migrate.literals import NotWritten, once_bound, source, step_by_step, value
from memcfg_migrate.reading import text_of
from memcfg_migrate.said import Given, Source, Unread
from memcfg_migrate.trl.trainers import CALL, TRAINERS

CONFIGS: Final = {t.config: t.name for t in TRAINERS.values()}
TRAINER_CLASSES: Final = {t.trainer: t.name for t in TRAINERS.values()}
PLAIN: Final = "TrainingArguments"
BESIDE: Final = {"LoraConfig": ("r",), "BitsAndBytesConfig": (), "load_dataset": ("path", "name")}
"""Calls whose arguments are read, with the names of their first positional ones."""
CONFIG_ARGUMENT: Final = "args"
HANDED: Final = {arg.name for arg in CALL}
PARSERS: Final = ("TrlParser", "HfArgumentParser")


def read(path: Path, chosen: str | None) -> Source:
    """What the file says. `chosen`: of several trainers, the one the user named."""
    text = text_of(path)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise RequestError(Problem(f"no Python: {error.msg}", key=where)) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise RequestError(Problem(f"no Python that can be read: {error}", key=str(path))) from error
    return Script(path, tree).source(chosen)


class Script:
    """One parsed file."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.names = once_bound(tree)
        self.changed = step_by_step(tree)
        self.calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.tree = tree
        self.out = Source(str(path))
        self.loads = False

    def source(self, chosen: str | None) -> Source:
        config, trainer = self._config(chosen), self._call(TRAINER_CLASSES, chosen)
        parsed = next((c for c in self.calls if _called(c) in PARSERS), None)
        if config is None and (trainer is None or parsed is not None):
            raise RequestError(self._nothing(parsed))
        self.out.trainers = tuple(filter(None, (_called(config), _called(trainer))))
        if config is not None:
            self._arguments(config, "", ("output_dir",))
            self._assigned_later(config)
        if trainer is not None:
            self._handed(trainer)
        self._beside()
        return self.out

    def _config(self, chosen: str | None) -> ast.Call | None:
        return self._call(CONFIGS, chosen) or self._call({PLAIN: ""}, None)

    def _call(self, classes: dict[str, str], chosen: str | None) -> ast.Call | None:
        """The one call of these classes. Raises `RequestError` where there are several."""
        found = [c for c in self.calls if _called(c) in classes and (c.args or c.keywords)]
        found = [c for c in found if chosen in (None, classes[_called(c) or ""])] or ([] if chosen else found)
        kinds = {_called(c) for c in found}
        if len(kinds) > 1:
            names = sorted(classes[kind or ""] for kind in kinds)
            fix = f"say which: {', '.join(f'`--trainer {name}`' for name in names)}"
            raise RequestError(
                Problem(
                    f"holds {' and '.join(f'`{k}`' for k in sorted(filter(None, kinds)))}", key=str(self.path), fix=fix
                )
            )
        if len(found) > 1:
            lines = " and ".join(str(c.lineno) for c in found)
            text = f"`{_called(found[0])}` is made in lines {lines}: one file is one run"
            raise RequestError(Problem(text, key=str(self.path), fix="leave one of them in a copy of the file"))
        return found[0] if found else None

    def _nothing(self, parsed: ast.Call | None) -> Problem:
        if parsed is not None:
            text = f"the config is read from the command line (line {parsed.lineno}), not written here"
            return Problem(
                text, key=str(self.path), fix="give the YAML file that the script is started with (`--config`)"
            )
        text = "no config of TRL is made here"
        return Problem(text, key=str(self.path), fix=f"looked for {', '.join(f'`{name}(...)`' for name in CONFIGS)}")

    # -------------------------------------------------------------------------------------------- arguments

    def _arguments(self, call: ast.Call, prefix: str, positional: tuple[str, ...], label: str = "") -> None:
        for name, node in zip(positional, call.args, strict=False):
            self._argument(prefix + name, label + name, node)
        for node in call.args[len(positional) :]:
            self._not_read(prefix, label or _called(call) or "", node)
        for word in call.keywords:
            if word.arg is not None:
                self._argument(prefix + word.arg, label + word.arg, word.value)
            elif not self._spread(word.value, prefix, label):
                self._not_read(f"{prefix}**", f"{label}**", word.value)

    def _spread(self, node: ast.expr, prefix: str, label: str) -> bool:
        """Arguments of a mapping that is written in the file (`**kwargs`)."""
        try:
            found = value(node, self.names)
        except NotWritten:
            return False
        if not isinstance(found, dict):
            return False
        for name, item in found.items():
            self.out.given[prefix + str(name)] = Given(label + str(name), item, self._at(node))
        return True

    def _argument(self, name: str, label: str, node: ast.expr) -> None:
        try:
            self.out.given[name] = Given(label, value(node, self.names), self._at(node))
        except NotWritten:
            if not self._made_of_call(name, node):
                self._not_read(name, label, node)

    def _made_of_call(self, name: str, node: ast.expr) -> bool:
        """Whether an argument is one of the calls that are read by themselves."""
        call = self._resolved(node)
        return (isinstance(call, ast.Call) and _called(call) in (*BESIDE, *CONFIGS, PLAIN)) or name == CONFIG_ARGUMENT

    def _not_read(self, name: str, label: str, node: ast.expr) -> None:
        self.out.unread.append(Unread(name, label, source(node), self._at(node)))

    def _at(self, node: ast.expr) -> str:
        return f"{self.path}:{node.lineno}"

    def _resolved(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for, over several steps."""
        for _ in range(20):
            if not (isinstance(node, ast.Name) and node.id in self.names):
                break
            node = self.names[node.id]
        return node

    def _assigned_later(self, config: ast.Call) -> None:
        """`args.max_length = 512` after the config was made."""
        variables = {name for name, node in self.names.items() if node is config}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id in variables
                ):
                    self._argument(target.attr, target.attr, node.value)

    # -------------------------------------------------------------------------------------- what stands beside

    def _handed(self, call: ast.Call) -> None:
        """Arguments of the trainer: the model and the data lead to their own calls."""
        words = {word.arg: word.value for word in call.keywords if word.arg is not None}
        words |= dict(zip(("model",), call.args, strict=False))
        for name, node in words.items():
            if name == "model":
                self._model(node, "from_pretrained.")
            elif name == "train_dataset":
                self._data(node)
            elif name == "eval_dataset":
                self._held_out(node)
            elif name in ("ref_model", "teacher_model"):
                self._other_model(name, node)
            elif name not in (CONFIG_ARGUMENT, "peft_config", "quantization_config"):
                self._own(name, node, _called(call) or "")

    def _own(self, name: str, node: ast.expr, trainer: str) -> None:
        """An argument of the trainer's own. Older releases took some of the config's there."""
        if isinstance(node, ast.Constant) and node.value is None:
            return
        if name in {arg.name for arg in TRAINERS[TRAINER_CLASSES[trainer]].args()}:
            self._argument(name, name, node)
            text = f"removed from `{trainer}`: it is an argument of the config now"
            self.out.remarks.append(("there", f"`{name}` ({self._at(node)})", text))
        else:
            known = f"Trainer.{name}" in HANDED
            self.out.given[f"Trainer.{name}"] = Given(
                name if known else f"{trainer}.{name}", source(node), self._at(node)
            )

    def _model(self, node: ast.expr, prefix: str) -> None:
        found = self._resolved(node)
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            self.out.given[f"{prefix}path"] = Given("model", found.value, self._at(found))
        elif isinstance(found, ast.Call) and _called(found) == "from_pretrained":
            self._arguments(found, prefix, ("path",), "from_pretrained.")
            given = self.out.given.pop(f"{prefix}pretrained_model_name_or_path", None)
            if given is not None:
                self.out.given[f"{prefix}path"] = given
        else:
            self._not_read(f"{prefix}path", "model", found or node)

    def _other_model(self, name: str, node: ast.expr) -> None:
        found = self._resolved(node)
        first = (
            found.args[0]
            if isinstance(found, ast.Call) and _called(found) == "from_pretrained" and found.args
            else found
        )
        if isinstance(first, ast.Constant) and first.value is None:
            return
        try:
            self.out.given[f"Trainer.{name}"] = Given(name, value(first, self.names), self._at(node))  # type: ignore[arg-type]
        except NotWritten:
            self._not_read(f"Trainer.{name}", name, found or node)

    def _data(self, node: ast.expr) -> None:
        """The rows: a `load_dataset` call, perhaps a split of it, perhaps changed by methods."""
        found, split, changes = self._loaded(node)
        if found is None:
            self._not_read("load_dataset.path", "train_dataset", node)
            return
        self.loads = True
        if split is not None:
            self.out.given["load_dataset.split"] = Given("split", split, self._at(node))
        self._arguments(found, "load_dataset.", BESIDE["load_dataset"], "load_dataset.")
        for change in changes:
            text = (
                "rows are changed by code, which is not read: save them as JSON Lines and name the file in `data.path`"
            )
            self.out.remarks.append(("open", change, text))

    def _held_out(self, node: ast.expr) -> None:
        found, split, _ = self._loaded(node)
        word = next((w.value for w in found.keywords if w.arg == "split"), None) if found is not None else None
        name = split if word is None else getattr(word, "value", None)
        if isinstance(name, str):
            self.out.given["load_dataset.eval_split"] = Given("eval_dataset", name, self._at(node))
        elif not (isinstance(node, ast.Constant) and node.value is None):
            self._not_read("load_dataset.eval_split", "eval_dataset", node)

    def _loaded(self, node: ast.expr) -> tuple[ast.Call | None, str | None, list[str]]:
        """The `load_dataset` call behind an expression, the split that is taken of it, and what changes its rows."""
        found, split, changes = self._resolved(node), None, []
        for _ in range(20):
            if isinstance(found, ast.Name) and found.id in self.changed:
                found, steps = self.changed[found.id]
                changes += [f"`{source(step)}` ({self._at(step)})" for step in steps]
            if isinstance(found, ast.Subscript) and isinstance(found.slice, ast.Constant):
                split = str(found.slice.value)
                found = self._resolved(found.value)
            elif (
                isinstance(found, ast.Call)
                and isinstance(found.func, ast.Attribute)
                and _called(found) != "load_dataset"
            ):
                changes.append(f"`.{found.func.attr}(...)` ({self._at(found)})")
                found = self._resolved(found.func.value)
            else:
                break
        loads = isinstance(found, ast.Call) and _called(found) == "load_dataset"
        return (found if loads else None), split, changes  # type: ignore[return-value]

    def _beside(self) -> None:
        """The calls of which a file holds one."""
        for name, positional in BESIDE.items():
            found = [call for call in self.calls if _called(call) == name]
            if name == "load_dataset" and (self.loads or any(u.label == "train_dataset" for u in self.out.unread)):
                continue
            if len(found) == 1:
                prefix = f"{name}."
                if name == "LoraConfig" and not found[0].keywords:
                    self.out.given["LoraConfig.task_type"] = Given("LoraConfig", None, self._at(found[0]))
                self._arguments(found[0], prefix, positional, prefix)
            for call in found if len(found) > 1 else ():
                self._not_read(name, name, call)


def _called(node: ast.expr | None) -> str | None:
    """The last part of what is called: `trl.SFTConfig(...)` and `SFTConfig(...)` are the same."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None

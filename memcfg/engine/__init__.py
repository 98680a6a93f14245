"""The engine: builds what the plan says, trains it with one step function, and proves what really ran.

    Plan + Hooks --build--> Run --EngineTrainer, update--> Report      (execute.train does all of it)

It imports the plan and the forms of a batch; it knows no technique, no solver and no Hydra. What a technique does reaches
it through the hooks alone."""

import logging

# Where bitsandbytes is installed, importing Transformers' Trainer imports it, and on a CPU it then complains that a kernel
# for 4-bit weights cannot be downloaded, whether or not anything uses one.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
# Likewise DeepSpeed, whoever uses it: that there is no GPU the plan says. It sets the level of its logger when imported.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)

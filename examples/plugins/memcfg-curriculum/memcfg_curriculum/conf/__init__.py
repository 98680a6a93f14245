"""Config groups of the curriculum plugin, found by Hydra as `pkg://memcfg_curriculum.conf`."""

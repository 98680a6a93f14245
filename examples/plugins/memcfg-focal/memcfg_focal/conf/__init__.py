"""Config groups of the focal plugin, found by Hydra as `pkg://memcfg_focal.conf`."""

"""What memcfg says of the host without loading torch: tried against a driver library made for the test."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memcfg import RunError
from memcfg.core.facts import world_size

# Two devices: number 0 of compute capability 9.0, number 1 of 8.6.
DRIVER = """
#include <string.h>
static const char *UUID[] = {"GPU-aaaa-0000", "GPU-bbbb-1111"};
int nvmlInit_v2(void) { return FAILS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { if (i > 1) return 2; *h = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetUUID(void *h, char *text, unsigned n) { strncpy(text, UUID[(long)h - 1], n); return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) {
    for (int i = 0; i < 2; i++) if (!strcmp(u, UUID[i])) { *h = (void *)(long)(i + 1); return 0; }
    return 6;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    *major = (long)h == 1 ? 9 : 8; *minor = (long)h == 1 ? 0 : 6; return 0;
}
"""

PROBE = """
import json, os, sys
from memcfg.core.facts import device_capability, device_type
sys.stdout.write("[")
for at, (site, visible) in enumerate(json.loads(sys.argv[1])):
    sys.stdout.write("," if at else "")
    sys.stdout.flush()
    if os.fork() == 0:  # a host of its own: only the driver is the same
        sys.path.insert(0, site)
        os.environ.update({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        sys.stdout.write(json.dumps([device_type({}), device_capability({}), "torch" in sys.modules]))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
print("]")
"""
"""Asks the probes on every host that the words name: a folder with a build of torch, and what devices are to be seen."""


@pytest.fixture(scope="module")
def drivers(tmp_path_factory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("drivers")
    (folder / "nvml.c").write_text(DRIVER)
    for name, fails in (("works", 0), ("fails", 9)):
        (folder / name).mkdir()
        library = folder / name / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", f"-DFAILS={fails}", "-o", library, folder / "nvml.c"], check=True)
    (folder / "none").mkdir()
    return folder


HOSTS = [
    # driver, build of torch, visible devices, device, capability, because
    ("works", "2.11.0+cu128", None, "cuda", 90, "all is there"),
    ("works", "2.11.0", None, "cuda", 90, "the wheel of the package index is built for CUDA"),
    ("works", "2.13.0+cpu", None, "cpu", 0, "torch cannot use the GPU"),
    ("works", "2.13.0+rocm6.4", None, "cpu", 0, "nor can this one use an NVIDIA GPU"),
    ("fails", "2.11.0", None, "cpu", 0, "the driver does not start"),
    ("works", "2.11.0", "", "cpu", 0, "the user hides all devices"),
    ("works", "2.11.0", "-1", "cpu", 0, "the user hides all devices"),
    ("works", "2.11.0", "1,0", "cuda", 86, "the first visible device counts"),
    ("works", "2.11.0", "2", "cpu", 0, "there is no such device"),
    ("works", "2.11.0", "GPU-bbbb-1111", "cuda", 86, "a device by its UUID"),
    ("works", "2.11.0", "GPU-bb", "cuda", 86, "a device by the beginning of its UUID"),
    ("works", "2.11.0", "GPU-cc", "cpu", 0, "there is no such device"),
    ("works", "2.11.0", "NoDevFiles", "cpu", 0, "what some schedulers write to hide all"),
]


@pytest.fixture(scope="module")
def probed(drivers: Path) -> dict:
    """What the probes say on each host: a process for each driver, which forks one for each host."""
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    found = {}
    for driver in sorted({host[0] for host in HOSTS}):
        hosts = [(torch, visible) for has, torch, visible, *_ in HOSTS if has == driver]
        words = json.dumps([(site_of(drivers, torch), visible) for torch, visible in hosts])
        done = subprocess.run(
            [sys.executable, "-c", PROBE, words], env=environment | {"LD_LIBRARY_PATH": str(drivers / driver)},
            cwd=drivers, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found |= {(driver, *host): said for host, said in zip(hosts, json.loads(done.stdout), strict=True)}
    return found


def site_of(drivers: Path, torch: str) -> str:
    """A folder with what is installed of this build of torch."""
    site = drivers / f"torch-site-{torch}"
    info = site / f"torch-{torch}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    return str(site)


@pytest.mark.parametrize(("driver", "torch", "visible", "device", "capability", "because"), HOSTS)
def test_the_device(probed, driver, torch, visible, device, capability, because):
    assert probed[driver, torch, visible] == [device, capability, False], because


@pytest.mark.parametrize(("stated", "size"), [(None, 1), ("", 1), ("8", 8)])
def test_the_launcher_states_the_world_size(monkeypatch, stated, size):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if stated is not None:
        monkeypatch.setenv("WORLD_SIZE", stated)
    assert world_size({}) == size


@pytest.mark.parametrize("stated", ["0", "-2", "two", "1.5"])
def test_a_senseless_world_size_is_refused(monkeypatch, stated):
    monkeypatch.setenv("WORLD_SIZE", stated)
    with pytest.raises(RunError, match="`WORLD_SIZE` is"):
        world_size({})

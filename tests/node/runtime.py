"""What NVIDIA's container runtime does: at `create` it brings the driver's library and devices into the container.

Copied beside the node with its paths filled in, and run by containerd in place of runc, which it becomes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HOME = Path("@HOME@")
GPUS = json.loads("""@GPUS@""")
LIBRARIES = "usr/lib64"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def visible(environment: dict[str, str]) -> list[str]:
    """The devices that the container asks for, by UUID; they are named by UUID or by index."""
    asked = environment.get(VISIBLE, "")
    if asked in ("", "void", "none"):
        return []
    return GPUS if asked == "all" else [GPUS[int(each)] if each.isdigit() else each for each in asked.split(",")]


def prepare(bundle: Path) -> None:
    """Bring library and devices into the root file system of a container."""
    spec = json.loads((bundle / "config.json").read_text())
    environment = dict(each.split("=", 1) for each in spec["process"].get("env", ()) if "=" in each)
    devices = visible(environment)
    with (HOME / "logs/runtime.log").open("a") as log:
        log.write(json.dumps({"container": bundle.name, "args": spec["process"]["args"], "devices": devices}) + "\n")
    unknown = [each for each in devices if each not in GPUS]
    if unknown:
        sys.exit(f"nvidia-container-cli: device error: {unknown[0]}: unknown device")
    if not devices or (HOME / "no-nvml").exists():
        return
    root = bundle / spec["root"]["path"]
    for directory in (LIBRARIES, "etc", "run"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    shutil.copy(HOME / "libnvidia-ml.so.1", root / LIBRARIES)
    subprocess.run(["/sbin/ldconfig", "-r", root, f"/{LIBRARIES}"], capture_output=True)
    (root / "run/fake-gpus").write_text("".join(f"{each}\n" for each in devices))


if __name__ == "__main__":
    words = sys.argv[1:]
    if "create" in words:
        prepare(Path(words[words.index("--bundle") + 1] if "--bundle" in words else os.getcwd()))
    os.execvp("runc", ["runc", *words])

"""A command in the image of `make images`, run by runc as a pod runs it: read-only, with its volumes, as its user.

    python -m tests.support.container IMAGE VOLUME [ARGUMENT …]
    python -m tests.support.container IMAGE VOLUME --entrypoint PROGRAM [ARGUMENT …]

VOLUME is the folder that is /data inside; another volume of the image is empty. The process becomes runc, so that signals and the
exit code are the command's. The network and the `RETRY_…` variables are those of whoever starts it; a file that RETRY_POLICIES
names is there under the same path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from release.image_store import store
from tests.support.process import ROOT

IMAGES = ROOT / "build" / "images"
PROCESS_FILE = "container.pid"
DATA = "/data"
PREFIX = "container-of-a-test-"


def image_config(name: str) -> dict[str, Any]:
    """Read what an image says of itself: User, Env, Entrypoint, Cmd, Volumes, Labels."""
    told = json.loads(_buildah("inspect", "--type", "image", name))
    config: dict[str, Any] = told["OCIv1"]["config"]
    return config


def remove_containers() -> None:
    """Remove what `main` left, and nothing that a build has in work."""
    names = [each["containername"] for each in json.loads(_buildah("containers", "--json")) or ()]
    for name in names:
        if name.startswith(PREFIX):
            _buildah("rm", name)


def main() -> None:
    """Become runc, which runs the command."""
    name, volume, *arguments = sys.argv[1:]
    bundle = Path(tempfile.mkdtemp(prefix=PREFIX))
    root = _buildah("mount", _buildah("from", "--pull-never", "--name", bundle.name, name).strip()).strip()
    told = specification(image_config(name), Path(root).resolve(), Path(volume), arguments)
    (bundle / "config.json").write_text(json.dumps(told))
    process = Path(volume).with_suffix(f".{PROCESS_FILE}")
    runc = ["runc", f"--root={bundle / 'state'}"]
    os.execvp(runc[0], [*runc, "run", f"--bundle={bundle}", f"--pid-file={process}", bundle.name])


def specification(image: dict[str, Any], root: Path, volume: Path, arguments: list[str]) -> dict[str, Any]:
    """Make what runc is told (config.json of the OCI runtime specification)."""
    entered = arguments[:1] == ["--entrypoint"]
    user, group = map(int, image["User"].split(":"))
    volume.mkdir(exist_ok=True)
    # As Kubernetes does by fsGroup.
    os.chown(volume, user, group)
    given = {name: value for name, value in os.environ.items() if name.startswith("RETRY_") and name != "RETRY_DATA_DIR"}
    # An engine gives the names of hosts, as well.
    files = ["/etc/hosts", *(given[name] for name in ("RETRY_POLICIES",) if name in given)]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group}, "cwd": "/", "noNewPrivileges": True,
            "args": arguments[1:] if entered else [*image["Entrypoint"], *(arguments or image["Cmd"])],
            "env": [*image["Env"], *(f"{name}={value}" for name, value in given.items())],
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            *(_scratch(inside) for inside in image["Volumes"] if inside != DATA),
            {"destination": DATA, "type": "bind", "source": str(volume), "options": ["rbind", "rw"]},
            *map(_bound, files),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }  # fmt: skip


def _scratch(inside: str) -> dict[str, Any]:
    return {"destination": inside, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=1777"]}


def _bound(file: str) -> dict[str, Any]:
    return {"destination": file, "type": "bind", "source": file, "options": ["bind", "ro"]}


def _buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *store(IMAGES), *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()

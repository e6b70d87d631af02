"""A real NFS server with two clients on one machine, in a User-Mode Linux guest: no kernel support of the host is needed.

    python tests/nfs/lab.py test                                    the scenarios on every kind of mount (`make test-nfs`)
    python tests/nfs/lab.py build                                   once, as root on Debian: a minute, half a gigabyte
    python tests/nfs/lab.py run --version 4.2 -- COMMAND …          COMMAND sees this machine's files, and $NFS_A, $NFS_B

The guest has one processor: it shows what happens, not how fast.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = Path(os.environ.get("SPOOL_CHECK_NFS_LAB", HERE.parents[1] / ".nfs-lab"))
_INCLUDE = "python3-minimal,libpython3-stdlib,nfs-kernel-server,nfs-common,rpcbind,kmod,iproute2,procps"


def build() -> None:
    """Fetch the kernel and make the guest's root; does nothing where both are there."""
    if (HOME / "built").exists():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit("the NFS lab needs root on Debian")
    packages = HOME / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "download", "-qq", "user-mode-linux", "debootstrap"], cwd=packages, check=True)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(HOME / package.name.partition("_")[0])], check=True)
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(targets, capture_output=True, text=True, check=True).stdout.split()
    mirror = next(address for address in listed if "security" not in address)
    release = next(
        line.partition("=")[2].strip('"')
        for line in Path("/etc/os-release").read_text().splitlines()
        if line.startswith("VERSION_CODENAME=")
    )
    bootstrap = HOME / "debootstrap"
    subprocess.run(
        [
            bootstrap / "usr/sbin/debootstrap",
            "--variant=minbase",
            f"--include={_INCLUDE}",
            release,
            HOME / "root",
            mirror,
        ],
        env={**os.environ, "DEBOOTSTRAP_DIR": str(bootstrap / "usr/share/debootstrap")},
        stdout=(HOME / "debootstrap.log").open("w"),
        check=True,
    )
    modules = next((HOME / "user-mode-linux/usr/lib/uml/modules").iterdir())
    shutil.copytree(modules, HOME / "root/usr/lib/modules" / modules.name, dirs_exist_ok=True)
    (HOME / "built").touch()


def run(command: list[str], *, version: str, options: str, size: str, memory: str, seconds: int) -> int:
    """Run a command in the guest; its exit status, 124 when it did not end in time."""
    shutil.copy(HERE / "guest_init.sh", HOME / "root/guest_init.sh")
    (HOME / "root/guest_init.sh").chmod(0o755)
    (HOME / "status").unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="spool-check-nfs-") as disk:
        subprocess.run(["truncate", "-s", size, disk.name], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", disk.name], check=True)
        job = f"NFS_A={HOME}/mounts/a NFS_B={HOME}/mounts/b {shlex.join(command)}"
        # The kernel's command line knows no quotes: the job goes into a file.
        (HOME / "job.sh").write_text(f"cd {shlex.quote(os.getcwd())}\n{job}\n")
        words = [
            HOME / "user-mode-linux/usr/bin/linux.uml", f"mem={memory}", f"ubd0={disk.name}", "root=/dev/root",
            "rootfstype=hostfs", f"rootflags={HOME / 'root'}", "rw", "init=/guest_init.sh", f"JOB=/bin/sh@{HOME}/job.sh",
            f"LAB={HOME}", f"VERS={version}", f"OPTS={options}", "con=null", "con0=null,fd:1", "quiet",
        ]  # fmt: skip
        try:
            subprocess.run(
                list(map(str, words)),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": "/dev/shm"},
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return 124
    status = HOME / "status"
    return int(status.read_text()) if status.exists() else 124


# Version, further options, size of the export, scenarios.
MOUNTS = (
    ("4.2", "", "1G", "flow crash pause killed_training"),
    ("3", "", "1G", "flow crash pause killed_training"),
    ("3", "nolock", "1G", "flow crash pause"),
    ("4.2", "lookupcache=positive", "1G", "flow crash"),
    ("4.2", "", "24M", "full"),
    ("3", "", "24M", "full"),
)


def test() -> int:
    """Every scenario on every kind of mount; 1 when one fails."""
    failed = 0
    for version, options, size, names in MOUNTS:
        print(f"== NFS {version} {options or 'with defaults'}, {size}", flush=True)
        command = [sys.executable, str(HERE / "scenarios.py"), *names.split()]
        failed += run(command, version=version, options=options, size=size, memory="6G", seconds=900) != 0
    print(f"{failed} of {len(MOUNTS)} kinds of mount failed" if failed else "all passed")
    return 1 if failed else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run", "test"])
    parser.add_argument("--version", default="4.2", choices=["4.2", "4.0", "3"])
    parser.add_argument("--options", default="", help="further mount options, such as nolock")
    parser.add_argument("--size", default="1G", help="of the export")
    parser.add_argument("--memory", default="6G", help="of the guest")
    parser.add_argument("--seconds", type=int, default=900)
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    given, command = parser.parse_args(words[:cut]), words[cut + 1 :]
    build()
    if given.what == "build":
        return 0
    if given.what == "test":
        return test()
    if not command:
        parser.error("no command: give one after --")
    return run(
        command,
        version=given.version,
        options=given.options,
        size=given.size,
        memory=given.memory,
        seconds=given.seconds,
    )


if __name__ == "__main__":
    sys.exit(main())

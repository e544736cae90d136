"""Memory cgroups (v1; they need root), and page caches dropped, for measurements of offloading."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
import sys

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import CannotRun  # noqa: E402

CGROUPS = Path("/sys/fs/cgroup/memory")


class Cgroup:
    """A memory cgroup that commands can be started in."""

    def __init__(self, limit_bytes: int) -> None:
        self.folder = CGROUPS / f"hearth_offload_{os.getpid()}"
        try:
            self.folder.mkdir()
            (self.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        except OSError as error:
            raise CannotRun(f"no memory cgroup can be made: {error}") from error

    def wrap(self, command: list[str]) -> list[str]:
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    def highest_use(self) -> int:
        return int((self.folder / "memory.max_usage_in_bytes").read_text())


@contextlib.contextmanager
def cgroup(limit_bytes: int) -> Iterator[Cgroup]:
    group = Cgroup(limit_bytes)
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.folder.rmdir()


def drop_page_cache() -> None:
    """What earlier runs read is not there for the next one."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError as error:
        raise CannotRun(f"the page cache cannot be dropped: {error}") from error

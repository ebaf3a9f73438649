"""What a calibration is told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from hf_decentral.bench import report
from hf_decentral.bench.settings import Settings as BenchSettings
from hf_decentral.bench.settings import Workload, read, told
from hf_decentral.errors import out_of_range
from hf_decentral.errors.calibration import flags_and_script, no_script_named, no_such_folder

ABOUT = """Measure compute times and links, and write what plan reads. Under accelerate launch or torchrun the
workers of that run are measured, with a named model or with the script behind --, which is stopped after some
steps. Without a launcher the workers are started here, on loopback or on shaped network namespaces."""

LEAST_SECONDS, MOST_SECONDS = 2.0, 600.0
_NODE_VARIABLES = ("GROUP_RANK", "NODE_RANK")


@dataclass
class Settings(Workload):
    """All flags, as they were typed."""

    seconds: float = field(
        default=40.0, metadata=told("about how long to measure, without starting and the first steps")
    )
    out: str = field(default="cluster.json", metadata=told("write the result there"))
    force: bool = field(
        default=False, metadata=told("write it also where repeats differ too much, with its uncertainty")
    )

    def check(self) -> None:
        """See that all of it can be meant, as far as that is known without workers.

        Raises:
            SettingsError: something that cannot.
        """
        super().check()
        if not LEAST_SECONDS <= self.seconds <= MOST_SECONDS:
            expected = f"a number from {LEAST_SECONDS:g} to {MOST_SECONDS:g}"
            raise out_of_range("--seconds", self.seconds, expected, "40 is the default")

    @property
    def path(self) -> Path:
        """The file to write."""
        return Path(self.out)

    def benchmark(self) -> BenchSettings:
        """The same workload, as the benchmark trains it."""
        return BenchSettings(**{each.name: getattr(self, each.name) for each in fields(Workload)})


def parse(words: Sequence[str]) -> tuple[Settings, list[str]]:
    """The settings of a command line, and the script behind ``--`` with its arguments.

    Raises:
        SettingsError: something that cannot be meant.
    """
    words = list(words)
    at = words.index("--") if "--" in words else len(words)
    settings = read(Settings, words[:at], "hf-decentral calibrate", ABOUT)
    script = words[at + 1 :]
    if at < len(words):
        plain = Settings()
        own = [each.name for each in fields(Workload)]
        given = [f"--{name}" for name in own if getattr(settings, name) != getattr(plain, name)]
        if given:
            raise flags_and_script(given)
        if not script or script == ["-m"]:
            raise no_script_named()
    return settings, script


def check_out(path: Path) -> None:
    """See before anything is measured that the result can be written; other hosts than worker 0's need not.

    Raises:
        SettingsError: it cannot.
    """
    if next((os.environ[name] for name in _NODE_VARIABLES if name in os.environ), "0") != "0":
        return
    if not path.parent.is_dir():
        raise no_such_folder(str(path), str(path.parent))
    report.check_writable(path)

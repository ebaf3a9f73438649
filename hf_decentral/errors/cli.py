"""Errors that the command line meets."""

from __future__ import annotations

from pathlib import Path

from hf_decentral.errors.base import DataError, LaunchError, SettingsError, sentence


def not_writable(path: Path, cause: str) -> SettingsError:
    """A result that could not be written."""
    return SettingsError(
        sentence(
            f"{str(path)!r} cannot be written ({cause})", "expected a file that can be made", "name another"
        )
    )


def no_launch_files(looked: Path) -> LaunchError:
    """The script or the launch file is not where the package or the repository has it."""
    return LaunchError(
        sentence(
            f"{str(looked)!r} does not exist",
            "the demo runs scripts/pretrain_gpt2.py, which comes with the wheel and with the repository",
            "install the wheel again, or run the demo from a clone of the repository",
        )
    )


def run_failed(label: str, code: int, log: Path) -> LaunchError:
    """A training run ended with an error of its own."""
    return LaunchError(
        sentence(
            f"the run {label!r} ended with exit code {code}",
            f"it ends with 0 and writes summary.json; all it said is in {str(log)!r}",
            "mend what it says above, or run `hf-decentral doctor`, which examines this machine",
        )
    )


def no_metrics(folder: Path, cause: str) -> DataError:
    """A folder that no run has written to, or whose files are damaged."""
    return DataError(
        sentence(
            f"{str(folder)!r} holds no finished run ({cause})",
            "expected summary.json and metrics.jsonl, as scripts/pretrain_gpt2.py writes them",
            "name the --output_dir of a run that has ended",
        )
    )


def no_matplotlib() -> SettingsError:
    """A plot was asked for, and there is nothing to draw it with."""
    return SettingsError(
        sentence(
            "matplotlib is not installed",
            "plots are drawn with it",
            "pip install 'hf-decentral[report]', or leave the plot out",
        )
    )


def no_matrix_file(path: Path, cause: str) -> DataError:
    """A file with the weights or the edges of a topology that cannot be read."""
    return DataError(
        sentence(
            f"{str(path)!r} cannot be read ({cause})",
            "expected weights in .json, .csv, .npy or .pt, or two workers a line in .edgelist",
            "write it again, for example with numpy.savetxt(file, weights, delimiter=',')",
        )
    )


def name_or_matrix(name: str | None) -> SettingsError:
    """Both a name and a file were given for a topology, or neither."""
    return SettingsError(
        sentence(
            "no topology was given" if name is None else f"both {name!r} and --matrix were given",
            "expected a name, or a file with weights as --matrix",
            "`hf-decentral topology list` shows the names",
        )
    )

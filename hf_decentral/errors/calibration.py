"""Errors that measuring a cluster meets."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors.base import LaunchError, SettingsError, sentence


def too_noisy(disturbed: Sequence[str]) -> LaunchError:
    """What was measured differs too much from one repeat to the next."""
    return LaunchError(
        sentence(
            f"the measurement was disturbed: {'; '.join(disturbed)}",
            "repeats must agree before a plan can be made of them",
            "stop what else runs on these hosts and their network, and calibrate again, with --seconds 90 "
            "for more repeats; --force writes it anyway, with its uncertainty",
        )
    )


def too_few_steps(script: str, steps: int, needed: int) -> LaunchError:
    """The user's script ended before there was enough to measure."""
    return LaunchError(
        sentence(
            f"{script} ended after {steps} optimizer steps that were timed",
            f"{needed} are needed",
            "let it train for longer (more steps or epochs, more data, not from the end of a finished run); "
            "it is stopped as soon as there are enough",
        )
    )


def mostly_evaluating(workers: Sequence[int], needed: int) -> LaunchError:
    """The model was evaluated in so many steps that hardly any could be timed."""
    return LaunchError(
        sentence(
            f"the script evaluated its model in so many of its first steps that fewer than {needed} could be "
            f"timed on worker{'s' * (len(workers) > 1)} {', '.join(map(str, workers))}",
            f"{needed} steps without an evaluation are needed",
            "let it evaluate every hundred steps or not at all while it is measured",
        )
    )


def no_such_folder(path: str, folder: str) -> SettingsError:
    """The folder of the result is not there."""
    return SettingsError(
        sentence(
            f"--out {path} was given, and there is no folder {folder!r}",
            "expected a file in a folder that exists",
            "make the folder, or name another file",
        )
    )


def flags_and_script(flags: Sequence[str]) -> SettingsError:
    """A script was given, and also what should be trained in its place."""
    return SettingsError(
        sentence(
            f"{', '.join(flags)} and a script behind -- were given",
            "either the script is measured, in the run that a launcher has started, or a named model",
            "leave one of the two out",
        )
    )


def no_script_named() -> SettingsError:
    """Two dashes with nothing behind them."""
    return SettingsError(
        sentence(
            "nothing stands behind --",
            "expected a script with its arguments, as in -- train.py --output_dir out",
            "name the script, or leave -- out to measure a named model",
        )
    )

"""Errors about how a run was started, and about an Accelerator that cannot be decentralized."""

from __future__ import annotations

from hf_decentral.errors.base import LaunchError, ParameterError, SettingsError, sentence


def alone_in_a_world(world: str) -> LaunchError:
    """A launcher started several processes, and Accelerate sees one: each would train by itself."""
    return LaunchError(
        sentence(
            f"the launcher started {world} processes (WORLD_SIZE), but this Accelerator sees one process",
            f"one run with {world} workers; as it is, {world} separate trainings would run",
            "on a machine without accelerator make it Accelerator(cpu=True), or set "
            "ACCELERATE_USE_CPU=true in the environment before the script starts",
        )
    )


def sharded(kind: str) -> LaunchError:
    """DeepSpeed, FSDP and their like own the parameters themselves."""
    return LaunchError(
        sentence(
            f"this Accelerator shards or moves the parameters itself ({kind})",
            "every worker of a decentralized run holds the whole model on one device",
            "start without it (distributed_type MULTI_GPU or MULTI_CPU, no parallelism_config), or choose "
            "topology='allreduce' to train as without this plugin",
        )
    )


def attached_twice(what: str) -> LaunchError:
    """attach() was called a second time."""
    return LaunchError(
        sentence(
            f"this {what} is attached already",
            "one plugin for one Accelerator, attached once",
            "make a new DecentralizedPlugin for a new Accelerator",
        )
    )


def attached_late(prepared: int) -> LaunchError:
    """attach() after prepare(): the model is wrapped already."""
    return LaunchError(
        sentence(
            f"this Accelerator has prepared {prepared} models and optimizers already",
            "the plugin is attached before anything is prepared, since prepare() wraps models for All-Reduce",
            "call attach(accelerator) right after Accelerator(...)",
        )
    )


def not_attached(what: str) -> LaunchError:
    """The plugin was used before attach()."""
    return LaunchError(
        sentence(
            f"{what} was used before attach()",
            "a plugin that knows its Accelerator",
            "call plugin.attach(accelerator) right after Accelerator(...)",
        )
    )


def not_an_accelerator(given: object) -> LaunchError:
    """attach() got something else."""
    return LaunchError(
        sentence(
            f"attach() was given a {type(given).__name__}",
            "expected an accelerate.Accelerator",
            "this plugin works with Accelerate only: make an Accelerator and call plugin.attach(accelerator)",
        )
    )


def model_not_prepared() -> ParameterError:
    """An optimizer takes a step, and no prepared model has its parameters."""
    return ParameterError(
        sentence(
            "an optimizer was prepared, but no prepared model has its parameters",
            "the optimizer gossips from prepare() on, and needs its model there",
            "pass both to one call: model, optimizer = accelerator.prepare(model, optimizer)",
        )
    )


def nothing_gossips() -> ParameterError:
    """The consensus was asked for before anything was prepared."""
    return ParameterError(
        sentence(
            "no prepared optimizer trains this model",
            "the consensus exists for models whose optimizer was prepared",
            "call accelerator.prepare(model, optimizer) first",
        )
    )


def uneven_inputs() -> LaunchError:
    """join_uneven_inputs() works on DistributedDataParallel only."""
    return LaunchError(
        sentence(
            "join_uneven_inputs() was called in a decentralized run",
            "all workers take the same number of optimizer steps",
            "keep even_batches=True of the loaders (the default), or drop_last=True, or train a fixed "
            "number of steps",
        )
    )


def unreadable_config(path: str, why: str, named_by: str) -> SettingsError:
    """A configuration file that is missing or no mapping."""
    return SettingsError(
        sentence(
            f"{path} (named by {named_by}) cannot be used: {why}",
            "expected a YAML or JSON file that holds names and values",
            "mend the file or name another one",
        )
    )


def no_script(path: str, folder: str) -> LaunchError:
    """``hf_decentral.run`` was given a script that is not there."""
    return LaunchError(
        sentence(
            f"there is no file {path!r} (looked for from {folder!r})",
            "expected the script as after `python`, then its own arguments",
            "check the path; a module is named with -m: python -m hf_decentral.run -m package.module",
        )
    )


def no_module(name: str, folder: str) -> LaunchError:
    """``hf_decentral.run -m`` was given a module that is not there."""
    return LaunchError(
        sentence(
            f"there is no module {name!r}",
            "expected the name of a module that can be imported, with dots and without .py",
            f"check the name; modules are found as after `python -m`, first in {folder!r}",
        )
    )

"""Errors about other workers: lost ones, and ones that disagree."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors.base import LaunchError, MismatchError, PeerLost, sentence


def _workers(numbers: Sequence[int]) -> str:
    return f"worker{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _talk(round: int) -> str:
    return f"round {round}" if round >= 0 else "a talk of all workers (a mean, an evaluation, a decision)"


def peer_lost(
    lost: Sequence[int],
    waiting: int,
    round: int,
    waited_seconds: float | None,
    deadline_seconds: float | None,
    cause: str,
) -> PeerLost:
    """A wait that was not met: who did not send, in which round, and what the wire said."""
    known = waited_seconds is not None and deadline_seconds is not None
    waited = f"waited {waited_seconds:.1f} s of {deadline_seconds:g} s; " if known else ""
    return PeerLost(
        sentence(
            f"{_workers(lost)} did not answer worker {waiting} in {_talk(round)} ({waited}{cause})",
            "every worker takes part in every round",
            "look at the log of that worker for its own error, then resume all workers from the last "
            "checkpoint; if it was only slow, raise the deadline (--comm_timeout, seconds)",
        ),
        tuple(lost),
        round,
    )


def peer_ended(ended: Sequence[int], steps: int, waiting: int, round: int) -> PeerLost:
    """A worker that finished while another still waits for it: their data had different lengths."""
    return PeerLost(
        sentence(
            f"{_workers(ended)} ended after {steps} steps; worker {waiting} still waits for {_talk(round)}",
            "all workers take the same number of optimizer steps",
            "look at the log of that worker for an error with which it left; if there is none, give every "
            "worker equally many batches (even_batches or drop_last of the loader, or a fixed number of "
            "steps), and stop all of them at the same step",
        ),
        tuple(ended),
        round,
    )


def workers_disagree(subject: str, majority: str, others: dict[int, str]) -> MismatchError:
    """Workers that came with different models or settings.

    Args:
        subject: what they disagree on.
        majority: what most of them have.
        others: what each of the others has instead.
    """
    differing = "; ".join(f"worker {worker} has {what}" for worker, what in sorted(others.items()))
    return MismatchError(
        sentence(
            f"the workers disagree on {subject}: {differing}",
            f"all workers have what the others have, {majority}",
            "start every worker with the same code, the same data, the same model configuration and the same "
            "settings",
        )
    )


def other_worker_failed(problems: dict[int, str]) -> MismatchError:
    """Told to the workers that were fine themselves when another one could not begin."""
    told = "; ".join(f"worker {worker}: {text}" for worker, text in sorted(problems.items()))
    return MismatchError(
        sentence(
            f"another worker could not begin ({told})",
            "all workers begin together",
            "mend what that worker says and start again",
        )
    )


def not_initialized(world: str) -> LaunchError:
    """A launcher started several processes, but they do not know of each other."""
    return LaunchError(
        sentence(
            f"WORLD_SIZE is {world}, but torch.distributed is not initialized in this process",
            "the processes are joined before the optimizer is decentralized",
            "make the Accelerator first (on a machine without GPU: Accelerator(cpu=True) or "
            "ACCELERATE_USE_CPU=true), or call torch.distributed.init_process_group",
        )
    )

"""Errors about averaging methods that correct for momentum, delay or unequal data."""

from __future__ import annotations

from hf_decentral.errors.base import SettingsError, sentence


def must_stay(averaging: str, topology: str) -> SettingsError:
    """A method that is right for one matrix only, and rounds that change."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}, whose rounds change",
            "expected the same weights in every step, since what this method remembers belongs to them",
            "use topology 'ring' or 'complete', or averaging 'gradient_tracking', which any rounds suit",
        )
    )


def must_be_symmetric(averaging: str, topology: str) -> SettingsError:
    """A method for weights that are the same in both directions."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}, in which some hear whom they do "
            "not tell",
            "expected symmetric weights, without which the differences between workers may grow",
            "use topology 'ring' or 'complete', or averaging 'qg_dsgdm'",
        )
    )


def would_grow(averaging: str, topology: str, factor: float) -> SettingsError:
    """Weights under which the differences between workers do not shrink."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}, under which it multiplies a "
            f"difference between workers by {factor:.3f} in each step",
            "expected a factor below 1: for symmetric weights, eigenvalues above -1/3",
            f"write 'lazy({topology})', which keeps half of the own parameters",
        )
    )


def not_delayed(averaging: str, delay: int, least: int) -> SettingsError:
    """A method whose memory is that of one step, and exchanges that travel for several."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with delay={delay}",
            f"expected delay={least}: what it remembers is that of the latest step",
            "leave delay out, or use averaging 'plain'",
        )
    )


def needs_gradient_steps(averaging: str, optimizer: str) -> SettingsError:
    """A method that takes a local step for the gradient times the learning rate, and another optimizer."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with optimizer {optimizer}",
            "expected SGD: the method reads or changes gradients as if the step were the rate times them",
            "use torch.optim.SGD, or averaging 'plain' with this optimizer",
        )
    )


def momentum_twice(averaging: str, momentum: float) -> SettingsError:
    """A method that has a momentum of its own, and an optimizer with another."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with SGD(momentum={momentum:g})",
            "expected momentum=0: the method has a momentum of its own, and two multiply the step",
            f"set momentum=0, and write the method's as '{averaging}({momentum:g})' if it is not to be 0.9",
        )
    )


def wrong_losses(given: int, workers: int) -> SettingsError:
    """Losses for another number of workers."""
    return SettingsError(
        sentence(
            f"gossip(optimizer).loss holds {given} numbers",
            f"expected one loss for each of the {workers} workers of this process",
            "set it to a tensor of that length before step()",
        )
    )

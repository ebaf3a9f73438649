"""Errors about what is sent to the neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from hf_decentral.errors.base import ParameterError, SettingsError, sentence


def not_a_method(given: str, name: str, numbers: int, codec: bool) -> SettingsError:
    """Something else than a name, or a name with numbers that it takes.

    Args:
        given: what was typed.
        name: the name in it.
        numbers: how many numbers that method takes.
        codec: whether it takes a codec before them.
    """
    count = f"at most {numbers} number{'s' if numbers > 1 else ''}" if numbers else ""
    takes = " and ".join(part for part in ("a codec" if codec else "", count) if part)
    takes = f"{takes} in parentheses" if takes else "nothing in parentheses"
    return SettingsError(
        sentence(
            f"averaging={given!r} was given",
            f"expected the name of a method, and {takes} behind {name!r}",
            "write it like 'int8', 'top_k(0.01)' or 'choco(int8, 0.5)'",
        )
    )


def no_codec_here(given: str, name: str) -> SettingsError:
    """A codec in the parentheses of a method that takes none."""
    return SettingsError(
        sentence(
            f"averaging={given!r} was given, with a codec for {name!r}",
            "expected numbers: what a codec drops is gone where no memory keeps it, with the mean of the "
            "parameters, or the weights of push-sum",
            "write 'choco(int8)' or 'deepsqueeze(int8)', which remember it",
        )
    )


def method_inside(given: str, inner: str, codecs: Sequence[str]) -> SettingsError:
    """A method in the place of a codec, so that two of them would remember one loss."""
    return SettingsError(
        sentence(
            f"averaging={given!r} was given, with the method {inner!r} in the place of a codec",
            f"expected one of {', '.join(codecs)}: two methods would each remember what was lost, and send "
            "it twice",
            "choose one of the two methods, with a codec in it",
        )
    )


def codec_expands(codec: str, code_bytes: int, bytes: int) -> SettingsError:
    """A codec whose messages are longer than what they stand for."""
    return SettingsError(
        sentence(
            f"codec {codec} was given, which makes {code_bytes:,} bytes of {bytes:,} bytes of parameters",
            "expected one that sends less than the parameters themselves",
            "choose a smaller fraction or rank or another codec, or averaging 'plain'",
        )
    )


def codec_loses_all(codec: str, numel: int) -> SettingsError:
    """A codec whose loss can be as large as what was sent, so that it is never made up for."""
    return SettingsError(
        sentence(
            f"codec {codec} was given for {numel:,} parameters, of which it may keep nothing",
            "expected a codec that loses less than was sent (its contraction is above 0), or what is "
            "remembered of the loss grows without end",
            "choose one with more bits or a larger fraction, such as 'int4' or 'top_k(0.05)'",
        )
    )


def workers_too_far(worker: int, others: Sequence[int], distance: float, bound: float) -> ParameterError:
    """Parameters that differ by nearly as much as can be told apart modulo a bound.

    Args:
        worker: the one that saw it.
        others: whom it heard.
        distance: the largest difference of a parameter, as it was decoded.
        bound: modulo what the parameters were sent.
    """
    return ParameterError(
        sentence(
            f"a parameter of worker {worker} is {distance:.4g} or more away from one of the workers "
            f"{', '.join(map(str, others))}, with averaging 'moniqua' and bound {bound:g}",
            f"expected less than {bound / 2:g}, half the bound, beyond which another number would be decoded",
            f"give a larger bound, as 'moniqua(8, {2 * bound:g})', or a smaller learning rate",
        )
    )


def must_repeat(averaging: str, topology: str) -> SettingsError:
    """A method that remembers what was sent in each round, and rounds that never come again."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}, whose rounds do not repeat",
            "expected rounds that repeat, since this method remembers what the workers of a round know",
            "use a topology that repeats, as 'aer', or averaging 'int8', which remembers no rounds",
        )
    )


def no_complex() -> SettingsError:
    """A method that encodes or corrects real numbers, and complex parameters."""
    return SettingsError(
        sentence(
            "complex parameters were given to an averaging method that encodes or corrects",
            "real parameters",
            "use averaging 'plain', or hold real and imaginary parts as parameters of their own",
        )
    )


def must_be_mutual(averaging: str, topology: str) -> SettingsError:
    """A method in which two workers work on their difference together, and rounds of one direction."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}, in which a worker hears others "
            "than those who hear it, or with another weight",
            "expected workers that hear each other with one weight, since the two of a pair work out "
            "together in what they differ",
            "use 'ring', 'aer' or another undirected topology, or averaging 'low_rank'",
        )
    )


def wrong_order(averaging: str, order: str, orders: Sequence[str]) -> SettingsError:
    """A method that stands in another place relative to the local step."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with order={order!r}",
            f"this method works with order {' or '.join(map(repr, orders))}",
            f"set order={orders[0]!r}, or another averaging",
        )
    )


def must_be_whole(averaging: str, topology: str) -> SettingsError:
    """A method in which all workers take part in every round."""
    return SettingsError(
        sentence(
            f"averaging={averaging!r} was given with topology {topology!r}",
            "expected rounds that are the mean of all workers, since it keeps one model that all have",
            "use topology 'complete', or 'every(8, complete)' for a round in every eighth step",
        )
    )


def wrong_delay(delay: object, order: str, least: int) -> SettingsError:
    """A delay that an order cannot have."""
    most = " and no more" if order == "cta" else " or more"
    return SettingsError(
        sentence(
            f"delay={delay!r} was given with order={order!r}",
            f"expected a whole number of steps, {least}{most}",
            "leave it out, or use order='awc' for exchanges that travel behind the computing",
        )
    )


def too_many_in_flight(topology: str, delay: int) -> SettingsError:
    """Rounds that begin before the one before has landed."""
    return SettingsError(
        sentence(
            f"delay={delay} was given with topology {topology!r}, whose rounds are closer",
            "expected that an exchange lands before the next begins, in steps that are known beforehand",
            f"write 'every({delay}, ...)' around the topology, or a smaller delay",
        )
    )

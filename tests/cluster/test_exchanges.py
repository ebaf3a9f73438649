"""Who exchanges with whom while links are measured."""

from __future__ import annotations

import pytest

from hf_decentral.cluster.exchanges import Part, between, exchanges, inside, one_way


@pytest.mark.parametrize("count", range(2, 9))
def test_all_send_and_hear_and_the_two_patterns_have_other_partners(count: int):
    members = [10 * k for k in range(count)]
    patterns = exchanges(members)
    assert len(patterns) == (1 if count == 2 else 2)
    for pattern in patterns:
        assert sorted(pattern) == members
        for me, part in pattern.items():
            assert part.to is not None and part.to != me and pattern[part.to].hears == me
    if count > 2:
        first, second = patterns
        assert all(first[me].hears != second[me].hears for me in members)


def test_hosts_talk_through_their_first_workers_and_all_workers_inside():
    hosts = (0, 0, 1, 1, 1, 5)
    assert [sorted(pattern) for pattern in between(hosts)] == [[0, 2, 5]] * 2
    first, second = inside(hosts)
    assert first[0] == Part(1, 1) and sorted(first) == [0, 1, 2, 3, 4] and sorted(second) == [2, 3, 4]
    assert between((0, 0)) == [] and inside((0, 1, 2)) == []


def test_in_one_direction_an_odd_one_waits():
    assert one_way([4, 6, 8]) == {4: Part(6, None), 6: Part(None, 4)}

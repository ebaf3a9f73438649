"""Who exchanges with whom while links are measured."""

from __future__ import annotations

import pytest

from hf_decentral.cluster.exchanges import Part, between, crowded, exchanges, inside, matchings, one_way


@pytest.mark.parametrize("count", range(2, 9))
def test_all_send_and_hear_and_the_two_patterns_have_other_partners(count: int):
    members = [10 * k for k in range(count)]
    patterns = exchanges(members)
    assert len(patterns) == (1 if count == 2 else 2)
    for pattern in patterns:
        assert sorted(pattern) == members
        for me, part in pattern.items():
            assert part.to != (me,) and pattern[part.to[0]].hears == (me,)
    if count > 2:
        first, second = patterns
        assert all(first[me].hears != second[me].hears for me in members)


@pytest.mark.parametrize("count", range(3, 8))
def test_in_pairs_every_member_meets_two_others(count: int):
    members = list(range(count))
    met: dict[int, set[int]] = {me: set() for me in members}
    for pattern in matchings(members):
        assert len(pattern) == count - count % 2
        for me, part in pattern.items():
            assert part.to == part.hears and pattern[part.to[0]].to == (me,)
            met[me].update(part.to)
    assert all(len(others) >= 2 for others in met.values())


def test_hosts_talk_through_their_first_workers_and_all_workers_inside():
    hosts = (0, 0, 1, 1, 1, 5)
    assert [sorted(pattern) for pattern in between(hosts)] == [[0, 2, 5]] * 2
    first, second = inside(hosts)
    assert first[0] == Part((1,), (1,)) and sorted(first) == [0, 1, 2, 3, 4] and sorted(second) == [2, 3, 4]
    assert between((0, 0)) == [] and inside((0, 1, 2)) == []


def test_in_one_direction_an_odd_one_waits():
    assert one_way([4, 6, 8]) == {4: Part((6,), ()), 6: Part((), (4,))}


@pytest.mark.parametrize(
    ("hosts", "members"),
    [((0, 1, 2, 3), [0, 1, 2, 3]), ((0, 0, 1, 1, 1), [0, 1, 2, 3]), ((7, 7, 7), [0, 1, 2])],
    ids=["hosts", "two hosts", "one host"],
)
def test_two_messages_share_every_link(hosts: tuple[int, ...], members: list[int]):
    pattern = crowded(hosts)
    assert sorted(pattern) == members
    assert all(part.to == part.hears for part in pattern.values())
    assert all(me in pattern[peer].hears for me, part in pattern.items() for peer in part.to)
    links = members if len(set(hosts)) != 2 else [[0, 1], [2, 3]]
    for link in links:
        owners = link if isinstance(link, list) else [link]
        assert sum(len(pattern[worker].to) for worker in owners) == 2


@pytest.mark.parametrize("hosts", [(0, 1), (0, 0, 1), (0, 0)])
def test_too_few_workers_crowd_nothing(hosts: tuple[int, ...]):
    assert crowded(hosts) == {}

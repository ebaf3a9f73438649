from __future__ import annotations

import socket

import torch

from hf_decentral.bench.counters import Peak, sent_counter, socket_bytes, tensors_in_pages

CPU = torch.device("cpu")
MIB = 1 << 20


def test_sockets_tell_what_they_sent():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        before = socket_bytes()
        near.sendall(bytes(1000))
        far.sendall(bytes(500))
        for end, count in ((far, 1000), (near, 500)):
            while count:
                count -= len(end.recv(count))
        assert socket_bytes() - before == 1500  # both ends are ours


def test_only_one_worker_of_a_shaped_host_counts_for_it():
    assert sent_counter(True, 1, "gloo")(None) == 0.0


def test_nobody_counts_for_others_where_there_are_no_sockets():
    assert sent_counter(False, 0, "nccl")(None) is None


def test_the_peak_is_seen_though_it_has_passed():
    with tensors_in_pages():
        peak = Peak(CPU)
        kept = torch.ones(8 * MIB // 4)
        peak.forget()
        del kept
        passing = torch.ones(64 * MIB // 4)
        del passing
        assert 60 * MIB < peak.above() < 80 * MIB


def test_what_was_before_does_not_count():
    with tensors_in_pages():
        peak = Peak(CPU)
        passing = torch.ones(64 * MIB // 4)
        del passing
        kept = torch.ones(8 * MIB // 4)
        peak.forget()
        assert 6 * MIB < peak.above() < 30 * MIB
        assert kept.numel()

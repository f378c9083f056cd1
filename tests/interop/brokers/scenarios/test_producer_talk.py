"""Whether brokers keep a producer of librdkafka waiting, or it waits for nothing, is read from its log."""

from __future__ import annotations

import pytest

from exactly_once import QUIET_SECONDS, Talk

BEGINS = """\
%7|1795768679.182|TXNAPI|rdkafka#producer-1| [thrd:app]: Transactional API called: send_offsets_to_transaction
%7|1795768679.182|SEND|rdkafka#producer-1| [thrd:TxnCoordinator]: TxnCoordinator/103: Sent AddOffsetsToTxnRequest \
(v0, 63 bytes @ 0, CorrId 63)
"""
ANSWER = """\
%7|1795768679.190|RECV|rdkafka#producer-1| [thrd:TxnCoordinator]: TxnCoordinator/103: Received AddOffsetsToTxnResponse \
(v0, 6 bytes, CorrId 63, rtt 7.97ms)
"""
ANSWER_TO_OTHER = ANSWER.replace("thrd:TxnCoordinator", "thrd:127.0.0.1:24949/102")
ROUTINE = """\
%7|1795768709.300|SEND|rdkafka#producer-1| [thrd:127.0.0.1:24348/101]: 127.0.0.1:24348/101: Sent MetadataRequest \
(v12, 31 bytes @ 0, CorrId 9)
%7|1795768709.301|RECV|rdkafka#producer-1| [thrd:127.0.0.1:24348/101]: 127.0.0.1:24348/101: Received MetadataResponse \
(v12, 300 bytes, CorrId 9, rtt 0.50ms)
"""
LOST = """\
%7|1795768680.000|STATE|rdkafka#producer-1| [thrd:TxnCoordinator]: TxnCoordinator/103: Broker changed state UP -> DOWN
"""
AGAIN = BEGINS.replace("1795768679", "1795768708").replace("CorrId 63", "CorrId 70")
NOW = 1795768709.5


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ("", None),
        (BEGINS + ANSWER, None),
        (BEGINS + ANSWER + ROUTINE, None),
        (BEGINS + LOST, None),
        (BEGINS, "AddOffsetsToTxn has had no answer for 30 s"),
        (BEGINS + ANSWER_TO_OTHER + ROUTINE, "AddOffsetsToTxn has had no answer for 30 s"),
        (BEGINS + ANSWER + AGAIN, "AddOffsetsToTxn was asked 1 s ago"),
    ],
)
def test_a_client_waits_for_brokers_if_one_owes_it_an_answer_or_it_asks_again(log: str, fault: str | None) -> None:
    assert NOW - 1795768679 > QUIET_SECONDS
    assert Talk.read(log.splitlines()).fault_of_brokers(NOW) == fault

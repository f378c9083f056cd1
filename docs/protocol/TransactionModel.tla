-------------------------- MODULE TransactionModel --------------------------
(* Transaction.tla within bounds, for TLC. A marker that can be sent is sent at once: a fact enables only.           *)
EXTENDS Transaction

CONSTANTS One, Two, P1, P2, MaxEpoch, MaxBegun, MaxRecords

Sent ==
  /\ txn.state \in Prepared
  /\ markers' = markers \cup {MarkerOf(p) : p \in txn.parts}
  /\ markers' # markers
  /\ UNCHANGED <<txn, process, log, newest, guards, sent, told, begun>>

Decided ==
  \/ FenceOngoing \/ Finish
  \/ \E i \in Processes : InitProducerId(i) \/ Begin(i) \/ EndTxn(i, "Commit") \/ EndTxn(i, "Abort") \/ AbortNothing(i)
  \/ \E i \in Processes, p \in Partitions : AddPartition(i, p) \/ Produce(i, p)
  \/ \E r \in sent : Verify(r) \/ Take(r)
  \/ \E m \in markers : Mark(m)

Next2 == Sent \/ (~ENABLED Sent /\ Decided)

Bound ==
  /\ txn.epoch <= MaxEpoch /\ begun <= MaxBegun
  /\ Cardinality(sent) <= MaxRecords

\* What can still be taken, or can still be told to somebody.
Relevant ==
  <<txn, process, log, newest, guards, told, begun,
    {r \in sent : r.epoch >= newest[r.part]}, {m \in markers : m.epoch >= newest[m.part]}>>

FromInit == Init /\ [][Next2]_vars
Symmetric == Permutations(Processes) \cup Permutations(Partitions)
=============================================================================

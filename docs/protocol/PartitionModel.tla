--------------------------- MODULE PartitionModel ---------------------------
(* Partition.tla within bounds, for TLC. Whoever can send a Fetch sends it at once, as in QuorumModel.tla. Of the metadata
   only the newest and what brokers still act by tells two states apart.                                            *)
EXTENDS Partition

CONSTANTS One, Two, Three, MaxEpoch, MaxVersion, MaxEnd, MaxCrashes, MaxStops,
  Lag        \* how many changes of the metadata a broker may be behind

Sent ==
  /\ fetches' = fetches \cup {FetchOf(b) : b \in {n \in Brokers : MayFetch(n)}}
  /\ fetches' # fetches
  /\ UNCHANGED <<meta, brokers, logs, proposals, ledger, refused, wasUnclean>>

Decided == OfProposals \/ \E b \in Brokers :
  \/ OfController(b) \/ OfIsr(b)
  \/ Write(b, Len(log[b]) + 1) \/ Truncate(b)
  \/ \E to \in 1..Len(meta) : Replay(b, to)
  \/ As(b).epoch \in DOMAIN ledger /\ Take(b, Len(Ledger(b).log))
  \/ IsLeader(b) /\ Commit(b, Len(log[b]))
  \/ \E end \in 1..MaxEnd : Hear(b, end)
  \/ MaxCrashes > 0 /\ (Flush(b, Len(log[b])) \/ Crash(b, flushed[b], 0))
  \/ MaxStops > 0 /\ Stop(b)

Next2 == Sent \/ (~ENABLED Sent /\ Decided)

\* How many processes have ended.
Ended == Cardinality({<<b, n>> \in Brokers \X (1..9) : n < Now.broker[b]}) + Cardinality({b \in Brokers : life[b] = 0})

Bound ==
  /\ Now.epoch <= MaxEpoch /\ Now.version <= MaxVersion
  /\ \A b \in Brokers : Len(log[b]) <= MaxEnd
  /\ Ended <= MaxCrashes + MaxStops
  /\ \A b \in Brokers : life[b] = 0 \/ seen[b] + Lag >= Len(meta)

Relevant ==
  <<Now, [b \in Brokers |-> IF life[b] > 0 THEN As(b) ELSE Now], life, isClean, logs, ledger, wasUnclean,
    {f \in fetches : \E l \in Brokers : IsLeader(l) /\ As(l).epoch = f.epoch},
    {p \in proposals \ refused : p.version >= Now.version \/ \E l \in Brokers : IsLeader(l) /\ IsPending(l, p)},
    [b \in Brokers |-> IF life[b] > 0 THEN SubSeq(meta, seen[b] + 1, Len(meta)) ELSE <<>>]>>

Of(first, second, third) == [n \in Brokers |-> CASE n = One -> first [] n = Two -> second [] OTHER -> third]
Data(e) == [epoch |-> e, life |-> 1]
State(leader, isr, elr, fenced) ==
  [leader |-> leader, epoch |-> 1, version |-> 1, isr |-> isr, elr |-> elr, fenced |-> fenced, broker |-> Of(1, 1, 1)]

Begun(state, l, end) ==
  /\ meta = <<state>>
  /\ seen = Of(1, 1, 1) /\ life = Of(1, 1, 1) /\ isClean = Of(FALSE, FALSE, FALSE)
  /\ log = l /\ flushed = [b \in Brokers |-> Len(l[b])] /\ hw = Of(end, 0, 0)
  /\ fetches = {} /\ proposals = {} /\ refused = {}
  /\ ledger = [e \in {1} |-> [log |-> l[One], hw |-> end, begin |-> 0]]
  /\ wasUnclean = FALSE

\* One leads, all are in sync and have a committed record.
Led1 == Begun(State(One, Brokers, {}, {}), Of(<<Data(1)>>, <<Data(1)>>, <<Data(1)>>), 1)

\* One leads, with Two in sync; Three is behind.
Pair == Begun(State(One, {One, Two}, {}, {}), Of(<<Data(1)>>, <<Data(1)>>, <<>>), 1)

\* One leads alone: too few are in sync; Two is eligible, and so is nobody else.
Alone == Begun(State(One, {One}, {Two}, {}), Of(<<Data(1)>>, <<Data(1)>>, <<>>), 1)

\* One leads alone, and Two has all but is not in sync.
Single == Begun(State(One, {One}, {}, {}), Of(<<Data(1)>>, <<Data(1)>>, <<>>), 1)

FromSingle == Single /\ [][Next2]_vars
FromLed == Led1 /\ [][Next2]_vars
FromPair == Pair /\ [][Next2]_vars
FromAlone == Alone /\ [][Next2]_vars
=============================================================================

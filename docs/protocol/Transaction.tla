----------------------------- MODULE Transaction -----------------------------
(* Transactions of one transactional id over some partitions: its coordinator, the processes that use it one after the
   other (the older ones are zombies that do not know), epochs, markers, verification, time-outs. KIP-98, KIP-360,
   KIP-890 in both of its versions; README.md beside this file says what is left out.

   The coordinator's log and the logs of the partitions are durable (Partition.tla): a coordinator that fails goes on
   elsewhere with `txn`. A message that was sent is a fact: `sent` and `markers` may arrive late, twice or never.    *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Processes, Partitions,
  Version           \* transaction.version: 1 or 2

VARIABLES
  txn,              \* the coordinator's state of the transactional id
  process,          \* what each process knows
  log,              \* the records and markers of each partition
  newest,           \* the newest epoch that a partition knows
  guards,           \* the permissions of a partition to begin a transaction
  sent, markers,    \* what was said
  told,             \* the ends of transactions that a process was told of
  begun             \* how many transactions were begun

vars == <<txn, process, log, newest, guards, sent, markers, told, begun>>

None == 0           \* no transaction; also: a process without an epoch
Prepared == {"PrepareCommit", "PrepareAbort"}
Complete == {"Empty", "CompleteCommit", "CompleteAbort"}

-----------------------------------------------------------------------------
(* The coordinator *)

\* "A process that begins gets a higher epoch, which fences those before it. A transaction of theirs is aborted first", and so
\* is one that lasts too long.
FenceOngoing ==
  /\ txn.state = "Ongoing"
  /\ txn' = [txn EXCEPT !.state = "PrepareAbort", !.epoch = @ + 1]
  /\ UNCHANGED <<process, log, newest, guards, sent, markers, told, begun>>

InitProducerId(i) ==
  /\ process[i].epoch = None
  /\ txn.state \in Complete
  /\ txn' = [txn EXCEPT !.state = "Empty", !.epoch = @ + 1, !.parts = {}]
  /\ process' = [process EXCEPT ![i] = [epoch |-> txn.epoch + 1, t |-> None, sent |-> {}, next |-> [p \in Partitions |-> 0]]]
  /\ UNCHANGED <<log, newest, guards, sent, markers, told, begun>>

\* The partition belongs to the transaction from now on, whoever asks for it, in the newest epoch.
Added(epoch, p, t) ==
  /\ epoch = txn.epoch
  /\ txn.state \in Complete \cup {"Ongoing"}
  /\ txn' = [txn EXCEPT !.state = "Ongoing", !.t = t,
                        !.parts = (IF txn.state = "Ongoing" THEN @ ELSE {}) \cup {p}]

\* "In version 1 the process names the partitions before it writes to them."
AddPartition(i, p) ==
  /\ Version = 1
  /\ process[i].t # None
  /\ Added(process[i].epoch, p, process[i].t)
  /\ UNCHANGED <<process, log, newest, guards, sent, markers, told, begun>>

\* "With all its records acknowledged a process may commit; it may abort at any time. In version 2 each end of a
\* transaction raises the epoch, so that nothing late belongs to the next one." In version 1 a process that does not know
\* what became of its records asks for a new epoch.
Arrived(r) == \E at \in 1..Len(log[r.part]) : log[r.part][at] = r

EndTxn(i, kind) ==
  LET one == process[i]
      isResolved == \A r \in one.sent : Arrived(r)
      epoch == one.epoch + (IF Version = 2 THEN 1 ELSE 0) IN
  /\ one.t # None /\ one.epoch = txn.epoch
  /\ txn.state = "Ongoing"
  /\ kind = "Commit" => isResolved
  /\ txn' = [txn EXCEPT !.state = "Prepare" \o kind, !.epoch = epoch]
  /\ process' = [process EXCEPT ![i] =
       IF Version = 2 THEN [epoch |-> epoch, t |-> None, sent |-> {}, next |-> [p \in Partitions |-> 0]]
       ELSE IF isResolved THEN [@ EXCEPT !.t = None, !.sent = {}]
       ELSE [@ EXCEPT !.epoch = None, !.t = None, !.sent = {}]]
  /\ told' = told \cup {[t |-> one.t, kind |-> kind]}
  /\ UNCHANGED <<log, newest, guards, sent, markers, begun>>

\* "In version 2 a process may abort what has no partition yet: its records may be on their way, and the new epoch keeps
\* them out."
AbortNothing(i) ==
  LET one == process[i] IN
  /\ Version = 2
  /\ one.epoch = txn.epoch /\ txn.state \in Complete
  /\ txn' = [txn EXCEPT !.state = "PrepareAbort", !.epoch = @ + 1, !.parts = {}]
  /\ process' = [process EXCEPT ![i] = [epoch |-> txn.epoch + 1, t |-> None, sent |-> {}, next |-> [p \in Partitions |-> 0]]]
  /\ told' = IF one.t = None THEN told ELSE told \cup {[t |-> one.t, kind |-> "Abort"]}
  /\ UNCHANGED <<log, newest, guards, sent, markers, begun>>

\* "What is prepared is decided: the markers go to all partitions of the transaction, by whoever coordinates it now."
Kind == IF txn.state = "PrepareCommit" THEN "Commit" ELSE "Abort"
MarkerOf(p) == [part |-> p, kind |-> Kind, epoch |-> txn.epoch, t |-> txn.t]

SendMarker(p) ==
  /\ txn.state \in Prepared
  /\ p \in txn.parts
  /\ markers' = markers \cup {MarkerOf(p)}
  /\ UNCHANGED <<txn, process, log, newest, guards, sent, told, begun>>

IsMarked(p) == \E at \in 1..Len(log[p]) : log[p][at] = MarkerOf(p)

Finish ==
  /\ txn.state \in Prepared
  /\ \A p \in txn.parts : IsMarked(p)
  /\ txn' = [txn EXCEPT !.state = "Complete" \o Kind, !.parts = {}]
  /\ UNCHANGED <<process, log, newest, guards, sent, markers, told, begun>>

-----------------------------------------------------------------------------
(* Processes *)

Begin(i) ==
  /\ process[i].epoch # None /\ process[i].t = None
  /\ process' = [process EXCEPT ![i].t = begun + 1]
  /\ begun' = begun + 1
  /\ UNCHANGED <<txn, log, newest, guards, sent, markers, told>>

\* "Records are numbered in each partition, from 0 in each epoch."
Produce(i, p) ==
  LET one == process[i]
      r == [part |-> p, kind |-> "Data", epoch |-> one.epoch, t |-> one.t, seq |-> one.next[p]] IN
  /\ one.t # None
  /\ Version = 1 => \/ p \in txn.parts /\ txn.t = one.t  \* the answer to AddPartitionsToTxn
                    \/ one.epoch < txn.epoch             \* fenced, and does not know
  /\ sent' = sent \cup {r}
  /\ process' = [process EXCEPT ![i].sent = @ \cup {r}, ![i].next[p] = @ + 1]
  /\ UNCHANGED <<txn, log, newest, guards, markers, told, begun>>

\* A process that hears that it is fenced ends; another one may begin in its place.
Die(i) ==
  /\ process[i].epoch # None
  /\ process' = [process EXCEPT ![i] = [epoch |-> None, t |-> None, sent |-> {}, next |-> [p \in Partitions |-> 0]]]
  /\ UNCHANGED <<txn, log, newest, guards, sent, markers, told, begun>>

-----------------------------------------------------------------------------
(* Partitions *)

IsOpen(p) == log[p] # <<>> /\ log[p][Len(log[p])].kind = "Data"
IsOngoing(p, epoch) == IsOpen(p) /\ newest[p] = epoch   \* a record of a newer epoch begins another transaction

\* "Before the first record of a transaction the leader asks the coordinator whether the partition belongs to it. In version
\* 2 that adds the partition" (KIP-890).
Verify(r) ==
  LET p == r.part IN
  /\ r.epoch >= newest[p] /\ ~IsOngoing(p, r.epoch)
  /\ IF Version = 2 THEN Added(r.epoch, p, r.t)
     ELSE /\ txn.state = "Ongoing" /\ txn.epoch = r.epoch /\ p \in txn.parts
          /\ UNCHANGED txn
  /\ guards' = guards \cup {[part |-> p, epoch |-> r.epoch]}
  /\ UNCHANGED <<process, log, newest, sent, markers, told, begun>>

\* "A record of an old epoch, or that is not the next of its epoch, is refused."
Numbered(p, epoch) == Cardinality({at \in 1..Len(log[p]) : log[p][at].kind = "Data" /\ log[p][at].epoch = epoch})

Take(r) ==
  LET p == r.part IN
  /\ r.epoch >= newest[p]
  /\ r.seq = Numbered(p, r.epoch)
  /\ IsOngoing(p, r.epoch) \/ [part |-> p, epoch |-> r.epoch] \in guards
  /\ log' = [log EXCEPT ![p] = Append(@, r)]
  /\ newest' = [newest EXCEPT ![p] = r.epoch]
  /\ guards' = {g \in guards : g.part # p \/ g.epoch > r.epoch}
  /\ UNCHANGED <<txn, process, sent, markers, told, begun>>

\* "A marker ends the open transaction, fences its epoch, and ends the permissions of that." A late marker of version 2 has
\* an old epoch. In version 1 it may end a later transaction of its epoch: that is the hole which version 2 closes, and a
\* marker of version 1 is not late here.
IsTimely(m) ==
  IF Version = 2 THEN m.epoch > newest[m.part]
  ELSE m.epoch >= newest[m.part] /\ txn.state \in Prepared /\ m = MarkerOf(m.part) /\ ~IsMarked(m.part)

Mark(m) ==
  LET p == m.part IN
  /\ IsTimely(m)
  /\ log' = [log EXCEPT ![p] = Append(@, m)]
  /\ newest' = [newest EXCEPT ![p] = m.epoch]
  /\ guards' = {g \in guards : g.part # p \/ (Version = 2 /\ g.epoch >= m.epoch)}
  /\ UNCHANGED <<txn, process, sent, markers, told, begun>>

-----------------------------------------------------------------------------
Init ==
  /\ txn = [state |-> "Empty", epoch |-> 0, parts |-> {}, t |-> None]
  /\ process = [i \in Processes |-> [epoch |-> None, t |-> None, sent |-> {}, next |-> [p \in Partitions |-> 0]]]
  /\ log = [p \in Partitions |-> <<>>]
  /\ newest = [p \in Partitions |-> 0]
  /\ guards = {} /\ sent = {} /\ markers = {} /\ told = {} /\ begun = 0

Next ==
  \/ FenceOngoing \/ Finish
  \/ \E i \in Processes : InitProducerId(i) \/ Begin(i) \/ Die(i) \/ EndTxn(i, "Commit") \/ EndTxn(i, "Abort") \/ AbortNothing(i)
  \/ \E i \in Processes, p \in Partitions : AddPartition(i, p) \/ Produce(i, p)
  \/ \E p \in Partitions : SendMarker(p)
  \/ \E r \in sent : Verify(r) \/ Take(r)
  \/ \E m \in markers : Mark(m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties *)

\* How the transaction of a record ended, as a reader sees it: by the next marker behind it.
Ends(p) == {at \in 1..Len(log[p]) : log[p][at].kind # "Data"}
Outcome(p, at) ==
  LET later == {e \in Ends(p) : e > at}
  IN IF later = {} THEN "Open" ELSE log[p][CHOOSE e \in later : \A b \in later : e <= b].kind
Outcomes(t) == {Outcome(p, at) : <<p, at>> \in
  {<<q, a>> \in Partitions \X (1..10) : a <= Len(log[q]) /\ log[q][a].kind = "Data" /\ log[q][a].t = t}}

\* Readers with read_committed see all records of a transaction or none.
TransactionsAreAtomic == \A t \in 1..begun : ~({"Commit", "Abort"} \subseteq Outcomes(t))

\* What a process was told is what becomes of its records.
DecisionsHold == \A one \in told : Outcomes(one.t) \subseteq
  {one.kind} \cup (IF txn.t = one.t /\ txn.state = "Prepare" \o one.kind THEN {"Open"} ELSE {})

\* A committed transaction has all its records.
NothingIsMissing == \A one \in told : one.kind = "Commit" => \A r \in sent : r.t = one.t => Arrived(r)

\* An open transaction holds back the last stable offset, so the coordinator must know that it has to be ended.
NoneHangs == \A p \in Partitions : IsOpen(p) =>
  /\ txn.state \in Prepared \cup {"Ongoing"}
  /\ p \in txn.parts
  /\ log[p][Len(log[p])].t = txn.t

\* The records of one transaction are not mixed with those of another.
OneAtATime == \A p \in Partitions : \A a, b \in 1..Len(log[p]) :
  a < b /\ log[p][a].t # log[p][b].t => \E e \in Ends(p) : a <= e /\ e < b

NoDuplicates == \A p \in Partitions : \A a, b \in 1..Len(log[p]) :
  a # b /\ log[p][a].kind = "Data" => log[p][a] # log[p][b]

\* Nothing of an old epoch comes after something of a newer one.
EpochsRise == \A p \in Partitions : \A a, b \in 1..Len(log[p]) : a < b => log[p][a].epoch <= log[p][b].epoch

\* What is decided stays decided.
DecisionsStay == [][txn.state \in Prepared => txn'.state \in {txn.state, "Complete" \o Kind}]_vars
=============================================================================

------------------------------ MODULE Partition ------------------------------
(* The replication of one partition: leader and followers, as the controller names them; in-sync replicas (ISR) and
   eligible leader replicas (ELR); the high watermark; truncation; elections and crashes. KIP-101, KIP-497, KIP-841,
   KIP-903, KIP-966; README.md beside this file says what is left out.

   The controller is one replicated log (Quorum.tla): here it is `meta`, the list of all that it has committed about this
   partition and its brokers. A broker acts by what it has replayed of it, which may be old. A message that was sent is a
   fact, as in Quorum.tla: `fetches`, `proposals` and `ledger`, the log of each epoch's leader.

   Offsets count from 1 here, and an "end" is the number of records.                                                *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Brokers,          \* the replicas of the partition
  MinIsr,           \* min.insync.replicas, at most the number of the replicas
  ControllerMinIsr, \* the same as the controllers see it: at most the number of replicas of the topic's first partition
  HasElr,           \* eligible.leader.replicas.version
  MayBeUnclean,     \* unclean.leader.election.enable
  None              \* no broker

VARIABLES
  meta,             \* what the controller has committed, the newest last
  seen,             \* how much of it a broker has replayed
  life,             \* the broker epoch of the running process; 0 until it is registered
  isClean,          \* whether the last process has shut down with all on disk, and proof of that
  log, flushed,     \* the records, and how many of them are on disk whatever happens
  hw,               \* the high watermark, as far as a broker knows it
  fetches, proposals, ledger,     \* what was said
  refused,          \* the proposals to which the controller has said no
  wasUnclean        \* whether a replica was elected that may lack records

brokers == <<seen, life, isClean>>
logs    == <<log, flushed, hw>>
facts   == <<fetches, proposals, ledger, refused>>
vars    == <<meta, brokers, logs, facts, wasUnclean>>

-----------------------------------------------------------------------------
(* Logs, compared as in Quorum.tla by the epochs of their records *)

Max(S) == CHOOSE a \in S : \A b \in S : b <= a
Min(a, b) == IF a < b THEN a ELSE b
Prefix(l, end) == SubSeq(l, 1, end)
IsPrefix(a, b) == Len(a) <= Len(b) /\ a = Prefix(b, Len(a))
EpochAt(l, end) == IF end = 0 THEN 0 ELSE l[end].epoch
EndOf(l, end) == [epoch |-> EpochAt(l, end), end |-> end]
End(b) == EndOf(log[b], Len(log[b]))

\* Where the records of an epoch, or of the last one before, end in a log.
EndForEpoch(l, e) == EndOf(l, Cardinality({i \in 1..Len(l) : l[i].epoch <= e}))
IsValid(l, last) == LET end == EndForEpoch(l, last.epoch) IN end.epoch = last.epoch /\ end.end >= last.end

-----------------------------------------------------------------------------
(* The controller. `version` is the partition epoch: it rises with each change. `epoch` is the leader epoch: it rises with
   each change of the leader.                                                                                        *)

Now == meta[Len(meta)]

\* "While the ISR is smaller than min.insync.replicas, whoever leaves it stays eligible: nothing is committed without it"
\* (KIP-966). With enough in-sync replicas nobody else is eligible. Without this feature nobody ever is.
Eligible(isr, lost) == IF ~HasElr \/ Cardinality(isr) >= ControllerMinIsr THEN {} ELSE ((Now.elr \cup Now.isr) \ isr) \ lost

\* "The leader stays if it can. Otherwise one of the ISR leads, or one of the ELR if the ISR is empty; or nobody."
Led(isr, elr, fenced) ==
  IF Now.leader \in isr \ fenced THEN {<<Now.leader, isr, elr>>}
  ELSE IF isr \ fenced # {} THEN {<<b, isr, elr>> : b \in isr \ fenced}
  ELSE IF elr \ fenced # {} THEN {<<b, {b}, elr \ {b}>> : b \in elr \ fenced}
  ELSE {<<None, isr, elr>>}

\* "Without eligible replicas the last one in sync stays in the ISR, though it is not in service."
Kept(isr) == IF ~HasElr /\ isr = {} THEN Now.isr ELSE isr

\* What may follow, with another ISR, with brokers whose logs have lost records, other fenced brokers and broker epochs.
After(isr, lost, fenced, broker) ==
  {[leader |-> one[1], isr |-> one[2], elr |-> one[3], fenced |-> fenced, broker |-> broker,
    epoch |-> Now.epoch + (IF one[1] = Now.leader THEN 0 ELSE 1),
    version |-> Now.version + (IF one = <<Now.leader, Now.isr, Now.elr>> THEN 0 ELSE 1)]
   : one \in Led(Kept(isr), Eligible(isr, lost), fenced)}

Decide(states) == \E next \in states : next # Now /\ meta' = Append(meta, next)

\* "A broker that is not heard, or that shuts down, is fenced: it leaves the ISR, and leads nothing" (KIP-841).
Fence(b) ==
  /\ b \notin Now.fenced
  /\ Decide(After(Now.isr \ {b}, {}, Now.fenced \cup {b}, Now.broker))
  /\ UNCHANGED <<brokers, logs, facts, wasUnclean>>

\* "It is unfenced when it has replayed the metadata up to its own registration", as its heartbeat tells, which may be late.
Unfence(b) ==
  /\ b \in Now.fenced /\ Now.broker[b] > 0
  /\ Decide(After(Now.isr, {}, Now.fenced \ {b}, Now.broker))
  /\ UNCHANGED <<brokers, logs, facts, wasUnclean>>

\* "A process that begins is registered with a new broker epoch, and fenced. Without proof of a clean shutdown its log may
\* have lost records: it is neither in sync nor eligible" (KIP-966). It acts by no older metadata than its registration.
Register(b) ==
  /\ life[b] = 0
  /\ LET lost == IF isClean[b] THEN {} ELSE {b}
     IN Decide(After(Now.isr \ {b}, lost, Now.fenced \cup {b}, [Now.broker EXCEPT ![b] = @ + 1]))
  /\ life' = [life EXCEPT ![b] = Now.broker[b] + 1]
  /\ seen' = [seen EXCEPT ![b] = Len(meta')]
  /\ wasUnclean' = (wasUnclean \/ (~HasElr /\ ~isClean[b] /\ Now.isr = {b}))
  /\ UNCHANGED <<isClean, logs, facts>>

\* "The change of an ISR is taken from the leader of this epoch, made by the newest version of the partition, with members
\* that are not fenced and still the processes that the leader means" (KIP-497, KIP-841, KIP-903).
Accept(p) ==
  /\ p \notin refused
  /\ p.epoch = Now.epoch
  /\ p.version = Now.version
  /\ \A m \in p.isr : m \notin Now.fenced
  /\ \A m \in p.isr : Now.broker[m] = p.broker[m]
  /\ Decide(After(p.isr, {}, Now.fenced, Now.broker))
  /\ UNCHANGED <<brokers, logs, facts, wasUnclean>>

\* "The controller says no if a member was fenced, or another process, at any moment of this version. That is final."
Refuse(p) ==
  /\ p \in proposals \ refused
  /\ \E at \in 1..Len(meta) : meta[at].version = p.version /\ \E m \in p.isr : m \in meta[at].fenced \/ meta[at].broker[m] # p.broker[m]
  /\ refused' = refused \cup {p}
  /\ UNCHANGED <<meta, brokers, logs, fetches, proposals, ledger, wasUnclean>>

\* "If nobody is in sync or eligible, an administrator may let any replica lead. What it lacks is lost."
ElectUnclean(b) ==
  /\ MayBeUnclean
  /\ Now.leader = None /\ b \notin Now.fenced
  /\ meta' = Append(meta, [Now EXCEPT !.leader = b, !.isr = {b}, !.elr = {}, !.epoch = @ + 1, !.version = @ + 1])
  /\ wasUnclean' = TRUE
  /\ UNCHANGED <<brokers, logs, facts>>

\* "If nobody is in sync or eligible, the last leader leads again as soon as it is back" (KIP-966), whatever it has lost.
LastKnown == LET led == {at \in 1..Len(meta) : meta[at].leader # None} IN meta[Max(led)].leader

LeadAgain(b) ==
  /\ HasElr /\ Now.leader = None /\ Now.isr = {} /\ Now.elr = {}
  /\ b = LastKnown /\ b \in Now.fenced /\ Now.broker[b] > 0
  /\ meta' = Append(meta, [Now EXCEPT !.leader = b, !.isr = {b}, !.fenced = @ \ {b}, !.epoch = @ + 1, !.version = @ + 1])
  /\ wasUnclean' = TRUE
  /\ UNCHANGED <<brokers, logs, facts>>

\* "An administrator may ask for another leader, which must be in sync."
Prefer(b) ==
  /\ b \in Now.isr \ (Now.fenced \cup {Now.leader})
  /\ meta' = Append(meta, [Now EXCEPT !.leader = b, !.epoch = @ + 1, !.version = @ + 1])
  /\ UNCHANGED <<brokers, logs, facts, wasUnclean>>

\* "A broker tells in which of its directories a replica is": the version rises, as with each change.
Report(b) ==
  /\ meta' = Append(meta, [Now EXCEPT !.version = @ + 1])
  /\ UNCHANGED <<brokers, logs, facts, wasUnclean>>

\* "A heartbeat that shuts a broker out, and tells of a failed directory, is two decisions on one state: the second one repeats
\* the first", and names the same leader again.
Repeat ==
  /\ meta' = Append(meta, [Now EXCEPT !.epoch = @ + 1, !.version = @ + 1])
  /\ UNCHANGED <<brokers, logs, facts, wasUnclean>>

-----------------------------------------------------------------------------
(* Brokers *)

As(b) == meta[seen[b]]
IsLeader(b) == life[b] > 0 /\ As(b).leader = b
IsFollower(b) == life[b] > 0 /\ As(b).leader \notin {b, None}
Ledger(b) == ledger[As(b).epoch]

\* "Who replays that it leads a new epoch begins it at the end of its log, with the watermark that it knows."
Replay(b, to) ==
  /\ life[b] > 0 /\ to \in (seen[b] + 1)..Len(meta)
  /\ seen' = [seen EXCEPT ![b] = to]
  /\ LET begins == meta[to].leader = b /\ meta[to].epoch \notin DOMAIN ledger
     IN ledger' = IF begins
          THEN [e \in {meta[to].epoch} |-> [log |-> log[b], hw |-> hw[b], begin |-> Len(log[b])]] @@ ledger
          ELSE ledger
  /\ UNCHANGED <<meta, life, isClean, logs, fetches, proposals, refused, wasUnclean>>

\* A leader writes as long as it does not know better.
Write(b, end) ==
  /\ IsLeader(b)
  /\ end > Len(log[b])
  /\ log' = [log EXCEPT ![b] = @ \o [at \in 1..(end - Len(@)) |-> [epoch |-> As(b).epoch, life |-> life[b]]]]
  /\ ledger' = [ledger EXCEPT ![As(b).epoch].log = log'[b]]
  /\ UNCHANGED <<meta, brokers, flushed, hw, fetches, proposals, refused, wasUnclean>>

Flush(b, end) ==
  /\ end \in (flushed[b] + 1)..Len(log[b])
  /\ flushed' = [flushed EXCEPT ![b] = end]
  /\ UNCHANGED <<meta, brokers, log, hw, facts, wasUnclean>>

\* "A Fetch tells the end of the follower's log", on disk or not, and which process of the broker asks.
MayFetch(b) == IsFollower(b)
FetchOf(b) == [replica |-> b, life |-> life[b], epoch |-> As(b).epoch, last |-> End(b)]

Fetch(b) ==
  /\ MayFetch(b)
  /\ fetches' = fetches \cup {FetchOf(b)}
  /\ UNCHANGED <<meta, brokers, logs, proposals, ledger, refused, wasUnclean>>

IsFollowing(b) == IsFollower(b) /\ As(b).epoch \in DOMAIN ledger

Take(b, end) ==
  /\ IsFollowing(b)
  /\ IsValid(Ledger(b).log, End(b))
  /\ end \in (Len(log[b]) + 1)..Len(Ledger(b).log)
  /\ log' = [log EXCEPT ![b] = @ \o SubSeq(Ledger(b).log, Len(@) + 1, end)]
  /\ UNCHANGED <<meta, brokers, flushed, hw, facts, wasUnclean>>

Hear(b, end) ==
  /\ IsFollowing(b)
  /\ IsValid(Ledger(b).log, End(b))
  /\ hw[b] < end /\ end <= Min(Len(log[b]), Ledger(b).hw)
  /\ hw' = [hw EXCEPT ![b] = end]
  /\ UNCHANGED <<meta, brokers, log, flushed, facts, wasUnclean>>

\* "A follower that diverges cuts its log where the two part, by epochs and not by the high watermark" (KIP-101). After an
\* unclean election that may be below what was committed.
Cut(b) ==
  LET theirs == EndForEpoch(Ledger(b).log, EpochAt(log[b], Len(log[b])))
      mine   == EndForEpoch(log[b], theirs.epoch)
  IN IF mine.epoch = theirs.epoch THEN Min(mine.end, theirs.end) ELSE mine.end

Truncate(b) ==
  /\ IsFollowing(b)
  /\ ~IsValid(Ledger(b).log, End(b))
  /\ log' = [log EXCEPT ![b] = Prefix(@, Cut(b))]
  /\ flushed' = [flushed EXCEPT ![b] = Min(@, Cut(b))]
  /\ hw' = [hw EXCEPT ![b] = Min(@, Cut(b))]
  /\ UNCHANGED <<meta, brokers, facts, wasUnclean>>

-----------------------------------------------------------------------------
(* The leader's ISR *)

\* "A Fetch counts in the leader's epoch, of a log that agrees with the leader's, from the process that is registered": the
\* process before may have had more (KIP-903).
Reached(l, m, end) == m = l \/ \E f \in fetches :
  /\ f.replica = m /\ f.epoch = As(l).epoch
  /\ f.life >= As(l).broker[m]
  /\ f.last.end >= end /\ IsValid(log[l], f.last)

IsPending(l, p) == p \notin refused /\ p.leader = l /\ p.epoch = As(l).epoch /\ p.version = As(l).version
Pending(l) == {p \in proposals : IsPending(l, p)}

\* "A proposed member counts as a member until the controller has decided": it may have said yes.
Maximal(l) == As(l).isr \cup UNION {p.isr : p \in Pending(l)}

\* "Committed is what every member of the maximal ISR has, while the ISR is large enough" (KIP-966).
Commit(l, end) ==
  /\ IsLeader(l)
  /\ end \in (hw[l] + 1)..Len(log[l])
  /\ Cardinality(As(l).isr) >= MinIsr
  /\ \A m \in Maximal(l) : Reached(l, m, end)
  /\ hw' = [hw EXCEPT ![l] = end]
  /\ ledger' = [ledger EXCEPT ![As(l).epoch].hw = end]
  /\ UNCHANGED <<meta, brokers, log, flushed, fetches, proposals, refused, wasUnclean>>

\* "In sync is who has all up to the watermark, and all that the leader had when its epoch began": a new leader's watermark
\* may be behind what was committed.
IsInSync(l, m) ==
  /\ Reached(l, m, hw[l])
  /\ Reached(l, m, Ledger(l).begin)

Propose(l, isr) ==
  /\ IsLeader(l)
  /\ l \in isr
  /\ Pending(l) = {}
  /\ \A m \in isr \ As(l).isr : m \notin As(l).fenced /\ IsInSync(l, m)
  /\ LET p == [leader |-> l, epoch |-> As(l).epoch, version |-> As(l).version, isr |-> isr, broker |-> As(l).broker]
     IN proposals' = proposals \cup {p}
  /\ UNCHANGED <<meta, brokers, logs, fetches, ledger, refused, wasUnclean>>

-----------------------------------------------------------------------------
(* Ends of processes *)

\* "A crash loses any part of the log that is not on disk." The next process knows a watermark that is on its disk.
Crash(b, end, mark) ==
  /\ life[b] > 0
  /\ end \in flushed[b]..Len(log[b])
  /\ mark <= Min(hw[b], end)
  /\ log' = [log EXCEPT ![b] = Prefix(@, end)]
  /\ flushed' = [flushed EXCEPT ![b] = end]
  /\ hw' = [hw EXCEPT ![b] = mark]
  /\ life' = [life EXCEPT ![b] = 0]
  /\ isClean' = [isClean EXCEPT ![b] = FALSE]
  /\ UNCHANGED <<meta, seen, facts, wasUnclean>>

\* "A clean shutdown leaves all on disk."
Stop(b) ==
  /\ life[b] > 0
  /\ flushed' = [flushed EXCEPT ![b] = Len(log[b])]
  /\ life' = [life EXCEPT ![b] = 0]
  /\ isClean' = [isClean EXCEPT ![b] = TRUE]
  /\ UNCHANGED <<meta, seen, log, hw, facts, wasUnclean>>

-----------------------------------------------------------------------------
Init ==
  /\ \E b \in Brokers : meta = <<[leader |-> b, epoch |-> 1, version |-> 1, isr |-> Brokers, elr |-> {},
                                  fenced |-> {}, broker |-> [n \in Brokers |-> 1]]>>
  /\ seen = [b \in Brokers |-> 1] /\ life = [b \in Brokers |-> 1] /\ isClean = [b \in Brokers |-> FALSE]
  /\ log = [b \in Brokers |-> <<>>] /\ flushed = [b \in Brokers |-> 0] /\ hw = [b \in Brokers |-> 0]
  /\ fetches = {} /\ proposals = {} /\ refused = {}
  /\ ledger = [e \in {1} |-> [log |-> <<>>, hw |-> 0, begin |-> 0]]
  /\ wasUnclean = FALSE

OfController(b) == Fence(b) \/ Unfence(b) \/ Register(b) \/ ElectUnclean(b) \/ LeadAgain(b)
OnRequest(b) == Prefer(b) \/ Report(b) \/ Repeat
OfProposals == \E p \in proposals : Accept(p) \/ Refuse(p)
OfLogs(b) ==
  \/ Write(b, Len(log[b]) + 1) \/ Fetch(b) \/ Truncate(b)
  \/ \E to \in 1..Len(meta) : Replay(b, to)
  \/ \E end \in 1..Max({Len(log[m]) : m \in Brokers}) : Flush(b, end) \/ Take(b, end) \/ Hear(b, end) \/ Commit(b, end)
OfIsr(b) == \E m \in Brokers \ {b} : Propose(b, As(b).isr \cup {m}) \/ Propose(b, As(b).isr \ {m})
OfProcesses(b) == Stop(b) \/ \E end \in 0..Len(log[b]), mark \in 0..hw[b] : Crash(b, end, mark)

Next == OfProposals \/ \E b \in Brokers : OfController(b) \/ OnRequest(b) \/ OfLogs(b) \/ OfIsr(b) \/ OfProcesses(b)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties. They are promised as long as nobody was elected uncleanly, but for `LogsMatch`.                       *)

Committed(e) == Prefix(ledger[e].log, ledger[e].hw)

\* Two brokers that lead one epoch are one broker.
OneLeaderPerEpoch == \A a, b \in Brokers : IsLeader(a) /\ IsLeader(b) /\ As(a).epoch = As(b).epoch => a = b

\* Two logs with a record of one epoch at one offset are equal up to there.
LogsMatch == \A n, m \in Brokers : \A i \in 1..Min(Len(log[n]), Len(log[m])) :
  log[n][i].epoch = log[m][i].epoch => Prefix(log[n], i) = Prefix(log[m], i)

\* A leader has what the leaders before it have committed.
LeadersAreComplete == wasUnclean \/ \A e, f \in DOMAIN ledger : e < f => IsPrefix(Committed(e), ledger[f].log)

\* Whoever may be elected has all that is committed. A process that has lost records is known to the controller when the
\* next one is registered.
ElectableAreComplete == wasUnclean \/ \A b \in Now.isr \cup Now.elr :
  life[b] > 0 \/ isClean[b] => \A e \in DOMAIN ledger : IsPrefix(Committed(e), log[b])

\* A broker takes for committed what is committed.
WatermarksAreCommitted == wasUnclean \/ \A b \in Brokers : hw[b] > 0 =>
  \E e \in DOMAIN ledger : IsPrefix(Prefix(log[b], hw[b]), Committed(e))

\* The leader and the ISR are in service; ISR and ELR are apart, and nobody is eligible while enough are in sync.
StateIsSound ==
  /\ Now.leader # None => Now.leader \in Now.isr
  /\ HasElr => Now.isr \cap Now.fenced = {}
  /\ Now.isr \cap Now.elr = {}
  /\ Cardinality(Now.isr) >= ControllerMinIsr => Now.elr = {}

\* A watermark does not fall while its process runs, and nothing below it is cut.
WatermarksRise == [][wasUnclean' \/ \A b \in Brokers : life'[b] = life[b] => hw'[b] >= hw[b] /\ Len(log'[b]) >= hw[b]]_vars

\* The epochs of the partition never fall, and one of them rises with each change.
EpochsRise == [][meta' # meta => LET n == meta'[Len(meta')] IN
  /\ n.epoch >= Now.epoch /\ n.version >= Now.version
  /\ n.leader # Now.leader => n.epoch > Now.epoch
  /\ n.isr # Now.isr => n.version > Now.version]_vars
=============================================================================

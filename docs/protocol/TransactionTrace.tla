-------------------------- MODULE TransactionTrace --------------------------
(* Whether runs of coordinators and partitions are behaviours of Transaction.tla. The module TransactionRuns is written for
   them: `Runs` has for each transactional id a sequence of steps: what processes have sent, what the coordinator has
   committed, and what each partition has committed. Which markers were sent, and which permissions a leader has got, is
   not told: both only enable, so each is there as soon as it may be.                                               *)
EXTENDS Transaction, TransactionRuns

VARIABLES
  run, at,
  decided    \* the ends that were decided: the epoch after each, and its kind
all == <<vars, run, at, decided>>

Untold ==
  \/ \E p \in txn.parts : SendMarker(p) /\ markers' # markers
  \/ \E r \in sent : r.epoch = txn.epoch /\ Verify(r) /\ txn' = txn /\ guards' # guards

Says(t) == sent' = sent \cup {[part |-> t.part, kind |-> "Data", epoch |-> t.epoch, t |-> t.t, seq |-> t.seq]}

\* Something of an earlier epoch, or from before a transaction, that arrives late.
Stray(t) ==
  /\ t.epoch <= txn.epoch /\ t.t = None
  /\ Says(t)
  /\ UNCHANGED <<txn, process, log, newest, guards, markers, told, begun>>

\* The offsets of a group have no numbers: what is sent again is another record, and its process does not wait for it.
Again(t) ==
  /\ \E r \in sent : r.part = t.part /\ r.epoch = t.epoch /\ r.t = t.t
  /\ Says(t)
  /\ process' = [i \in Processes |->
       IF process[i].epoch = t.epoch THEN [process[i] EXCEPT !.next[t.part] = @ + 1] ELSE process[i]]
  /\ UNCHANGED <<txn, log, newest, guards, markers, told, begun>>

\* A process may be told of an abort that was not its own: who asks for the end of an aborted transaction in the epoch before
\* gets the epoch after it. So any abort may have been that of the process.
Ended(t) ==
  \/ t.kind = "Abort" /\ FenceOngoing
  \/ t.kind = "Abort" /\ \E i \in Processes : process[i].epoch # None /\ AbortNothing(i)
  \/ (t.kind = "Commit" => t.was_asked) /\ \E i \in Processes : process[i].epoch # None /\ EndTxn(i, t.kind)

\* A marker that comes again, where nothing is open, changes nothing but the permissions.
MarkAgain(m) ==
  /\ m.epoch = newest[m.part] /\ ~IsOpen(m.part)
  /\ guards' = {g \in guards : g.part # m.part \/ (Version = 2 /\ g.epoch >= m.epoch)}
  /\ UNCHANGED <<txn, process, log, newest, sent, markers, told, begun>>

\* "Who has asked for an end is told of success only if the transaction has ended so": in version 2 with the next epoch.
IsDecided(t) == <<t.epoch + 1, t.kind>> \in decided \/ (Version = 1 /\ <<t.epoch, t.kind>> \in decided)

Told(t) ==
  CASE t.what = "Init"    -> InitProducerId(t.who)
    [] t.what = "Begin"   -> \E i \in Processes : process[i].epoch = t.epoch /\ Begin(i)
    [] t.what = "Produce" -> \E i \in Processes : process[i].epoch = t.epoch /\ process[i].t = t.t /\ Produce(i, t.part)
    [] t.what = "Stray"   -> Stray(t)
    [] t.what = "Again"   -> Again(t)
    [] t.what = "Add"     -> \/ \E i \in Processes : process[i].epoch = t.epoch /\ AddPartition(i, t.part)
                             \/ \E r \in sent : r.part = t.part /\ r.epoch = t.epoch /\ Version = 2 /\ Verify(r)
    [] t.what = "End"     -> Ended(t)
    [] t.what = "Finish"  -> Finish
    [] t.what = "Take"    -> \E r \in sent : r.part = t.part /\ r.epoch = t.epoch /\ r.t = t.t /\ r.seq = t.seq /\ Take(r)
    [] t.what = "Mark"    -> \E m \in markers : /\ m.part = t.part /\ m.epoch = t.epoch /\ m.kind = t.kind
                                                /\ Mark(m) \/ MarkAgain(m)
    [] t.what = "Told"    -> IsDecided(t) /\ UNCHANGED vars

Decisions == {"Init", "Add", "End", "Finish"}
EpochAfter(t)  == t.what \in Decisions => txn'.epoch = t.epoch
StateAfter(t)  == t.what = "Finish" => txn'.state = "Complete" \o t.kind
BegunAfter(t)  == t.what = "Begin" => begun' = t.t
NumberAfter(t) == t.what = "Produce" =>
  [part |-> t.part, kind |-> "Data", epoch |-> t.epoch, t |-> t.t, seq |-> t.seq] \in sent'

Shows(t) == EpochAfter(t) /\ StateAfter(t) /\ BegunAfter(t) /\ NumberAfter(t)

\* Whether an abort was that of the process is the only choice.
Place == <<run, at, process, guards, markers>>

TraceInit == run \in 1..Len(Runs) /\ at = 0 /\ decided = {} /\ Init

TraceNext ==
  IF ENABLED Untold THEN Untold /\ UNCHANGED <<run, at, decided>>
  ELSE /\ at < Len(Runs[run])
       /\ at' = at + 1 /\ run' = run
       /\ LET t == Runs[run][at + 1] IN
            /\ Told(t) /\ Shows(t)
            /\ decided' = IF t.what = "End" THEN decided \cup {<<t.epoch, t.kind>>} ELSE decided
       /\ at' = Len(Runs[run]) => PrintT(<<"whole", run>>)

\* For a run that is no behaviour: the step that is refused, and the state before.
Refused ==
  /\ ~ENABLED Untold
  /\ at < Len(Runs[run])
  /\ LET t == Runs[run][at + 1]
         ok(F) == IF F THEN "holds" ELSE "fails"
     IN /\ ~ENABLED (Told(t) /\ Shows(t) /\ UNCHANGED <<run, at, decided>>)
        /\ PrintT(<<"refused", run, at + 1>>)
        /\ PrintT(<<"step", t>>)
        /\ PrintT(<<"before", txn>>)
        /\ PrintT(<<"before", [p \in Partitions |-> [is_open |-> IsOpen(p), newest |-> newest[p], last |->
             IF log[p] = <<>> THEN None ELSE log[p][Len(log[p])]]]>>)
        /\ PrintT(<<"before", {i \in Processes : process[i].epoch = txn.epoch}, guards>>)
        /\ IF ~ENABLED (Told(t) /\ UNCHANGED <<run, at, decided>>) THEN PrintT(<<"formula", t.what, "fails">>)
           ELSE /\ PrintT(<<"formula", "EpochAfter", ok(ENABLED (Told(t) /\ EpochAfter(t) /\ UNCHANGED <<run, at, decided>>))>>)
                /\ PrintT(<<"formula", "StateAfter", ok(ENABLED (Told(t) /\ StateAfter(t) /\ UNCHANGED <<run, at, decided>>))>>)
                /\ PrintT(<<"formula", "BegunAfter", ok(ENABLED (Told(t) /\ BegunAfter(t) /\ UNCHANGED <<run, at, decided>>))>>)
                /\ PrintT(<<"formula", "NumberAfter", ok(ENABLED (Told(t) /\ NumberAfter(t) /\ UNCHANGED <<run, at, decided>>))>>)
  /\ UNCHANGED all

\* Each state of a run is looked at, so the end of a log is enough: `OneAtATime` and `EpochsRise` there, and a marker ends
\* records of its own transaction only.
TailIsSound == \A p \in Partitions :
  LET l == log[p]
      n == Len(l)
  IN n >= 2 => /\ l[n - 1].epoch <= l[n].epoch
               /\ l[n - 1].kind = "Data" => l[n - 1].t = l[n].t

TraceSpec == TraceInit /\ [][TraceNext]_all
ExplainedSpec == TraceInit /\ [][TraceNext \/ Refused]_all
=============================================================================

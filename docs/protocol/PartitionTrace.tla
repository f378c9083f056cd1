--------------------------- MODULE PartitionTrace ---------------------------
(* Whether runs of brokers are behaviours of Partition.tla. The module PartitionRuns is written for them: `Runs` has for
   each partition its first state and a sequence of steps. A step says who did what, and the state after. A decision of
   the controllers says its outcome only: which action it was is for the specification to say.                       *)
EXTENDS Partition, PartitionRuns

VARIABLES run, at
all == <<vars, run, at>>

Takes(t) ==
  CASE t.what = "Decide"   -> (\E p \in proposals : Accept(p)) \/ \E b \in Brokers : OfController(b) \/ OnRequest(b)
    [] t.what = "Replay"   -> Replay(t.who, t.to)
    [] t.what = "Write"    -> Write(t.who, t.end)
    [] t.what = "Flush"    -> Flush(t.who, t.end)
    [] t.what = "Fetch"    -> Fetch(t.who)
    [] t.what = "Take"     -> Take(t.who, t.end)
    [] t.what = "Hear"     -> Hear(t.who, t.end)
    [] t.what = "Truncate" -> Truncate(t.who) /\ Cut(t.who) = t.end
    [] t.what = "Commit"   -> Commit(t.who, t.end)
    [] t.what = "Refuse"   -> \E p \in Pending(t.who) : Refuse(p)
    [] t.what = "Propose"  -> Propose(t.who, t.set)
    [] t.what = "Crash"    -> Crash(t.who, t.end, t.mark)
    [] t.what = "Stop"     -> Stop(t.who) /\ t.end = Len(log[t.who]) /\ t.mark = hw[t.who]
    [] OTHER               -> UNCHANGED vars

DecisionAfter(t)  == t.what = "Decide" => meta'[Len(meta')] = t.state
LeadsAfter(t)     == t.is_last => t.leads = (life'[t.who] > 0 /\ meta'[seen'[t.who]].leader = t.who)
EpochAfter(t)     == t.is_last => meta'[seen'[t.who]].epoch = t.epoch
VersionAfter(t)   == t.is_last => meta'[seen'[t.who]].version = t.version
EndAfter(t)       == t.is_last => Len(log'[t.who]) = t.log_end
LastEpochAfter(t) == t.is_last /\ t.last_epoch >= 0 => EpochAt(log'[t.who], Len(log'[t.who])) = t.last_epoch
WatermarkAfter(t) == t.is_last => hw'[t.who] = t.watermark
MembersAfter(t)   == t.what = "Propose" => \A m \in t.set : t.lives[m] \in {-1, As(t.who).broker[m]}

Shows(t) ==
  /\ DecisionAfter(t) /\ LeadsAfter(t) /\ EpochAfter(t) /\ VersionAfter(t) /\ EndAfter(t) /\ LastEpochAfter(t)
  /\ WatermarkAfter(t) /\ MembersAfter(t)

\* A trace leaves hardly a choice, so its place tells the state.
Place == <<run, at>>

TraceInit ==
  /\ run \in 1..Len(Runs) /\ at = 0
  /\ meta = <<Runs[run].first>>
  /\ seen = [b \in Brokers |-> 1] /\ life = Runs[run].lives /\ isClean = [b \in Brokers |-> FALSE]
  /\ log = [b \in Brokers |-> <<>>] /\ flushed = [b \in Brokers |-> 0] /\ hw = [b \in Brokers |-> 0]
  /\ fetches = {} /\ proposals = {} /\ refused = {}
  /\ ledger = [e \in {Runs[run].first.epoch} |-> [log |-> <<>>, hw |-> 0, begin |-> 0]]
  /\ wasUnclean = FALSE

TraceNext ==
  /\ at < Len(Runs[run].steps)
  /\ at' = at + 1 /\ run' = run
  /\ LET t == Runs[run].steps[at + 1] IN Takes(t) /\ Shows(t)
  /\ at' = Len(Runs[run].steps) => PrintT(<<"whole", run>>)

\* For a run that is no behaviour: the step that is refused, and for each formula whether it holds.
Refused ==
  /\ at < Len(Runs[run].steps)
  /\ LET t == Runs[run].steps[at + 1]
         n == t.who
         ok(F) == IF F THEN "holds" ELSE "fails"
     IN /\ ~ENABLED (Takes(t) /\ Shows(t) /\ UNCHANGED <<run, at>>)
        /\ PrintT(<<"refused", run, at + 1>>)
        /\ PrintT(<<"step", t>>)
        /\ PrintT(<<"before", Now>>)
        /\ n # None => PrintT(<<"before", [seen |-> seen[n], life |-> life[n], as |-> As(n), end |-> Len(log[n]),
             last_epoch |-> EpochAt(log[n], Len(log[n])), flushed |-> flushed[n], watermark |-> hw[n],
             pending |-> Pending(n), is_clean |-> isClean[n]]>>)
        /\ PrintT(<<"formula", t.what, ok(ENABLED (Takes(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "DecisionAfter", ok(ENABLED (Takes(t) /\ DecisionAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "LeadsAfter", ok(ENABLED (Takes(t) /\ LeadsAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "EpochAfter", ok(ENABLED (Takes(t) /\ EpochAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "VersionAfter", ok(ENABLED (Takes(t) /\ VersionAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "EndAfter", ok(ENABLED (Takes(t) /\ EndAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "LastEpochAfter", ok(ENABLED (Takes(t) /\ LastEpochAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "WatermarkAfter", ok(ENABLED (Takes(t) /\ WatermarkAfter(t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "MembersAfter", ok(ENABLED (Takes(t) /\ MembersAfter(t) /\ UNCHANGED <<run, at>>))>>)
  /\ UNCHANGED all

TraceSpec == TraceInit /\ [][TraceNext]_all
ExplainedSpec == TraceInit /\ [][TraceNext \/ Refused]_all
=============================================================================

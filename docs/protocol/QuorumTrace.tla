---------------------------- MODULE QuorumTrace ----------------------------
(* Whether runs of real code are behaviours of Quorum.tla. The module Runs is written for them: `Runs` has a sequence of
   steps for each run, `Replicas` and `First` are those of all of them. A step says who did what, and the state after:
   role and epoch of every step, the rest where the code shows it, at the end of its turn.                            *)
EXTENDS Quorum, Runs

VARIABLES run, at
all == <<vars, run, at>>

Takes(n, t) ==
  CASE t.what = "Nominate"     -> Nominate(n)
    [] t.what = "Ask"          -> Ask(n) /\ t.last = EndOf(log[n], flushed[n])
    [] t.what = "GrantPreVote" -> \E b \in ballots : b.candidate = t.to /\ GrantPreVote(n, b)
    [] t.what = "GrantVote"    -> \E b \in ballots : b.candidate = t.to /\ GrantVote(n, b)
    [] t.what = "Stand"        -> Stand(n)
    [] t.what = "StandAlone"   -> StandAlone(n)
    [] t.what = "Win"          -> Win(n)
    [] t.what = "GiveUp"       -> GiveUp(n)
    [] t.what = "LearnEpoch"   -> LearnEpoch(n, t.last.end)
    [] t.what = "LearnLeader"  -> LearnLeader(n, t.last.end)
    [] t.what = "Resign"       -> Resign(n)
    [] t.what = "Leave"        -> Leave(n)
    [] t.what = "AppendData"   -> AppendData(n, t.last.end - Len(log[n]))
    [] t.what = "ChangeVoters" -> ChangeVoters(n, t.set)
    [] t.what = "AnswerChange" -> AnswerChange(n)
    [] t.what = "Flush"        -> Flush(n, t.last.end)
    [] t.what = "Fetch"        -> Fetch(n) /\ t.last = End(n)
    [] t.what = "Take"         -> Take(n, t.last.end)
    [] t.what = "Hear"         -> Hear(n, t.last.end)
    [] t.what = "Truncate"     -> Truncate(n) /\ Cut(n) = t.last.end
    [] t.what = "Commit"       -> Commit(n, t.last.end)
    [] t.what = "Snapshot"     -> Snapshot(n, t.last.end)
    [] t.what = "Clean"        -> Clean(n, t.last.end)
    [] t.what = "Install"      -> Install(n, t.last.end)
    [] t.what = "Restart"      -> Restart(n, t.last.end, t.begin)
    [] OTHER                   -> UNCHANGED vars

Num(m) == IF m = None THEN -1 ELSE Id[m]

RoleAfter(n, t)      == role'[n] = t.role
EpochAfter(n, t)     == epoch'[n] = t.epoch
LeaderAfter(n, t)    == t.is_last => t.leader = Num(leader'[n])
VoteAfter(n, t)      == t.is_last => vote'[n] = (IF t.vote = "none" THEN None ELSE t.vote)
EndAfter(n, t)       == t.is_last => Len(log'[n]) = t.end
LastEpochAfter(n, t) == t.is_last => LastEpoch(log'[n]) = t.last_epoch
WatermarkAfter(n, t) == t.is_last => hw'[n] = t.watermark
StartAfter(n, t)     == t.is_last => start'[n] = t.start
VotersAfter(n, t)    == t.is_last => VotersIn(First[n], log'[n]) = t.voters

\* "Epoch, leader and vote are on disk before anybody can know of them": at the end of a turn the disk has what the replica
\* knows, and a start finds what was there.
DiskAfter(n, t) == t.is_last => t.disk =
  IF t.what = "Restart" THEN <<epoch[n], Num(leader[n]), Num(vote[n])>> ELSE <<epoch'[n], Num(leader'[n]), Num(vote'[n])>>

After(n, t) ==
  /\ RoleAfter(n, t) /\ EpochAfter(n, t) /\ LeaderAfter(n, t) /\ VoteAfter(n, t) /\ EndAfter(n, t)
  /\ LastEpochAfter(n, t) /\ WatermarkAfter(n, t) /\ StartAfter(n, t) /\ VotersAfter(n, t)
  /\ DiskAfter(n, t)

\* A trace leaves no choice, so its place tells the state.
Place == <<run, at>>

TraceInit == Init /\ run \in 1..Len(Runs) /\ at = 0

TraceNext ==
  /\ at < Len(Runs[run])
  /\ at' = at + 1 /\ run' = run
  /\ LET t == Runs[run][at + 1] IN Takes(t.who, t) /\ After(t.who, t)
  /\ at' = Len(Runs[run]) => PrintT(<<"whole", run>>)

\* For a run that is no behaviour: the step that is refused, and for each formula whether it holds.
Refused ==
  /\ at < Len(Runs[run])
  /\ LET t == Runs[run][at + 1]
         n == t.who
         ok(F) == IF F THEN "holds" ELSE "fails"
     IN /\ ~ENABLED (Takes(n, t) /\ After(n, t) /\ UNCHANGED <<run, at>>)
        /\ PrintT(<<"refused", run, at + 1>>)
        /\ PrintT(<<"step", t>>)
        /\ PrintT(<<"before", [role |-> role[n], epoch |-> epoch[n], leader |-> leader[n], vote |-> vote[n],
                    end |-> Len(log[n]), last_epoch |-> LastEpoch(log[n]), flushed |-> flushed[n], watermark |-> hw[n],
                    start |-> start[n], voters |-> Voters(n)]>>)
        /\ PrintT(<<"formula", t.what, ok(ENABLED (Takes(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "RoleAfter", ok(ENABLED (Takes(n, t) /\ RoleAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "EpochAfter", ok(ENABLED (Takes(n, t) /\ EpochAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "LeaderAfter", ok(ENABLED (Takes(n, t) /\ LeaderAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "VoteAfter", ok(ENABLED (Takes(n, t) /\ VoteAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "EndAfter", ok(ENABLED (Takes(n, t) /\ EndAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "LastEpochAfter", ok(ENABLED (Takes(n, t) /\ LastEpochAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "WatermarkAfter", ok(ENABLED (Takes(n, t) /\ WatermarkAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "StartAfter", ok(ENABLED (Takes(n, t) /\ StartAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "DiskAfter", ok(ENABLED (Takes(n, t) /\ DiskAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
        /\ PrintT(<<"formula", "VotersAfter", ok(ENABLED (Takes(n, t) /\ VotersAfter(n, t) /\ UNCHANGED <<run, at>>))>>)
  /\ UNCHANGED all

TraceSpec == TraceInit /\ [][TraceNext]_all
ExplainedSpec == TraceInit /\ [][TraceNext \/ Refused]_all
=============================================================================

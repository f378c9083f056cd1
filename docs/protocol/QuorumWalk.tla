---------------------------- MODULE QuorumWalk ----------------------------
(* Behaviours of Quorum.tla for the core to follow (bench/behaviours.py): TLC walks at random and writes them down. Each
   state names the step that led to it. Snapshots, changes of the voters and old releases are left out, and so is a
   leader whose address is unknown.

   With `Polite` a walk has only steps that a core takes. Each formula under "Manners" is one thing that the protocol
   allows and a core does not do, with the reason.                                                                    *)
EXTENDS Quorum

CONSTANTS MaxEpoch, MaxEnd, MaxLives, Polite

VARIABLES
  step,    \* who did what
  heard,   \* the followers that have an answer of their leader
  fresh    \* whose grants have arrived since a nominee has asked
walk == <<vars, step, heard, fresh>>

Everybody == [n \in Replicas |-> Replicas]
Step(n, what, to, end) == step' = [who |-> n, what |-> what, to |-> to, end |-> end]

-----------------------------------------------------------------------------
(* Manners *)

\* A leader commits all that a majority has, as soon as it knows.
IsOnMajority(n, end) == IsMajority({m \in Voters(n) : Has(n, m, end)}, Voters(n))
Largest(n, end) == \A more \in (end + 1)..Len(log[n]) : ~IsOnMajority(n, more)
MayCommit(n) ==
  role[n] = "Leader" /\ \E end \in (hw[n] + 1)..Len(log[n]) : EpochAt(log[n], end) = epoch[n] /\ IsOnMajority(n, end)

\* In one turn: a new leader writes its first record, a resigned one that leaves its epoch is nominated, and a leader
\* commits what its fsync has completed.
InOneTurn(n, what) ==
  /\ step.what = "Win"   => n = step.who /\ what = "AppendData"
  /\ step.what = "Leave" => n = step.who /\ what = "Nominate"
  /\ step.what = "Flush" /\ MayCommit(step.who) => n = step.who /\ what = "Commit"

\* A follower that has heard its leader refuses pre-votes: they would disturb a working leader.
RefusesPreVotes(n) == role[n] = "Follower" /\ heard[n]

\* A vote counts for the round in which it was asked for: answers to earlier requests are dropped.
InThisRound(n) == IsMajority({n} \cup fresh[n], Voters(n))

\* A nominee that knows the leader of its epoch is not told of it again: it gives up by its own count.
KnowsLeader(n, e) == e = epoch[n] /\ leader[n] # None

\* Nominees, candidates and leaders that have resigned fetch nothing.
Fetches(n) == role[n] \in {"Follower", "Unattached"}

\* A follower asks for more when the last records are on disk, so no answer comes before.
MayBeAnswered(n) == flushed[n] = Len(log[n])

May(n, what, rule) == Polite => InOneTurn(n, what) /\ rule

\* A walk that takes any step as often as any other one is all nominations and crashes, and comes to no commit.
Rarely(n, often) == RandomElement(1..(often + 0 * epoch[n])) = 1
Calm == \E n \in Replicas : role[n] \in {"Prospective", "Candidate", "Leader"}

-----------------------------------------------------------------------------
Forgets(n) == heard' = [heard EXCEPT ![n] = FALSE] /\ fresh' = [fresh EXCEPT ![n] = {}]
Hears(n)   == heard' = [heard EXCEPT ![n] = TRUE] /\ UNCHANGED fresh
Stays      == UNCHANGED <<heard, fresh>>
IsBallot(b) == epoch[b.candidate] = b.epoch /\ role[b.candidate] = (IF b.pre THEN "Prospective" ELSE "Candidate")
Gives(v, b) ==
  /\ fresh' = IF IsBallot(b) THEN [fresh EXCEPT ![b.candidate] = @ \cup {v}] ELSE fresh
  /\ <<fresh', grants', vote'>> # <<fresh, grants, vote>>
  /\ UNCHANGED heard

WalkOfElections(n) ==
  \/ Nominate(n) /\ (Calm /\ step.what # "Leave" => Rarely(n, 20)) /\ May(n, "Nominate", TRUE) /\ Forgets(n) /\ Step(n, "Nominate", None, 0)
  \/ Ask(n) /\ ballots' # ballots /\ May(n, "Ask", TRUE) /\ Stays /\ Step(n, "Ask", None, flushed[n])
  \/ Stand(n) /\ epoch[n] < MaxEpoch /\ May(n, "Stand", InThisRound(n)) /\ Forgets(n) /\ Step(n, "Stand", None, 0)
  \/ Win(n) /\ Len(log[n]) < MaxEnd /\ May(n, "Win", InThisRound(n)) /\ Forgets(n) /\ Step(n, "Win", None, 0)
  \/ GiveUp(n) /\ (leader[n] = None \/ role'[n] = "Follower") /\ Rarely(n, 12)
     /\ May(n, "GiveUp", TRUE) /\ Forgets(n) /\ Step(n, "GiveUp", None, 0)
  \/ Resign(n) /\ Rarely(n, 40) /\ May(n, "Resign", TRUE) /\ Forgets(n) /\ Step(n, "Resign", None, 0)
  \/ Leave(n) /\ epoch[n] < MaxEpoch /\ May(n, "Leave", TRUE) /\ Forgets(n) /\ Step(n, "Leave", None, 0)
  \/ \E b \in ballots : GrantPreVote(n, b) /\ May(n, "GrantPreVote", ~RefusesPreVotes(n)) /\ Gives(n, b)
       /\ Step(n, "GrantPreVote", b.candidate, b.last.end)
  \/ \E b \in ballots : GrantVote(n, b) /\ May(n, "GrantVote", TRUE) /\ Gives(n, b)
       /\ Step(n, "GrantVote", b.candidate, b.last.end)
  \/ \E m \in Replicas : LearnEpoch(n, epoch[m]) /\ Rarely(n, 4) /\ May(n, "LearnEpoch", TRUE) /\ Forgets(n)
       /\ Step(n, "LearnEpoch", m, epoch[m])
  \/ \E e \in DOMAIN ledger : LearnLeader(n, e) /\ May(n, "LearnLeader", ~KnowsLeader(n, e)) /\ Forgets(n)
       /\ Step(n, "LearnLeader", leader'[n], e)

WalkOfLogs(n) ==
  \/ AppendData(n, 1) /\ Len(log[n]) < MaxEnd /\ May(n, "AppendData", TRUE) /\ Stays
       /\ Step(n, "AppendData", None, Len(log[n]) + 1)
  \/ Flush(n, Len(log[n])) /\ May(n, "Flush", TRUE) /\ Stays /\ Step(n, "Flush", None, Len(log[n]))
  \/ Fetch(n) /\ fetches' # fetches /\ May(n, "Fetch", Fetches(n)) /\ Stays /\ Step(n, "Fetch", None, Len(log[n]))
  \/ Truncate(n) /\ May(n, "Truncate", MayBeAnswered(n)) /\ Hears(n) /\ Step(n, "Truncate", None, Cut(n))
  \/ \E end \in 1..MaxEnd : Take(n, end) /\ May(n, "Take", MayBeAnswered(n)) /\ Hears(n) /\ Step(n, "Take", None, end)
  \/ \E end \in 1..MaxEnd : Hear(n, end) /\ May(n, "Hear", MayBeAnswered(n)) /\ Hears(n) /\ Step(n, "Hear", None, end)
  \/ \E end \in 1..MaxEnd : Commit(n, end) /\ May(n, "Commit", Largest(n, end)) /\ Stays /\ Step(n, "Commit", None, end)

WalkOfCrashes(n) ==
  \/ \E end \in 0..Len(log[n]) : Restart(n, end, 0) /\ Rarely(n, 30) /\ lives[n] < MaxLives
       /\ (role'[n] = "Unattached" => leader'[n] = None)
       /\ May(n, "Restart", TRUE) /\ Forgets(n) /\ Step(n, "Restart", None, end)

WalkInit ==
  /\ Init /\ step = [who |-> None, what |-> "Init", to |-> None, end |-> 0]
  /\ heard = [n \in Replicas |-> FALSE] /\ fresh = [n \in Replicas |-> {}]

\* For when only rare steps are left.
Wait == step.what \notin {"Win", "Leave", "Flush"} /\ UNCHANGED <<vars, heard, fresh>> /\ Step(None, "Wait", None, 0)

WalkNext == Wait \/ \E n \in Replicas : WalkOfElections(n) \/ WalkOfLogs(n) \/ WalkOfCrashes(n)
WalkSpec == WalkInit /\ [][WalkNext]_walk
=============================================================================

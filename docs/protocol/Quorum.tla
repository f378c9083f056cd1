------------------------------- MODULE Quorum -------------------------------
(* The consensus of a KRaft quorum: elections with pre-votes, replication by fetching, commits, snapshots, changes of
   the voters, crashes. KIP-595, KIP-630, KIP-853, KIP-996; README.md beside this file says what is left out.

   A message that was sent is a fact: it may arrive late, twice or never, but it does not become untrue. So the network
   is three sets of facts, `ballots`, `grants` and `fetches`, and `ledger`, the log of each epoch's leader as anybody
   could have read it so far. Whoever receives a message reads a fact.

   Offsets count from 1 here, and an "end" is the number of records: the end of <<a, b>> is 2.                       *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Replicas,         \* one for each disk: a node with a new disk (directory id) is another replica
  First,            \* the voters that each replica knows by its configuration or its formatted directory
  NoPreVotes,       \* the replicas of old releases that do not know pre-votes
  None              \* no replica

VARIABLES
  role,             \* "Unattached", "Prospective", "Candidate", "Leader", "Follower" or "Resigned"
  epoch, leader,    \* the known epoch, and its leader if known
  vote,             \* the vote of this epoch
  log,              \* the records, with those that snapshots have replaced
  flushed,          \* how much of the log an fsync has put on disk
  hw,               \* the high watermark: how much of the log is known to be committed; 0 while it is unknown
  start,            \* how much of the log only a snapshot holds
  snaps,            \* the ends of the snapshots that a replica has made or fetched
  lives,            \* how often a replica was started again
  ballots, grants, fetches, ledger, elected          \* what was sent; `elected` has every election that was won

election == <<role, epoch, leader, vote>>
disk     == <<log, flushed, hw, start, snaps, lives>>
facts    == <<ballots, grants, fetches, ledger, elected>>
vars     == <<election, disk, facts>>

Roles == {"Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned"}

-----------------------------------------------------------------------------
(* Logs. A record has the epoch of its leader. `life` tells two records apart that one leader has written at one offset
   before and after a crash; no replica reads it. `voters` is the set of a VotersRecord, and None in other records.  *)

Max(S) == CHOOSE a \in S : \A b \in S : b <= a
Min(a, b) == IF a < b THEN a ELSE b
Prefix(l, end) == SubSeq(l, 1, end)
IsPrefix(a, b) == Len(a) <= Len(b) /\ a = Prefix(b, Len(a))
EpochAt(l, end) == IF end = 0 THEN 0 ELSE l[end].epoch
LastEpoch(l) == EpochAt(l, Len(l))

\* Logs are compared by the epoch of the last record, then by the end.
AtLeast(a, b) == a.epoch > b.epoch \/ (a.epoch = b.epoch /\ a.end >= b.end)
EndOf(l, end) == [epoch |-> EpochAt(l, end), end |-> end]

\* "A change of the voters is in force as soon as its record is in the log, committed or not" (KIP-853).
VotersEnd(l, end) == Max({0} \cup {i \in 1..end : l[i].voters # None})
VotersIn(first, l) == LET at == VotersEnd(l, Len(l)) IN IF at = 0 THEN first ELSE l[at].voters
Voters(n) == VotersIn(First[n], log[n])
IsMajority(Q, V) == 2 * Cardinality(Q \cap V) > Cardinality(V)

\* A replica that the last record removes may be the only one that has the record, so it may campaign until it is committed.
CanCampaign(n) ==
  \/ n \in Voters(n)
  \/ LET at == VotersEnd(log[n], Len(log[n]))
     IN at > 0 /\ at > hw[n] /\ n \in VotersIn(First[n], Prefix(log[n], at - 1))

-----------------------------------------------------------------------------
(* Elections. Epoch, leader and vote are on disk before anybody can know of them, so a crash does not change them.  *)

\* "A voter that has not heard the leader, or no result of an election, for a random time becomes Prospective." In memory
\* only: the known leader and the vote of this epoch stay.
Nominate(n) ==
  /\ role[n] \in {"Unattached", "Follower", "Candidate"} \/ (role[n] = "Resigned" /\ Voters(n) = {n})
  /\ CanCampaign(n)
  /\ role' = [role EXCEPT ![n] = "Prospective"]
  /\ UNCHANGED <<epoch, leader, vote, disk, facts>>

\* "The request has the end of the log that is on disk": after a crash the candidate asks again in the same epoch, and
\* must then have what it has told.
MayAsk(n) == role[n] \in {"Prospective", "Candidate"}
Ballot(n) == [pre |-> role[n] = "Prospective", epoch |-> epoch[n], candidate |-> n, last |-> EndOf(log[n], flushed[n])]

Ask(n) ==
  /\ MayAsk(n)
  /\ ballots' = ballots \cup {Ballot(n)}
  /\ UNCHANGED <<election, disk, grants, fetches, ledger, elected>>

\* "A pre-vote changes nothing at the voter, and is granted if the log of the nominee is not behind." A follower refuses
\* while it hears its leader, which is a matter of time and left out here.
MayGrantPreVote(v, b) ==
  /\ b.pre /\ b.epoch = epoch[v] /\ b.candidate # v
  /\ role[v] # "Leader"
  /\ AtLeast(b.last, EndOf(log[v], Len(log[v])))

Grant(v, b) == [pre |-> b.pre, epoch |-> b.epoch, voter |-> v, candidate |-> b.candidate]

GrantPreVote(v, b) ==
  /\ MayGrantPreVote(v, b)
  /\ grants' = grants \cup {Grant(v, b)}
  /\ UNCHANGED <<election, disk, ballots, fetches, ledger, elected>>

\* "One vote for each epoch: to the first candidate whose log is not behind, and only while no leader is known. The same
\* candidate gets it again, as the answer may be lost."
GrantVote(v, b) ==
  /\ ~b.pre /\ b.epoch = epoch[v] /\ b.candidate # v
  /\ role[v] \in {"Unattached", "Prospective"}
  /\ vote[v] \in {None, b.candidate}
  /\ vote[v] = None => leader[v] = None
  /\ vote[v] = None => AtLeast(b.last, EndOf(log[v], Len(log[v])))
  /\ vote' = [vote EXCEPT ![v] = b.candidate]
  /\ grants' = grants \cup {Grant(v, b)}
  /\ UNCHANGED <<role, epoch, leader, disk, ballots, fetches, ledger, elected>>

\* A nominee that is a voter counts itself.
Granted(n, pre) ==
  {n} \cup {g.voter : g \in {h \in grants : h.pre = pre /\ h.epoch = epoch[n] /\ h.candidate = n}}

BecomeCandidate(n) ==
  /\ role[n] = "Prospective"
  /\ CanCampaign(n)
  /\ role' = [role EXCEPT ![n] = "Candidate"]
  /\ epoch' = [epoch EXCEPT ![n] = @ + 1]
  /\ leader' = [leader EXCEPT ![n] = None]
  /\ vote' = [vote EXCEPT ![n] = n]
  /\ UNCHANGED <<disk, facts>>

\* "With the pre-votes of a majority it becomes Candidate in the next epoch, with its vote for itself."
Stand(n) ==
  /\ IsMajority(Granted(n, TRUE), Voters(n))
  /\ BecomeCandidate(n)

\* "A voter of an old release knows no pre-votes, and the nominee goes on without."
StandAlone(n) ==
  /\ NoPreVotes # {}
  /\ BecomeCandidate(n)

\* "With the votes of a majority it leads the epoch." It begins the epoch at the end of its log.
Win(n) ==
  /\ role[n] = "Candidate"
  /\ IsMajority(Granted(n, FALSE), Voters(n))
  /\ role' = [role EXCEPT ![n] = "Leader"]
  /\ leader' = [leader EXCEPT ![n] = n]
  /\ vote' = [vote EXCEPT ![n] = None]
  /\ ledger' = [e \in {epoch[n]} |-> [log |-> log[n], hw |-> 0]] @@ ledger
  /\ elected' = elected \cup {[epoch |-> epoch[n], leader |-> n]}
  /\ UNCHANGED <<epoch, disk, ballots, grants, fetches>>

\* "A nominee without a majority follows the known leader again, if it has an address, or waits for another one."
GiveUp(n) ==
  /\ role[n] = "Prospective"
  /\ \E next \in {"Unattached"} \cup (IF leader[n] = None THEN {} ELSE {"Follower"}) : role' = [role EXCEPT ![n] = next]
  /\ UNCHANGED <<epoch, leader, vote, disk, facts>>

\* "Whoever sees a higher epoch goes to it, with no leader and no vote." All messages have the epoch of the sender.
LearnEpoch(n, e) ==
  /\ e > epoch[n]
  /\ \E m \in Replicas : epoch[m] >= e
  /\ epoch' = [epoch EXCEPT ![n] = e]
  /\ role' = [role EXCEPT ![n] = "Unattached"]
  /\ leader' = [leader EXCEPT ![n] = None]
  /\ vote' = [vote EXCEPT ![n] = None]
  /\ UNCHANGED <<disk, facts>>

\* "Whoever learns the leader of its epoch, or of a higher one, follows it." The vote of the epoch stays.
LearnLeader(n, e) ==
  /\ e >= epoch[n]
  /\ e = epoch[n] => role[n] \in {"Unattached", "Prospective", "Candidate"}
  /\ \E w \in elected :
       /\ w.epoch = e /\ w.leader # n
       /\ e = epoch[n] => leader[n] \in {None, w.leader}
       /\ leader' = [leader EXCEPT ![n] = w.leader]
  /\ role' = [role EXCEPT ![n] = "Follower"]
  /\ epoch' = [epoch EXCEPT ![n] = e]
  /\ vote' = IF e = epoch[n] THEN vote ELSE [vote EXCEPT ![n] = None]
  /\ UNCHANGED <<disk, facts>>

\* "A leader that does not hear a majority, or shuts down, or is no voter any more, resigns", at any time here.
Resign(n) ==
  /\ role[n] = "Leader"
  /\ role' = [role EXCEPT ![n] = "Resigned"]
  /\ UNCHANGED <<epoch, leader, vote, disk, facts>>

\* "A resigned leader never leads its epoch again, and goes to the next one after a time-out."
Leave(n) ==
  /\ role[n] = "Resigned"
  /\ epoch' = [epoch EXCEPT ![n] = @ + 1]
  /\ role' = [role EXCEPT ![n] = "Unattached"]
  /\ leader' = [leader EXCEPT ![n] = None]
  /\ vote' = [vote EXCEPT ![n] = None]
  /\ UNCHANGED <<disk, facts>>

-----------------------------------------------------------------------------
(* Replication and commits *)

\* "A leader that is removed goes on until the record that removes it is committed, and resigns then" (KIP-853).
LeadsOn(n) == role[n] = "Leader" /\ (n \in Voters(n) \/ VotersEnd(log[n], Len(log[n])) > hw[n])

Write(n, records) ==
  /\ LeadsOn(n)
  /\ log' = [log EXCEPT ![n] = @ \o records]
  /\ ledger' = [ledger EXCEPT ![epoch[n]].log = log[n] \o records]
  /\ UNCHANGED <<election, flushed, hw, start, snaps, lives, ballots, grants, fetches, elected>>

Record(n, voters) == [epoch |-> epoch[n], life |-> lives[n], voters |-> voters]

\* "The first record of an epoch is a LeaderChange; the records of clients follow."
AppendData(n, count) == Write(n, [i \in 1..count |-> Record(n, None)])

\* "One voter at a time: the last change is committed, and so is a record of this epoch" (KIP-853). A new leader may write
\* the set as it is, with its own address.
ChangeVoters(n, V) ==
  /\ V # {}
  /\ V = Voters(n) \/ Cardinality(V \ Voters(n)) + Cardinality(Voters(n) \ V) = 1
  /\ V # Voters(n) => VotersEnd(log[n], Len(log[n])) <= hw[n]
  /\ V # Voters(n) => EpochAt(log[n], hw[n]) = epoch[n]
  /\ Write(n, <<Record(n, V)>>)

\* "Who has asked for a change is told of success when the record is committed, by its leader."
AnswerChange(n) ==
  /\ role[n] = "Leader"
  /\ VotersEnd(log[n], Len(log[n])) \in 1..hw[n]
  /\ UNCHANGED vars

Flush(n, end) ==
  /\ end \in (flushed[n] + 1)..Len(log[n])
  /\ flushed' = [flushed EXCEPT ![n] = end]
  /\ UNCHANGED <<election, log, hw, start, snaps, lives, facts>>

\* "A Fetch acknowledges all records before its offset, so it is sent when they are on disk."
MayFetch(n) ==
  /\ role[n] # "Leader"
  /\ flushed[n] = Len(log[n])

End(n) == EndOf(log[n], Len(log[n]))
FetchOf(n) == [replica |-> n, epoch |-> epoch[n], last |-> End(n)]

Fetch(n) ==
  /\ MayFetch(n)
  /\ fetches' = fetches \cup {FetchOf(n)}
  /\ UNCHANGED <<election, disk, ballots, grants, ledger, elected>>

\* Where the records of an epoch, or of the last one before, end in a log.
EndForEpoch(l, e) == EndOf(l, Cardinality({i \in 1..Len(l) : l[i].epoch <= e}))

\* "The leader compares the end of the follower with its own log: the epoch is there, and ends not before."
IsValid(l, last) == LET end == EndForEpoch(l, last.epoch) IN end.epoch = last.epoch /\ end.end >= last.end

IsFollowing(n) == role[n] = "Follower" /\ epoch[n] \in DOMAIN ledger
Theirs(n) == ledger[epoch[n]].log

\* "A valid follower appends what follows its end in the leader's log."
Take(n, end) ==
  /\ IsFollowing(n)
  /\ IsValid(Theirs(n), End(n))
  /\ end \in (Len(log[n]) + 1)..Len(Theirs(n))
  /\ log' = [log EXCEPT ![n] = @ \o SubSeq(Theirs(n), Len(@) + 1, end)]
  /\ UNCHANGED <<election, flushed, hw, start, snaps, lives, facts>>

\* "Its high watermark is the leader's, as far as its own log goes."
Hear(n, end) ==
  /\ IsFollowing(n)
  /\ IsValid(Theirs(n), End(n))
  /\ hw[n] < end /\ end <= Min(Len(log[n]), ledger[epoch[n]].hw)
  /\ hw' = [hw EXCEPT ![n] = end]
  /\ UNCHANGED <<election, log, flushed, start, snaps, lives, facts>>

\* "A diverging follower cuts its log where the two part: at the leader's end of the last common epoch."
Cut(n) ==
  LET theirs == EndForEpoch(Theirs(n), LastEpoch(log[n]))
      mine   == EndForEpoch(log[n], theirs.epoch)
  IN IF mine.epoch = theirs.epoch THEN Min(mine.end, theirs.end) ELSE mine.end

Floor(n) == Max({hw[n]} \cup snaps[n])

Truncate(n) ==
  /\ IsFollowing(n)
  /\ ~IsValid(Theirs(n), End(n))
  /\ Cut(n) < Len(log[n])
  /\ Cut(n) >= Floor(n)
  /\ log' = [log EXCEPT ![n] = Prefix(@, Cut(n))]
  /\ flushed' = [flushed EXCEPT ![n] = Min(@, Cut(n))]
  /\ UNCHANGED <<election, hw, start, snaps, lives, facts>>

\* "Committed is what a majority of the voters has on disk, up to a record of the leader's own epoch." Records of earlier
\* epochs are committed with it, never alone. A leader that is no voter does not count itself.
Has(n, m, end) ==
  IF m = n THEN flushed[n] >= end
  ELSE \E f \in fetches : f.replica = m /\ f.epoch = epoch[n] /\ f.last.end >= end /\ IsValid(log[n], f.last)

Commit(n, end) ==
  /\ LeadsOn(n)
  /\ end \in (hw[n] + 1)..Len(log[n])
  /\ EpochAt(log[n], end) = epoch[n]
  /\ IsMajority({m \in Voters(n) : Has(n, m, end)}, Voters(n))
  /\ hw' = [hw EXCEPT ![n] = end]
  /\ ledger' = [ledger EXCEPT ![epoch[n]].hw = end]
  /\ UNCHANGED <<election, log, flushed, start, snaps, lives, ballots, grants, fetches, elected>>

-----------------------------------------------------------------------------
(* Snapshots, which replace a beginning of the log (KIP-630) *)

Snapshot(n, end) ==
  /\ end \in 1..hw[n]
  /\ end \notin snaps[n]
  /\ snaps' = [snaps EXCEPT ![n] = @ \cup {end}]
  /\ UNCHANGED <<election, log, flushed, hw, start, lives, facts>>

Clean(n, end) ==
  /\ end \in snaps[n] /\ end > start[n]
  /\ start' = [start EXCEPT ![n] = end]
  /\ UNCHANGED <<election, log, flushed, hw, snaps, lives, facts>>

\* "A follower whose next records the leader has only in a snapshot loads the snapshot. It first cuts what it has of
\* later epochs: they contradict the snapshot. A log that the snapshot does not go beyond stays."
Install(n, end) ==
  LET kept == EndForEpoch(log[n], EpochAt(Theirs(n), end)) IN
  /\ IsFollowing(n)
  /\ end \in snaps[leader[n]]
  /\ end > Floor(n) /\ kept.end >= Floor(n)
  /\ AtLeast(EndOf(Theirs(n), end), kept) /\ kept # EndOf(Theirs(n), end)
  /\ log' = [log EXCEPT ![n] = Prefix(Theirs(n), end)]
  /\ flushed' = [flushed EXCEPT ![n] = end]
  /\ start' = [start EXCEPT ![n] = end]
  /\ snaps' = [snaps EXCEPT ![n] = @ \cup {end}]
  /\ hw' = [hw EXCEPT ![n] = end]
  /\ UNCHANGED <<election, lives, facts>>

-----------------------------------------------------------------------------
(* A crash loses any part of the log that no fsync has covered, and what is in memory only. *)

\* "A former leader starts as Resigned: records of its lost end may be elsewhere, so it must not write at their offsets in
\* the same epoch. A former candidate asks again, and knows no leader even if the epoch has got one. A log of a later epoch
\* than the file has no vote in that epoch."
Restart(n, end, begin) ==
  LET kept == Prefix(log[n], end)
      later == LastEpoch(kept) > epoch[n] IN
  /\ end \in Max({flushed[n], start[n]})..Len(log[n])
  /\ begin <= start[n]   \* Files of the log that were removed may be there again.
  /\ log' = [log EXCEPT ![n] = kept]
  /\ flushed' = [flushed EXCEPT ![n] = end]
  /\ hw' = [hw EXCEPT ![n] = 0]
  /\ lives' = [lives EXCEPT ![n] = @ + 1]
  /\ epoch' = [epoch EXCEPT ![n] = IF later THEN LastEpoch(kept) ELSE @]
  /\ leader' = [leader EXCEPT ![n] = IF later \/ (vote[n] = n /\ leader[n] # n) THEN None ELSE @]
  /\ vote' = [vote EXCEPT ![n] = IF later THEN None ELSE @]
  /\ \E next \in CASE later -> {"Unattached"}
                  [] leader[n] = n -> {"Resigned"}
                  [] vote[n] = n -> {"Candidate"}
                  [] leader[n] # None -> {"Follower", "Unattached"}   \* by its address, if that is known
                  [] OTHER -> {"Unattached"} : role' = [role EXCEPT ![n] = next]
  /\ start' = [start EXCEPT ![n] = begin]
  /\ UNCHANGED <<snaps, facts>>

-----------------------------------------------------------------------------
Init ==
  /\ role = [n \in Replicas |-> "Unattached"]
  /\ epoch = [n \in Replicas |-> 0]
  /\ leader = [n \in Replicas |-> None]
  /\ vote = [n \in Replicas |-> None]
  /\ log = [n \in Replicas |-> <<>>]
  /\ flushed = [n \in Replicas |-> 0] /\ hw = [n \in Replicas |-> 0] /\ start = [n \in Replicas |-> 0]
  /\ snaps = [n \in Replicas |-> {}]
  /\ lives = [n \in Replicas |-> 0]
  /\ ballots = {} /\ grants = {} /\ fetches = {} /\ elected = {}
  /\ ledger = [e \in {} |-> {}]

OfElections(n) ==
  \/ Nominate(n) \/ Ask(n) \/ Stand(n) \/ StandAlone(n) \/ Win(n) \/ GiveUp(n) \/ Resign(n) \/ Leave(n)
  \/ \E b \in ballots : GrantPreVote(n, b) \/ GrantVote(n, b)
  \/ \E m \in Replicas : LearnEpoch(n, epoch[m])
  \/ \E e \in DOMAIN ledger : LearnLeader(n, e)

OfLogs(n) ==
  \/ AppendData(n, 1) \/ Flush(n, Len(log[n])) \/ Fetch(n) \/ Truncate(n)
  \/ \E end \in 1..Max({Len(log[m]) : m \in Replicas}) : Take(n, end) \/ Hear(n, end) \/ Commit(n, end)

OfSnapshots(n) == \E end \in 1..Len(log[n]) : Snapshot(n, end) \/ Clean(n, end)
OfInstalls(n) == \E m \in Replicas : \E end \in snaps[m] : Install(n, end)
OfVoters(n) ==
  \/ AnswerChange(n)
  \/ \E m \in Replicas : ChangeVoters(n, Voters(n) \cup {m}) \/ ChangeVoters(n, Voters(n) \ {m})
OfCrashes(n) == \E end \in 0..Len(log[n]) : \E begin \in {0, start[n]} : Restart(n, end, begin)

Next == \E n \in Replicas :
  OfElections(n) \/ OfLogs(n) \/ OfSnapshots(n) \/ OfInstalls(n) \/ OfVoters(n) \/ OfCrashes(n)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties *)

Committed(e) == Prefix(ledger[e].log, ledger[e].hw)

OneLeaderPerEpoch == \A a, b \in elected : a.epoch = b.epoch => a = b

OneVotePerEpoch ==
  \A a, b \in grants : ~a.pre /\ ~b.pre /\ a.epoch = b.epoch /\ a.voter = b.voter => a = b

\* Two logs with a record of one epoch at one offset are equal up to there.
LogsMatch ==
  \A n, m \in Replicas : \A i \in 1..Min(Len(log[n]), Len(log[m])) :
    log[n][i].epoch = log[m][i].epoch => Prefix(log[n], i) = Prefix(log[m], i)

\* A leader has everything that leaders of earlier epochs have committed.
LeadersAreComplete == \A e, f \in DOMAIN ledger : e < f => IsPrefix(Committed(e), ledger[f].log)

\* What a replica takes for committed is committed.
CommittedIsOne == \A n \in Replicas : \A e \in DOMAIN ledger :
  LET mine == Prefix(log[n], hw[n]) IN IsPrefix(mine, Committed(e)) \/ IsPrefix(Committed(e), mine)

\* What is committed is on the disks of a majority, also of those that are down.
CommittedIsOnDisk == \A e \in DOMAIN ledger : ledger[e].hw > 0 =>
  LET first == First[CHOOSE n \in Replicas : \E w \in elected : w.epoch = e /\ w.leader = n]
      V == VotersIn(first, Committed(e))
  IN IsMajority({n \in V : IsPrefix(Committed(e), Prefix(log[n], flushed[n]))}, V)
     \/ \E f \in DOMAIN ledger : f > e   \* a later leader is the witness, by LeadersAreComplete

SnapshotsAreCommitted == \A n \in Replicas : \A end \in snaps[n] :
  \E e \in DOMAIN ledger : end <= ledger[e].hw /\ IsPrefix(Prefix(log[n], end), Committed(e))

\* Epochs never fall, and a vote is not taken back within its epoch; the leader of the epoch keeps no vote.
EpochsRise == [][\A n \in Replicas : epoch'[n] >= epoch[n]]_vars
VotesStay == [][\A n \in Replicas :
  epoch'[n] = epoch[n] /\ vote[n] # None => vote'[n] = vote[n] \/ leader'[n] = n]_vars

\* Between restarts the high watermark never falls, and nothing below it is cut.
WatermarksRise == [][\A n \in Replicas :
  lives'[n] = lives[n] => hw'[n] >= hw[n] /\ Len(log'[n]) >= hw[n]]_vars

\* A nominee raises the epoch only if a majority would vote for it: it disturbs no working leader.
CandidatesWerePreferred == \A n \in Replicas : role[n] = "Candidate" /\ NoPreVotes = {} /\ lives[n] = 0 =>
  IsMajority({n} \cup {g.voter : g \in {h \in grants : h.pre /\ h.candidate = n /\ h.epoch + 1 = epoch[n]}}, Voters(n))
=============================================================================

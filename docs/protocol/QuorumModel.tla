---------------------------- MODULE QuorumModel ----------------------------
(* Quorum.tla within bounds, for TLC. A fact that is sent changes nothing but the facts, and enables only: so whoever can
   send one sends it at once, and facts that nobody can use any more do not tell two states apart (`Relevant`). Both
   leave out no violation of a property, and most of the states.

   Besides the first state there are two others to begin with, near to where the protocol is subtle: a leader with a
   committed record (`Led`), and a leader after two elections whose records were not committed (`Split`).            *)
EXTENDS Quorum

CONSTANTS One, Two, Three, MaxEpoch, MaxEnd, MaxLives, MaxSnapshots, MaxChanges,
  Brief      \* whether nobody gives up, which leaves the shortest ways to a violation

Everybody == [n \in Replicas |-> Replicas]

Sent ==
  /\ ballots' = ballots \cup {Ballot(n) : n \in {m \in Replicas : MayAsk(m)}}
  /\ fetches' = fetches \cup {FetchOf(n) : n \in {m \in Replicas : MayFetch(m) /\ log[m] # <<>>}}
  /\ grants' = grants \cup UNION {{Grant(v, b) : b \in {x \in ballots : MayGrantPreVote(v, x)}} : v \in Replicas}
  /\ UNCHANGED <<election, disk, ledger, elected>>
  /\ <<ballots, fetches, grants>>' # <<ballots, fetches, grants>>

Decided == \E n \in Replicas :
  \/ Nominate(n) \/ Stand(n) \/ StandAlone(n) \/ Win(n)
  \/ ~Brief /\ (GiveUp(n) \/ Resign(n) \/ Leave(n))
  \/ \E b \in ballots : GrantVote(n, b)
  \/ \E m \in Replicas : LearnEpoch(n, epoch[m])
  \/ \E e \in DOMAIN ledger : LearnLeader(n, e)
  \/ AppendData(n, 1) \/ Flush(n, Len(log[n])) \/ Truncate(n)
  \/ \E end \in 1..MaxEnd : Take(n, end) \/ Hear(n, end) \/ Commit(n, end)
  \/ MaxSnapshots > 0 /\ (OfSnapshots(n) \/ OfInstalls(n))
  \/ MaxChanges > 0 /\ OfVoters(n)
  \/ MaxLives > 0 /\ OfCrashes(n)

Next2 == Sent \/ (~ENABLED Sent /\ Decided)

Bound ==
  /\ \A n \in Replicas : epoch[n] <= MaxEpoch /\ Len(log[n]) <= MaxEnd /\ lives[n] <= MaxLives
  /\ Cardinality(UNION {snaps[n] : n \in Replicas}) <= MaxSnapshots
  /\ \A n \in Replicas : Cardinality({i \in 1..Len(log[n]) : log[n][i].voters # None}) <= MaxChanges

Relevant ==
  <<election, disk, ledger, elected,
    {b \in ballots : \E n \in Replicas : epoch[n] <= b.epoch},
    {g \in grants : epoch[g.candidate] <= g.epoch \/ ~g.pre},
    {f \in fetches : \E n \in Replicas : epoch[n] = f.epoch /\ role[n] \in {"Leader", "Candidate", "Prospective"}}>>

Of(first, second, third) == [n \in Replicas |-> CASE n = One -> first [] n = Two -> second [] OTHER -> third]
Data(e) == [epoch |-> e, life |-> 0, voters |-> None]

\* One leads epoch 1 and has committed two records, which Three has on disk, and Two only the first.
Led ==
  LET l == <<Data(1), Data(1)>> IN
  /\ role = Of("Leader", "Follower", "Follower")
  /\ epoch = Of(1, 1, 1) /\ leader = Of(One, One, One) /\ vote = Of(None, One, None)
  /\ log = Of(l, <<Data(1)>>, l) /\ flushed = Of(2, 1, 2) /\ hw = Of(2, 0, 0)
  /\ start = Of(0, 0, 0) /\ snaps = Of({}, {}, {}) /\ lives = Of(0, 0, 0)
  /\ ballots = {[pre |-> FALSE, epoch |-> 1, candidate |-> One, last |-> [epoch |-> 0, end |-> 0]]}
  /\ grants = {[pre |-> FALSE, epoch |-> 1, voter |-> Two, candidate |-> One]}
  /\ fetches = {[replica |-> Three, epoch |-> 1, last |-> [epoch |-> 1, end |-> 2]]}
  /\ elected = {[epoch |-> 1, leader |-> One]}
  /\ ledger = [e \in {1} |-> [log |-> l, hw |-> 2]]

\* Figure 8 of Raft: One has led epochs 2 and 4, Three epoch 3, and the second record of One is on a majority now.
Split ==
  LET mine == <<Data(1), Data(2)>>
      theirs == <<Data(1), Data(3)>> IN
  /\ role = Of("Leader", "Follower", "Unattached")
  /\ epoch = Of(4, 4, 4) /\ leader = Of(One, One, None) /\ vote = Of(None, One, None)
  /\ log = Of(mine, mine, theirs) /\ flushed = Of(2, 2, 2) /\ hw = Of(1, 1, 1)
  /\ start = Of(0, 0, 0) /\ snaps = Of({}, {}, {}) /\ lives = Of(0, 0, 0)
  /\ ballots = {} /\ grants = {[pre |-> FALSE, epoch |-> 4, voter |-> Two, candidate |-> One]}
  /\ fetches = {[replica |-> Two, epoch |-> 4, last |-> [epoch |-> 2, end |-> 2]]}
  /\ elected = {[epoch |-> 1, leader |-> One], [epoch |-> 2, leader |-> One], [epoch |-> 3, leader |-> Three],
                [epoch |-> 4, leader |-> One]}
  /\ ledger = [e \in 1..4 |-> CASE e = 1 -> [log |-> <<Data(1)>>, hw |-> 1] [] e = 2 -> [log |-> mine, hw |-> 0]
                                [] e = 3 -> [log |-> theirs, hw |-> 0] [] OTHER -> [log |-> mine, hw |-> 0]]

FromInit == Init /\ [][Next2]_vars
FromLed == Led /\ [][Next2]_vars
FromSplit == Split /\ [][Next2]_vars
Symmetric == Permutations(Replicas)
=============================================================================

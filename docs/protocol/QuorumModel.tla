---------------------------- MODULE QuorumModel ----------------------------
(* Quorum.tla within bounds, for TLC. A fact that is sent changes nothing but the facts, and enables only: so whoever can
   send one sends it at once, and facts that nobody can use any more do not tell two states apart (`Relevant`). Both
   leave out no violation of a property, and most of the states.                                                    *)
EXTENDS Quorum

CONSTANTS MaxEpoch, MaxEnd, MaxLives, MaxSnapshots, MaxChanges

Everybody == [n \in Replicas |-> Replicas]
Nominees == {n \in Replicas : role[n] \in {"Prospective", "Candidate"}}

Sent ==
  LET asked == {[pre |-> role[n] = "Prospective", epoch |-> epoch[n], candidate |-> n,
                 last |-> EndOf(log[n], flushed[n])] : n \in Nominees}
  IN /\ ballots' = ballots \cup asked
     /\ fetches' = fetches \cup {[replica |-> n, epoch |-> epoch[n], last |-> End(n)] :
          n \in {m \in Replicas : role[m] # "Leader" /\ flushed[m] = Len(log[m]) /\ log[m] # <<>>}}
     /\ grants' = grants \cup {[pre |-> TRUE, epoch |-> b.epoch, voter |-> v, candidate |-> b.candidate] :
          <<b, v>> \in {<<x, y>> \in {z \in ballots : z.pre} \X Replicas :
            x.epoch = epoch[y] /\ x.candidate # y /\ role[y] # "Leader" /\ AtLeast(x.last, End(y))}}
     /\ UNCHANGED <<election, disk, ledger, elected>>
     /\ <<ballots, fetches, grants>>' # <<ballots, fetches, grants>>

Bound ==
  /\ \A n \in Replicas : epoch[n] <= MaxEpoch /\ Len(log[n]) <= MaxEnd /\ lives[n] <= MaxLives
  /\ Cardinality(UNION {snaps[n] : n \in Replicas}) <= MaxSnapshots
  /\ \A n \in Replicas : Cardinality({i \in 1..Len(log[n]) : log[n][i].voters # None}) <= MaxChanges

Decided == \E n \in Replicas :
  \/ Nominate(n) \/ Stand(n) \/ StandAlone(n) \/ Win(n) \/ GiveUp(n) \/ Resign(n) \/ Leave(n)
  \/ \E b \in ballots : GrantVote(n, b)
  \/ \E m \in Replicas : LearnEpoch(n, epoch[m])
  \/ \E e \in DOMAIN ledger : LearnLeader(n, e)
  \/ AppendData(n, 1) \/ Flush(n, Len(log[n])) \/ Truncate(n)
  \/ \E end \in 1..MaxEnd : Take(n, end) \/ Hear(n, end) \/ Commit(n, end)
  \/ MaxSnapshots > 0 /\ (OfSnapshots(n) \/ OfInstalls(n))
  \/ MaxChanges > 0 /\ OfVoters(n)
  \/ MaxLives > 0 /\ OfCrashes(n)

Bounded == Init /\ [][Sent \/ (~ENABLED Sent /\ Decided)]_vars

Relevant ==
  LET old(n, e) == epoch[n] > e IN
  <<election, disk, ledger, elected,
    {b \in ballots : \E n \in Replicas : ~old(n, b.epoch)},
    {g \in grants : ~old(g.candidate, g.epoch) \/ ~g.pre},
    {f \in fetches : \E n \in Replicas : epoch[n] = f.epoch /\ role[n] \in {"Leader", "Candidate", "Prospective"}}>>

Symmetric == Permutations(Replicas)
=============================================================================

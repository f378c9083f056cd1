----------------------------- MODULE GroupModel -----------------------------
(* Group.tla within bounds, for TLC. The lives of members are numbered by the group epoch at which they begin, and a
   commit that can be sent is sent at once: a fact enables only.                                                     *)
EXTENDS Group

CONSTANTS One, Two, P1, P2, MaxEpoch

Sent ==
  /\ commits' = commits \cup {[who |-> m, life |-> client[m].life, epoch |-> client[m].epoch, part |-> p] :
                              <<m, p>> \in {<<n, q>> \in Members \X Partitions : q \in client[n].owned}}
  /\ commits' # commits
  /\ UNCHANGED <<epoch, target, targetEpoch, member, client, mail>>

Decided == Assign \/ \E m \in Members :
  \/ Beat(m) \/ Hear(m) \/ HearFenced(m) \/ Lose(m) \/ Leave(m)
  \/ OfCoordinator(m)
  \/ Join(m, epoch + 1)

Next2 == Sent \/ (~ENABLED Sent /\ Decided)

Bound == epoch <= MaxEpoch /\ \A m \in Members : client[m].life <= MaxEpoch

\* Commits of processes that are members.
Relevant == <<epoch, target, targetEpoch, member, client, mail, {c \in commits : c.life = member[c.who].life}>>

FromInit == Init /\ [][Next2]_vars
Symmetric == Permutations(Members) \cup Permutations(Partitions)
=============================================================================

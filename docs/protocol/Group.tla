-------------------------------- MODULE Group --------------------------------
(* A consumer group of KIP-848: its coordinator gives partitions to members, by way of a target assignment, and no
   partition to a second member before the first one has confirmed that it has stopped. README.md beside this file says
   what is left out.

   The coordinator's state is durable (Partition.tla). A member has one heartbeat on its way at a time: `mail` is that
   heartbeat, or the answer to it, and may be lost. Commits of offsets are facts that may arrive late.               *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Members, Partitions

VARIABLES
  epoch,            \* the group epoch: it rises with each change of the members or of what they want
  target,           \* the partitions that each member is to have, once it can
  targetEpoch,      \* the group epoch for which that was computed
  member,           \* the members as the coordinator has them
  client,           \* the members as they are themselves
  mail,             \* the heartbeat of a member on its way, or the answer
  commits           \* the commits of offsets that were sent

vars == <<epoch, target, targetEpoch, member, client, mail, commits>>

Nobody == [life |-> 0, epoch |-> 0, assigned |-> {}, revoking |-> {}]
Idle == [life |-> 0, epoch |-> 0, owned |-> {}]
NoMail == [what |-> "none"]

IsIn(m) == member[m].life > 0
Held(m) == member[m].assigned \cup member[m].revoking

-----------------------------------------------------------------------------
(* The coordinator *)

\* "The target is any assignment to the members of the group": what an assignor makes of it does not matter here.
Assign ==
  /\ targetEpoch < epoch
  /\ \E owner \in [Partitions -> {m \in Members : IsIn(m)}] :
       target' = [m \in Members |-> {p \in Partitions : owner[p] = m}]
  /\ targetEpoch' = epoch
  /\ UNCHANGED <<epoch, member, client, mail, commits>>

\* "A partition is free when nobody has it, nor is to give it up."
IsFree(p) == \A o \in Members : p \notin member[o].assigned /\ p \notin member[o].revoking

\* "What is not in the target is revoked first, and the epoch of the member stays. When the member has confirmed that, its epoch
\* rises, so that no commit for what it gave up is taken any more, even if there is more to revoke by a newer target. With
\* nothing to revoke it goes to the epoch of the target, and gets of it what is free; the rest comes later in that epoch."
Reconciled(m, owned) ==
  LET one == member[m]
      revoking == one.revoking \cap owned
      surplus == one.assigned \ target[m]
  IN IF revoking # {} THEN one
     ELSE IF surplus # {} THEN
       [one EXCEPT !.assigned = @ \cap target[m], !.revoking = surplus,
                   !.epoch = IF one.revoking = {} THEN @ ELSE @ + 1]
     ELSE [one EXCEPT !.revoking = {}, !.epoch = targetEpoch,
                      !.assigned = @ \cup {p \in target[m] : IsFree(p)}]

\* "A heartbeat counts from the running process of a member, in its epoch; whoever else asks is fenced." A member that has
\* missed an answer asks in its last epoch, with nothing that was not its own before.
Answer(m, one) == [what |-> "answer", life |-> one.life, epoch |-> one.epoch, assigned |-> one.assigned]

Handle(m) ==
  LET ask == mail[m] IN
  /\ ask.what = "heartbeat"
  /\ IF ask.life = member[m].life /\ (ask.epoch = member[m].epoch \/ (ask.epoch < member[m].epoch /\ ask.owned \subseteq member[m].assigned))
     THEN LET next == Reconciled(m, ask.owned) IN
          /\ member' = [member EXCEPT ![m] = next]
          /\ mail' = [mail EXCEPT ![m] = Answer(m, next)]
     ELSE /\ mail' = [mail EXCEPT ![m] = [what |-> "fenced", life |-> ask.life]]
          /\ UNCHANGED member
  /\ UNCHANGED <<epoch, target, targetEpoch, client, commits>>

\* "A member that joins has nothing; the group goes to the next epoch." A process that joins again under its name is another
\* member, and what it had before is free.
HandleJoin(m) ==
  LET ask == mail[m] IN
  /\ ask.what = "join"
  /\ epoch' = epoch + 1
  /\ member' = [member EXCEPT ![m] = [life |-> ask.life, epoch |-> targetEpoch, assigned |-> {}, revoking |-> {}]]
  /\ target' = [target EXCEPT ![m] = {}]
  /\ mail' = [mail EXCEPT ![m] = Answer(m, member'[m])]
  /\ UNCHANGED <<targetEpoch, client, commits>>

Remove(m) ==
  /\ IsIn(m)
  /\ epoch' = epoch + 1
  /\ member' = [member EXCEPT ![m] = Nobody]
  /\ target' = [target EXCEPT ![m] = {}]

\* "A member that is not heard for its session is removed", and may not know that for a while.
Expire(m) ==
  /\ Remove(m)
  /\ UNCHANGED <<targetEpoch, client, mail, commits>>

HandleLeave(m) ==
  /\ mail[m].what = "leave" /\ mail[m].life = member[m].life
  /\ Remove(m)
  /\ mail' = [mail EXCEPT ![m] = NoMail]
  /\ UNCHANGED <<targetEpoch, client, commits>>

\* "An offset is taken from the running process of a member, in its epoch": after a partition is given up the epoch rises.
IsTaken(c) == c.life = member[c.who].life /\ c.epoch = member[c.who].epoch

-----------------------------------------------------------------------------
(* Members *)

\* Lives are numbered: a member that was fenced joins as another one.
Join(m, life) ==
  /\ client[m] = Idle /\ mail[m] = NoMail
  /\ client' = [client EXCEPT ![m].life = life]
  /\ mail' = [mail EXCEPT ![m] = [what |-> "join", life |-> life]]
  /\ UNCHANGED <<epoch, target, targetEpoch, member, commits>>

\* "A heartbeat tells what the member owns now."
Beat(m) ==
  /\ client[m].life > 0 /\ mail[m] = NoMail
  /\ mail' = [mail EXCEPT ![m] = [what |-> "heartbeat", life |-> client[m].life, epoch |-> client[m].epoch, owned |-> client[m].owned]]
  /\ UNCHANGED <<epoch, target, targetEpoch, member, client, commits>>

\* "What the answer does not name, the member stops to read before it asks again; what is new it begins to read."
Hear(m) ==
  LET answer == mail[m] IN
  /\ answer.what = "answer"
  /\ client' = [client EXCEPT ![m] = IF answer.life = @.life THEN [@ EXCEPT !.epoch = answer.epoch, !.owned = answer.assigned] ELSE @]
  /\ mail' = [mail EXCEPT ![m] = NoMail]
  /\ UNCHANGED <<epoch, target, targetEpoch, member, commits>>

\* "A fenced member gives up all that it has."
HearFenced(m) ==
  /\ mail[m].what = "fenced"
  /\ client' = [client EXCEPT ![m] = IF mail[m].life = @.life THEN Idle ELSE @]
  /\ mail' = [mail EXCEPT ![m] = NoMail]
  /\ UNCHANGED <<epoch, target, targetEpoch, member, commits>>

Lose(m) ==
  /\ mail[m] # NoMail
  /\ mail' = [mail EXCEPT ![m] = NoMail]
  /\ UNCHANGED <<epoch, target, targetEpoch, member, client, commits>>

\* "Who leaves has stopped before." The process may end at any time, too.
Leave(m) ==
  /\ client[m].life > 0 /\ mail[m] = NoMail
  /\ mail' = [mail EXCEPT ![m] = [what |-> "leave", life |-> client[m].life]]
  /\ client' = [client EXCEPT ![m] = Idle]
  /\ UNCHANGED <<epoch, target, targetEpoch, member, commits>>

Commit(m, p) ==
  /\ p \in client[m].owned
  /\ commits' = commits \cup {[who |-> m, life |-> client[m].life, epoch |-> client[m].epoch, part |-> p]}
  /\ UNCHANGED <<epoch, target, targetEpoch, member, client, mail>>

-----------------------------------------------------------------------------
Init ==
  /\ epoch = 0 /\ targetEpoch = 0
  /\ target = [m \in Members |-> {}]
  /\ member = [m \in Members |-> Nobody] /\ client = [m \in Members |-> Idle]
  /\ mail = [m \in Members |-> NoMail] /\ commits = {}

OfMember(m) ==
  \/ Beat(m) \/ Hear(m) \/ HearFenced(m) \/ Lose(m) \/ Leave(m)
  \/ \E p \in Partitions : Commit(m, p)
OfCoordinator(m) == Handle(m) \/ HandleJoin(m) \/ HandleLeave(m) \/ Expire(m)

Next == Assign \/ \E m \in Members : OfMember(m) \/ OfCoordinator(m) \/ \E life \in 1..(epoch + 1) : Join(m, life)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties *)

\* A process that is a member of the group, as the coordinator has it.
IsMember(m) == IsIn(m) /\ client[m].life = member[m].life

\* Two members never read one partition. A process that was removed, and does not know, is none.
OneOwner == \A a, b \in Members : a # b /\ IsMember(a) /\ IsMember(b) => client[a].owned \cap client[b].owned = {}

\* What a member reads, nobody else is given.
OwnedIsHeld == \A m \in Members : IsMember(m) => client[m].owned \subseteq Held(m)
HeldByOne == \A a, b \in Members : a # b => Held(a) \cap Held(b) = {}

\* An offset is taken only from whoever has the partition, or gives it up.
CommitsAreFenced == \A c \in commits : IsTaken(c) => c.part \in Held(c.who)

EpochsInOrder == targetEpoch <= epoch /\ \A m \in Members : member[m].epoch <= targetEpoch /\ (IsMember(m) => client[m].epoch <= member[m].epoch)

\* Whoever is at the group's epoch, and has nothing to give up, holds only what it is to have.
SettledIsTarget == \A m \in Members :
  IsIn(m) /\ member[m].epoch = epoch /\ member[m].revoking = {} => member[m].assigned \subseteq target[m]

EpochsRise == [][epoch' >= epoch /\ targetEpoch' >= targetEpoch
                 /\ \A m \in Members : member'[m].life = member[m].life => member'[m].epoch >= member[m].epoch]_vars
=============================================================================

----------------------------- MODULE GroupTrace -----------------------------
(* Whether runs of coordinators are behaviours of Group.tla. The module GroupRuns is written for them: `Runs` has for each
   group the epoch before its first member and a sequence of steps, as the coordinator has committed them. The members
   are other processes: what they know is not seen, but each heartbeat that they have sent is, and the coordinator must
   have judged by one of them.                                                                                       *)
EXTENDS Group, GroupRuns, Sequences

VARIABLES run, at
all == <<vars, run, at>>

\* Members come and go, perhaps several at once, or want something else: the group goes to the next epoch, once. What a member
\* has that comes is that of `HandleJoin`, and whoever goes leaves what `Remove` leaves.
Change(t) ==
  /\ t.epoch = epoch + 1 /\ epoch' = t.epoch
  /\ \A m \in t.joined : ~IsIn(m)
  /\ \A m \in t.gone : IsIn(m)
  /\ member' = [m \in Members |->
       IF m \in t.joined THEN [life |-> 1, epoch |-> targetEpoch, assigned |-> {}, revoking |-> {}]
       ELSE IF m \in t.gone THEN Nobody ELSE member[m]]
  /\ target' = [m \in Members |-> IF m \in t.joined \cup t.gone THEN {} ELSE target[m]]
  /\ UNCHANGED <<targetEpoch, client, mail, commits>>

\* `Assign` with this outcome, for the topics that there are.
AssignTo(t) ==
  /\ targetEpoch < epoch /\ t.epoch = epoch /\ targetEpoch' = epoch
  /\ \A one \in t.shares : one.parts # {} => IsIn(one.who)
  /\ \A one, two \in t.shares : one.who # two.who => one.parts \cap two.parts = {}
  /\ target' = [m \in Members |-> UNION {one.parts : one \in {s \in t.shares : s.who = m}}]
  /\ UNCHANGED <<epoch, member, client, mail, commits>>

\* As `Handle`: of the running member in its epoch, or of one that has missed an answer.
Counts(m, ask) == ask.epoch = member[m].epoch \/ (ask.epoch < member[m].epoch /\ ask.owned \subseteq member[m].assigned)

\* Where Kafka's coordinator is not the one of `Reconciled`: what the member does not own any more is not revoked but gone at
\* once; the epoch stays while a newer target takes more; and what a member has just given up it may get back.
AsKafka(m, owned) ==
  LET one == member[m]
      surplus == one.assigned \ target[m]
  IN IF one.revoking \cap owned # {} THEN one
     ELSE IF surplus \cap owned # {} THEN [one EXCEPT !.assigned = @ \cap target[m], !.revoking = surplus]
     ELSE [one EXCEPT !.revoking = {}, !.epoch = targetEpoch,
                      !.assigned = (@ \cap target[m]) \cup {p \in target[m] : IsFree(p) \/ p \in one.revoking}]

Reconcile(t) ==
  LET next == [life |-> 1, epoch |-> t.epoch, assigned |-> t.assigned, revoking |-> t.revoking]
  IN /\ IsIn(t.who)
     /\ \E ask \in t.sent : Counts(t.who, ask) /\ next \in {Reconciled(t.who, ask.owned), AsKafka(t.who, ask.owned)}
     /\ member' = [member EXCEPT ![t.who] = next]
     /\ UNCHANGED <<epoch, target, targetEpoch, client, mail, commits>>

\* In an older epoch a member may commit for what it still has (KIP-1251).
Taken(t) ==
  LET c == [who |-> t.who, life |-> 1, epoch |-> t.epoch, part |-> t.part]
  IN /\ IsTaken(c) \/ (IsIn(t.who) /\ t.epoch < member[t.who].epoch /\ t.part \in Held(t.who))
     /\ commits' = {c}
     /\ UNCHANGED <<epoch, target, targetEpoch, member, client, mail>>

Takes(t) ==
  CASE t.what = "Change"    -> Change(t)
    [] t.what = "Assign"    -> AssignTo(t)
    [] t.what = "Reconcile" -> Reconcile(t)
    [] t.what = "Commit"    -> Taken(t)

Place == <<run, at>>

TraceInit ==
  /\ run \in 1..Len(Runs) /\ at = 0
  /\ epoch = Runs[run].epoch /\ targetEpoch = 0
  /\ target = [m \in Members |-> {}]
  /\ member = [m \in Members |-> Nobody] /\ client = [m \in Members |-> Idle]
  /\ mail = [m \in Members |-> NoMail] /\ commits = {}

TraceNext ==
  /\ at < Len(Runs[run].steps)
  /\ at' = at + 1 /\ run' = run
  /\ Takes(Runs[run].steps[at + 1])
  /\ at' = Len(Runs[run].steps) => PrintT(<<"whole", run>>)

\* For a run that is no behaviour: the step that is refused, and the state before.
Refused ==
  /\ at < Len(Runs[run].steps)
  /\ LET t == Runs[run].steps[at + 1]
     IN /\ ~ENABLED (Takes(t) /\ UNCHANGED <<run, at>>)
        /\ PrintT(<<"refused", run, at + 1>>)
        /\ PrintT(<<"step", t>>)
        /\ PrintT(<<"before", [epoch |-> epoch, target_epoch |-> targetEpoch]>>)
        /\ PrintT(<<"before", [m \in {n \in Members : IsIn(n)} |-> [has |-> member[m], target |-> target[m]]]>>)
        /\ PrintT(<<"formula", t.what, "fails">>)
  /\ UNCHANGED all

TraceSpec == TraceInit /\ [][TraceNext]_all
ExplainedSpec == TraceInit /\ [][TraceNext \/ Refused]_all
=============================================================================

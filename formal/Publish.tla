------------------------------- MODULE Publish -------------------------------
(***************************************************************************)
(* How Calve publishes one export key exactly once, through a catalog      *)
(* whose answers get lost, with workers that die or sleep past their       *)
(* lease, beside a foreign writer who appends, rolls back and expires.     *)
(*                                                                         *)
(* Process "p" exports the key.  Process "q" comes later: a retry of p,    *)
(* which may adopt p's files, or a forced export, which replaces them.     *)
(* `Bug` plants a mistake; with "none" every property below holds.         *)
(* README.md maps each action to the function that does it.                *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Workers,    \* e.g. {w1, w2}
          Bug,        \* "none", or the name of a planted mistake
          MaxFaults,  \* crashes, lost leases, foreign writes, expiries: so many in all
          MaxFences   \* tries at a fence before a process ends as unknown

VARIABLES snaps,   \* every snapshot ever made: a sequence, so that a snapshot's id is its index
          head,    \* main: the id of its snapshot, 0 for an empty table
          gone,    \* ids of expired snapshots: no longer in the metadata
          tags,    \* tag of each process: the id it stands on, 0 if absent
          prop,    \* the key's property: the process that published it last, or "nobody"
          net,     \* commits that were sent: each may land at any time, never, or again
          row,     \* the store: one row for each process
          wk,      \* the workers' memory
          deleted, \* files that undo deleted
          env      \* [faults, rolled, swept]: what the world has done so far

vars == <<snaps, head, gone, tags, prop, net, row, wk, deleted, env>>
Procs == {"p", "q"}
Terminal == {"completed", "ended"}
Idle == [pc |-> "idle", of |-> "p", holds |-> FALSE, base |-> 0, first |-> FALSE]
NewRow == [state |-> "new", ends |-> FALSE, sent |-> FALSE, outcome |-> "none",
           fences |-> 0, left |-> "none", file |-> "p", force |-> FALSE]

Init == /\ snaps = <<>> /\ head = 0 /\ gone = {} /\ prop = "nobody" /\ net = {} /\ deleted = {}
        /\ tags = [p \in Procs |-> 0]
        /\ row = [p \in Procs |-> IF p = "p" THEN [NewRow EXCEPT !.state = "publishing"]
                                             ELSE [NewRow EXCEPT !.file = "q"]]
        /\ wk = [w \in Workers |-> Idle]
        /\ env = [faults |-> 0, rolled |-> FALSE, swept |-> FALSE]

------------------------------------------------------------------- (* what a look at the table tells *)
Ids == 1..Len(snaps)
There == Ids \ gone
Files(i) == IF i = 0 THEN {} ELSE snaps[i].files
Ancestors(i) == \* of main's head, as far as the metadata still has them
  LET Up[j \in 0..Len(snaps)] == IF j = 0 \/ j \in gone THEN {} ELSE {j} \cup Up[snaps[j].parent]
  IN Up[i]
IsData(i, p) == snaps[i].by = p /\ snaps[i].what = "data"
IsFence(i, p) == snaps[i].by = p /\ snaps[i].what = "fence"
Ours(p) == prop = p \/ \E i \in There : IsData(i, p)
Fenced(p) == IF Bug = "tag_only_fence" THEN tags[p] # 0
                                       ELSE \E i \in Ancestors(head) : IsFence(i, p)
Tombstone(p) == tags[p] # 0 \/ \E i \in There : IsFence(i, p)

------------------------------------------------------------------- (* the catalog *)
Holds(r) ==
  /\ Bug = "no_main_assertion" \/ r.base = head
  /\ (Bug = "no_tag_assertion" /\ r.what = "data") \/ tags[r.of] = r.tag

Land(r) == \* the commit is applied: all of it or nothing
  LET id == Len(snaps) + 1
      made == [by |-> r.of, what |-> r.what, parent |-> head, files |-> (Files(head) \ r.remove) \cup r.add]
      moves == r.what = "data" \/ Bug # "tag_only_fence"
  IN /\ r \in net /\ Holds(r)
     /\ snaps' = IF moves THEN Append(snaps, made) ELSE snaps
     /\ head' = IF moves THEN id ELSE head
     /\ tags' = [tags EXCEPT ![r.of] = IF moves THEN id ELSE Len(snaps)]
     /\ prop' = IF r.what = "data" THEN r.of ELSE prop
     /\ UNCHANGED <<gone, net, row, wk, deleted, env>>

Landed(r) == \E i \in Ids : snaps[i].by = r.of /\ snaps[i].what = r.what /\ snaps[i].parent = r.base

Commit(p, base) ==
  [what |-> "data", of |-> p, base |-> base, tag |-> 0, add |-> {row[p].file},
   remove |-> IF row[p].force /\ Bug # "force_in_flight" THEN Files(base) ELSE {}]
FenceCommit(p) == [what |-> "fence", of |-> p, base |-> head, tag |-> tags[p], add |-> {}, remove |-> {}]

------------------------------------------------------------------- (* leases: a take-over makes every write of the holder before it fail *)
Valid(w) == wk[w].holds \/ Bug = "unfenced_writes"
Step(w, pc) == wk' = [wk EXCEPT ![w].pc = pc]
Rest(w) == wk' = [wk EXCEPT ![w] = Idle]
Fault == env.faults < MaxFaults /\ env' = [env EXCEPT !.faults = @ + 1]
NoTable == UNCHANGED <<snaps, head, gone, tags, prop, deleted>>
NoWorld == NoTable /\ UNCHANGED <<net, env>>

HasWork(p) == \/ row[p].state = "publishing"
              \/ row[p].outcome = "unknown"
              \/ row[p].left \in {"kept", "undoing"}
Held(p) == \E w \in Workers : wk[w].holds /\ wk[w].of = p
Take(w, p) == \* claims it; from a holder that sleeps or is cut off, this is a lost lease
  /\ wk[w].pc = "idle" /\ HasWork(p)
  /\ IF Held(p) THEN Fault ELSE UNCHANGED env
  /\ wk' = [v \in Workers |-> IF v = w THEN [Idle EXCEPT !.pc = "held", !.of = p, !.holds = TRUE]
                             ELSE IF wk[v].of = p THEN [wk[v] EXCEPT !.holds = FALSE] ELSE wk[v]]
  /\ NoTable /\ UNCHANGED <<net, row>>
Crash(w) == wk[w].pc # "idle" /\ Fault /\ Rest(w) /\ NoTable /\ UNCHANGED <<net, row>>

------------------------------------------------------------------- (* submit, cancel *)
Locked == row["p"].state = "publishing" \/ row["p"].outcome = "unknown"
Submit(adopts, forced) == \* q, once p no longer holds the key
  /\ row["q"].state = "new"
  /\ IF Bug = "force_in_flight" THEN forced ELSE ~Locked
  /\ adopts => row["p"].left = "kept"
  /\ row' = [row EXCEPT !["q"].state = "publishing", !["q"].force = forced,
                        !["q"].file = IF adopts THEN "p" ELSE "q",
                        !["p"].left = IF adopts THEN "adopted" ELSE @]
  /\ NoWorld /\ UNCHANGED wk
MustEnd(p) == \* a cancel, the deadline, a budget that is used: durable, and never taken back
  /\ row[p].state = "publishing" /\ ~row[p].ends
  /\ row' = [row EXCEPT ![p].ends = TRUE]
  /\ NoWorld /\ UNCHANGED wk

------------------------------------------------------------------- (* publish *)
Begin(w) == LET p == wk[w].of IN \* the attempt is counted: refused to a worker that lost its lease
  /\ wk[w].pc = "held" /\ row[p].state = "publishing" /\ ~row[p].ends
  /\ IF Valid(w) THEN wk' = [wk EXCEPT ![w].pc = "begun", ![w].first = ~row[p].sent] ELSE Rest(w)
  /\ NoWorld /\ UNCHANGED row
Search(w) == LET p == wk[w].of
                 blind == Bug = "search_once" /\ row[p].sent IN
  /\ wk[w].pc = "begun"
  /\ CASE ~blind /\ Ours(p) -> Step(w, "found") /\ UNCHANGED row
       [] ~blind /\ ~Ours(p) /\ Tombstone(p) ->
            Rest(w) /\ row' = IF Valid(w) THEN [row EXCEPT ![p].ends = TRUE] ELSE row
       [] ~blind /\ ~Ours(p) /\ ~Tombstone(p) /\ prop # "nobody" /\ ~row[p].force ->
            Step(w, "found") /\ UNCHANGED row  \* exported already, by another process
       [] OTHER -> wk' = [wk EXCEPT ![w].pc = "staged", ![w].base = head] /\ UNCHANGED row
  /\ NoWorld
Note(w) == LET p == wk[w].of IN \* a write of the lease's holder; a terminal process refuses it
  /\ wk[w].pc = "staged"
  /\ IF (Valid(w) /\ row[p].state = "publishing") \/ Bug = "unfenced_writes"
       THEN /\ row' = IF Bug = "note_after_send" THEN row ELSE [row EXCEPT ![p].sent = TRUE]
            /\ Step(w, "noted")
       ELSE Rest(w) /\ UNCHANGED row
  /\ NoWorld
Send(w) == /\ wk[w].pc = "noted" /\ net' = net \cup {Commit(wk[w].of, wk[w].base)}
           /\ Step(w, "waiting") /\ NoTable /\ UNCHANGED <<row, env>>
Answer(w, said) == LET p == wk[w].of  r == Commit(p, wk[w].base) IN
  /\ wk[w].pc = "waiting"
  /\ CASE said = "ok" -> Landed(r)
       [] said = "conflict" -> r \in net /\ ~Holds(r)
       [] said = "refused" -> r \in net /\ ~Landed(r)  \* 401, 403: nobody tried to apply it
       [] OTHER -> TRUE                                \* a time-out, a 5xx: unknown
  /\ net' = IF said = "refused" THEN net \ {r} ELSE net
  /\ LET takesBack == said = "refused" /\ (wk[w].first \/ Bug = "refused_forgets") /\ Valid(w)
         final == said = "conflict" /\ Bug = "conflict_is_final" /\ Valid(w)
         believed == Bug = "blind_completed" /\ said \in {"ok", "unknown"}
     IN /\ row' = IF row[p].state # "publishing" THEN row
                  ELSE IF takesBack \/ final THEN [row EXCEPT ![p].sent = FALSE, ![p].ends = TRUE]
                  ELSE IF Bug = "note_after_send" /\ Valid(w) THEN [row EXCEPT ![p].sent = TRUE] ELSE row
        /\ Step(w, IF takesBack \/ final THEN "held" ELSE IF believed THEN "found" ELSE "look")
  /\ NoTable /\ UNCHANGED env
Look(w) == /\ wk[w].pc = "look"
           /\ Step(w, IF Ours(wk[w].of) THEN "found" ELSE "held")
           /\ NoWorld /\ UNCHANGED row
Complete(w) == LET p == wk[w].of IN
  /\ wk[w].pc = "found" /\ Rest(w)
  /\ row' = IF ~Valid(w) THEN row
            ELSE IF row[p].state = "publishing" THEN [row EXCEPT ![p].state = "completed"]
            ELSE IF row[p].outcome = "unknown" THEN [row EXCEPT ![p].outcome = "applied"] ELSE row
  /\ NoWorld

------------------------------------------------------------------- (* end, fence, resolve *)
Ended(p, outcome) ==
  [row EXCEPT ![p].state = IF @ = "publishing" THEN "ended" ELSE @, ![p].outcome = outcome,
              ![p].left = IF outcome = "not_applied" \/ Bug = "cleanup_on_unknown" THEN "kept" ELSE @]
End(w) == LET p == wk[w].of
              free == ~row[p].sent \/ Bug = "no_fence"
              spent == row[p].fences = MaxFences IN
  /\ wk[w].pc = "held" /\ row[p].state = "publishing" /\ row[p].ends /\ (free \/ spent)
  /\ Rest(w)
  /\ row' = IF ~Valid(w) THEN row ELSE Ended(p, IF free THEN "not_applied" ELSE "unknown")
  /\ NoWorld
Fence(w) == LET p == wk[w].of IN
  /\ wk[w].pc = "held" /\ row[p].sent /\ Bug # "no_fence"
  /\ \/ row[p].state = "publishing" /\ row[p].ends /\ row[p].fences < MaxFences
     \/ row[p].outcome = "unknown"  \* Resolve: looked for until it is known
  /\ IF Valid(w) THEN Step(w, "fence") ELSE Rest(w)
  /\ row' = IF Valid(w) /\ row[p].state = "publishing" THEN [row EXCEPT ![p].fences = @ + 1] ELSE row
  /\ NoWorld
FenceLook(w) == LET p == wk[w].of IN
  /\ wk[w].pc = "fence"
  /\ IF Ours(p) THEN Step(w, "found") /\ UNCHANGED net
     ELSE IF Fenced(p) THEN Step(w, "fenced") /\ UNCHANGED net
     ELSE Step(w, "fence sent") /\ net' = net \cup {FenceCommit(p)}
  /\ NoTable /\ UNCHANGED <<row, env>>
FenceAnswer(w, known) == \* an answer leads to another look; none, to another try
  /\ wk[w].pc = "fence sent"
  /\ known => ~\E r \in net : r.what = "fence" /\ r.of = wk[w].of /\ Holds(r)
  /\ Step(w, IF known THEN "fence" ELSE "held")
  /\ NoWorld /\ UNCHANGED row
FenceStands(w) == LET p == wk[w].of IN
  /\ wk[w].pc = "fenced" /\ Rest(w)
  /\ row' = IF Valid(w) /\ (row[p].state = "publishing" \/ row[p].outcome = "unknown")
              THEN Ended(p, "not_applied") ELSE row
  /\ NoWorld

------------------------------------------------------------------- (* undo *)
MayHavePublished(p) == row[p].state # "new" /\ ~(row[p].state = "ended" /\ row[p].outcome = "not_applied")
Adopter(p) == p = "p" /\ row["q"].file = "p"
HandBack == \* the retry that adopted the files has ended: what it did not use is p's again
  /\ row["p"].left = "adopted" /\ row["q"].state \in Terminal /\ row["q"].outcome # "unknown"
  /\ row' = [row EXCEPT !["p"].left = "kept"] /\ NoWorld /\ UNCHANGED wk
StartUndo(w) == LET p == wk[w].of IN \* compare-and-set against a retry that would adopt
  /\ wk[w].pc = "held" /\ row[p].state = "ended" /\ row[p].left \in {"kept", "undoing"}
  /\ row[p].outcome # "unknown" \/ Bug = "cleanup_on_unknown"
  /\ IF Valid(w) THEN Step(w, "undo") /\ row' = [row EXCEPT ![p].left = "undoing"]
                 ELSE Rest(w) /\ UNCHANGED row
  /\ NoWorld
Delete(w) == LET p == wk[w].of
                 used == Adopter(p) /\ MayHavePublished("q") /\ Bug # "undo_forgets_retries" IN
  /\ wk[w].pc = "undo" /\ Rest(w)
  /\ deleted' = IF used \/ (Adopter("p") /\ p = "q") THEN deleted ELSE deleted \cup {row[p].file}
  /\ row' = IF Valid(w) THEN [row EXCEPT ![p].left = "gone"] ELSE row
  /\ UNCHANGED <<snaps, head, gone, tags, prop, net, env>>
Release(w) == LET p == wk[w].of IN \* nothing is left for it to do
  /\ wk[w].pc = "held" /\ ~HasWork(p) /\ Rest(w) /\ NoWorld /\ UNCHANGED row

------------------------------------------------------------------- (* others *)
Foreign == /\ Fault /\ head' = Len(snaps) + 1
           /\ snaps' = Append(snaps, [by |-> "other", what |-> "other", parent |-> head, files |-> Files(head)])
           /\ UNCHANGED <<gone, tags, prop, net, row, wk, deleted>>
Rollback == \* not promised: a rollback *and* a sweep of the tag that stands for what was rolled back
  /\ head # 0 /\ snaps[head].parent \notin gone /\ env.faults < MaxFaults
  /\ ~env.swept \/ Bug = "rollback_and_sweep"
  /\ head' = snaps[head].parent /\ env' = [env EXCEPT !.faults = @ + 1, !.rolled = TRUE]
  /\ UNCHANGED <<snaps, gone, tags, prop, net, row, wk, deleted>>
SweepTag(p) ==
  /\ tags[p] # 0 /\ env.faults < MaxFaults /\ (~env.rolled \/ Bug = "rollback_and_sweep")
  /\ tags' = [tags EXCEPT ![p] = 0] /\ env' = [env EXCEPT !.faults = @ + 1, !.swept = TRUE]
  /\ UNCHANGED <<snaps, head, gone, prop, net, row, wk, deleted>>
Expire(i) == /\ i \in There /\ i # head /\ ~\E p \in Procs : tags[p] = i
             /\ Fault /\ gone' = gone \cup {i}
             /\ UNCHANGED <<snaps, head, tags, prop, net, row, wk, deleted>>

WorkerStep(w) ==
  \/ Begin(w) \/ Search(w) \/ Note(w) \/ Send(w) \/ Look(w) \/ Complete(w) \/ End(w)
  \/ Fence(w) \/ FenceLook(w) \/ FenceStands(w) \/ StartUndo(w) \/ Delete(w) \/ Release(w)
  \/ \E said \in {"ok", "conflict", "refused", "unknown"} : Answer(w, said)
  \/ \E known \in BOOLEAN : FenceAnswer(w, known)
Next == \/ \E w \in Workers : WorkerStep(w) \/ Crash(w) \/ \E p \in Procs : Take(w, p)
        \/ \E r \in net : Land(r)
        \/ \E p \in Procs : MustEnd(p) \/ SweepTag(p)
        \/ \E adopts, forced \in BOOLEAN : Submit(adopts, forced)
        \/ HandBack \/ Foreign \/ Rollback \/ \E i \in There : Expire(i)
Fair == \* workers go on, deadlines come, and a catalog that is asked again and again answers once
  /\ \A w \in Workers : WF_vars(WorkerStep(w)) /\ SF_vars(FenceAnswer(w, TRUE))
  /\ \A p \in Procs : /\ SF_vars(\E w \in Workers : Take(w, p))
                      /\ Bug = "no_deadline" \/ WF_vars(MustEnd(p))
                      /\ SF_vars(\E r \in net : r.what = "fence" /\ r.of = p /\ Land(r))
Spec == Init /\ [][Next]_vars /\ Fair

Swap == Permutations(Workers)

------------------------------------------------------------------- (* what is promised *)
PublishedAtMostOnce == \A p \in Procs : Cardinality({i \in Ids : IsData(i, p)}) <= 1
RowsOnce == Cardinality(Files(head)) <= 1
CompletedIsPublished == \A p \in Procs : row[p].state = "completed" => prop # "nobody"
NotAppliedIsTrue == \A p \in Procs : row[p].outcome = "not_applied" => ~\E i \in Ids : IsData(i, p)
NothingReferencedIsDeleted == \A i \in There : snaps[i].files \cap deleted = {}
TerminalIsFinal == [][\A p \in Procs : row[p].state \in Terminal => row'[p].state = row[p].state]_vars
EveryProcessEnds == \A p \in Procs : row[p].state = "publishing" ~> row[p].state \in Terminal
UnknownIsResolved == \A p \in Procs : row[p].outcome = "unknown" ~> row[p].outcome # "unknown"
=============================================================================

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts faults.cpp under an MPI launcher, lets something go wrong, and judges what every rank makes of it.

A case is SCENARIO[.PLACE][.plain]: the scenario and the place of memory as faults.cpp knows them; `plain` leaves the
launcher as everybody starts it, and asks above all that the job ends, in bounded time and not with success. Without it
the launcher is told to leave survivors alone, so that they show what they do by themselves.

Nothing that was started survives: this process adopts what its children leave behind, and ends it.

usage: run_faults.py --list                 those of scripts/test --all have " large" behind them
       run_faults.py --flavour (openmpi|mpich) --launcher FILE --program FILE CASE...
"""
import argparse
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4
CULPRIT = 2
OTHERS = [rank for rank in range(RANKS) if rank != CULPRIT]
PATIENCE = 60.0  # seconds; a case takes one to four on a machine that has nothing else to do

FAILED = r"PeerFailed .*rank 2 failed: the disk is full"
LOST = r"PeerFailed .*rank 2 failed: rank 2 (\(process \d+\) has died|has left) "
OVERDUE = r"DeadlineExceeded .*rank (\d+, )*2\b"
BAD_INPUT = {
    "before_init": r"TransportError .*not initialised.*Fix:",
    "null": r"TransportError .*MPI_COMM_NULL.*Fix:",
    "other_thread": r"TransportError .*thread.*Fix:|skipped",
    "inter": r"TransportError .*inter-communicator.*Fix:",
    "too_few_ranks": r"MeshError rank 0 of 4: .*has rank 7, the communicator only 4 ranks.*Fix:",
    "other_world": r"MeshError rank 0 of 4: .*has rank 7, the communicator only 4 ranks.*Fix:",
    "cast": r"DTypeError rank 0 of 4: .*a factor of 0.5 from I32 to F32.*Fix:",
    "split_axis": r"MeshError .*axis 2 of a mesh with 2 axes.*Fix:",
    "split_mesh": r"MeshError .*rank 4 but the communicator has 4 ranks.*Fix:",
    "peer": r"TransportError .*Fix:",
    "after_finalize": r"TransportError .*finalised.*Fix:",
    "used_after_finalize": r"TransportError .*finalised.*Fix:",
    "split_after_finalize": r"TransportError .*finalised.*Fix:",
}


class Wanted:
    """What each rank must have written: `outcome` by rank (None: it may have died), and lines that must be there."""

    def __init__(self, others, culprit=None, lines=(), stays=False, healthy=False, said=r".*\brank 2\b"):
        self.outcome = {rank: others for rank in OTHERS}
        self.outcome[CULPRIT] = culprit
        self.lines = lines      # of every rank but the culprit
        self.stays = stays      # the culprit does not end by itself
        self.healthy = healthy  # the job succeeds
        self.said = said        # what the user reads, once, whoever lives to tell it


UNTOUCHED = r"note source untouched"
SAME = r"later PeerFailed .*rank 2"
SCENARIOS = {
    "healthy": Wanted("none", "none", ["finalize", "returned 0"], healthy=True),
    "fork": Wanted("none", "none", ["finalize", "returned 0"], healthy=True),
    "throw": Wanted(FAILED, "exception the disk is full", [UNTOUCHED, SAME]),
    "throw_in_agree": Wanted("PeerFailed .*rank 2 failed: reshard: no such file", "Error reshard: no such file"),
    "throw_in_child": Wanted(FAILED, "exception the disk is full"),
    "wrong_shape": Wanted(*2 * [r"BufferError rank 2 of 4: .*\[1024,7\].*Fix:"]),
    "other_plan": Wanted(*2 * ["MismatchError rank 2 of 4: .*but rank 0 .*Fix:"]),
    "out_of_memory": Wanted(*2 * ["OutOfMemory rank 2 of 4: .*out of memory.*Fix:"],
                            ["note destination untouched", "note second try worked"]),
    "payloads_differ": Wanted("PeerFailed .*rank [12]",
                              "MismatchError .*rank 1 sends 4088 bytes, rank 2 expects 4096 bytes.*Fix:"),
    "other_call": Wanted(*2 * ["MismatchError .*agree.*exchange.*Fix:|MismatchError .*exchange.*agree.*Fix:"]),
    "exit": Wanted(LOST, None, [UNTOUCHED, SAME]),
    "kill": Wanted(LOST, None, [UNTOUCHED, SAME]),
    "kill_before_agree": Wanted(LOST),
    "kill_at_the_end": Wanted("none", said=r".*: rank 2 \(process \d+\) has died"),
    "kill_and_hush": Wanted("none", None, ["note hushed"], said=r".*: rank 2 \(process \d+\) has died"),
    "kill_in_agree": Wanted(LOST),
    "kill_in_verdict": Wanted(LOST),
    "kill_in_exchange": Wanted(LOST),
    "stop": Wanted(OVERDUE, None, [UNTOUCHED, SAME], stays=True),
    "slow_copy": Wanted("none", "none", ["finalize", "returned 0"], healthy=True),
    "kill_in_copy": Wanted(LOST),
    "stop_behind_others": Wanted(OVERDUE, None, stays=True),
    "stop_in_copy": Wanted(OVERDUE, None, stays=True),
    "stop_in_agree": Wanted(r"DeadlineExceeded .* in agree for rank 2 \(", None, stays=True),
    "stop_in_message": Wanted("(PeerFailed|DeadlineExceeded) ", "(PeerFailed|DeadlineExceeded) ",
                              ["note memory was as it was said to be"], said=""),
    # That the job ends with a word, and by no signal, is what counts.
    "stop_and_free": Wanted("(PeerFailed|DeadlineExceeded) ", "(PeerFailed|DeadlineExceeded) ", said=""),
    "late": Wanted("(PeerFailed|DeadlineExceeded) ", "PeerFailed", [UNTOUCHED]),
    "absent": Wanted(OVERDUE, "PeerFailed", [UNTOUCHED]),
    "absent_from_prepare": Wanted(OVERDUE, "PeerFailed"),
    "absent_from_split": Wanted(OVERDUE, "PeerFailed"),
    "absent_from_child": Wanted(r"(DeadlineExceeded|PeerFailed) .* in agree for rank 2\. Fix", "PeerFailed"),
    "absent_while_others_copy": Wanted(OVERDUE, "PeerFailed"),
    "return_early": Wanted(LOST, "none", stays=True),
    "dropped": Wanted("PeerFailed .*rank 2 failed: enough", "PeerFailed", ["note dropped"]),
    "dropped_overdue": Wanted("(PeerFailed|DeadlineExceeded) .*rank 2", "PeerFailed", ["note dropped"]),
    "interrupt_at_the_end": Wanted("PeerFailed .*rank 2 failed: .*interrupted\\(\\) of its options", "none"),
    "bad_input": None,
}
SCENARIOS["payloads_differ"].outcome[1] = SCENARIOS["payloads_differ"].outcome[CULPRIT]
for busy in (1, 3):  # who is between two of its copies does not wait
    SCENARIOS["absent_while_others_copy"].outcome[busy] = r"(DeadlineExceeded|PeerFailed) .*rank (\d+, )*2\b"
# Ranks that share nothing cannot tell who has died or left; but who does not answer is named.
LOST_APART = r"(PeerFailed|DeadlineExceeded|TransportError) .*rank (\d+, )*2\b"
APART = {
    "exit": Wanted(LOST_APART, None, [UNTOUCHED]),
    "kill_before_agree": Wanted("DeadlineExceeded .* in agree for rank 2\\."),
    "kill_in_agree": Wanted(LOST_APART),
    "kill_in_exchange": Wanted(LOST_APART),
    "return_early": Wanted(LOST_APART, "none", stays=True),
    "other_call": Wanted(*2 * ["(MismatchError|DeadlineExceeded|PeerFailed) "]),
    "kill": Wanted(LOST_APART, None, [UNTOUCHED]),
    "stop": Wanted(OVERDUE, None, [UNTOUCHED], stays=True),
    "stop_behind_others": Wanted("DeadlineExceeded .* in exchange for rank 2\\.", None, stays=True),
    "absent": Wanted(LOST_APART, "PeerFailed", [UNTOUCHED]),
    "absent_from_prepare": Wanted(r"DeadlineExceeded .* in agree for rank 2\.", "PeerFailed .*rank 2 failed"),
}
CASES = [
    "healthy", "bad_input", "fork",
    "throw", "throw.messages", "throw.apart", "throw_in_agree", "throw_in_child",
    "wrong_shape", "other_plan", "out_of_memory",
    "payloads_differ", "payloads_differ.shared", "payloads_differ.apart", "other_call", "other_call.apart",
    "exit", "kill", "kill.messages", "kill.shared", "kill.apart", "kill_before_agree", "kill_before_agree.apart",
    "kill_at_the_end", "kill_and_hush", "kill_in_agree", "kill_in_verdict",
    "kill_in_exchange", "kill_in_exchange.messages", "kill_in_exchange.shared",
    "stop", "stop.messages", "stop.shared", "stop_in_agree", "slow_copy", "kill_in_copy", "stop_in_copy",
    "stop_behind_others.apart", "stop_in_message.apart", "stop_and_free.apart",
    "late.apart", "absent", "absent.apart", "absent_from_prepare", "absent_from_split", "absent_from_child",
    "absent_while_others_copy",
    "return_early",
    "dropped", "dropped.messages", "dropped_overdue", "interrupt_at_the_end",
    "throw.plain", "exit.plain", "kill.plain", "stop.plain", "absent.plain",
]
LARGE = [  # only with scripts/test --all
    "throw_in_agree.apart", "throw_in_child.apart", "wrong_shape.apart", "other_plan.apart", "exit.apart",
    "kill_in_agree.apart", "kill_in_exchange.apart", "stop.apart", "absent_from_prepare.apart", "return_early.apart",
    "dropped.apart",
]


# ---- Processes ---------------------------------------------------------------------------------------------------

def adopt_orphans():
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def status_of(pid):
    """(state, parent), or None when there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1])


def is_alive(pid):
    status = status_of(pid)
    return status is not None and status[0] not in "ZX"


def descendants():
    children = {}
    for entry in os.listdir("/proc"):
        status = status_of(entry) if entry.isdigit() else None
        if status is not None:
            children.setdefault(status[1], []).append(int(entry))
    found = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def end_everything():
    """Kills and reaps until this process has no child left."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)
    raise SystemExit("run_faults: processes are left that cannot be ended")


# ---- One case ----------------------------------------------------------------------------------------------------

def command_of(arguments, case, folder):
    parts = case.split(".")
    plain = "plain" in parts
    place = next((part for part in parts[1:] if part != "plain"), "default")
    command = [arguments.launcher]
    if arguments.flavour == "openmpi":
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        command += ["--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "pml", "ob1",
                    "--mca", "mpi_yield_when_idle", "1"]
        if parts[0] == "stop_in_message":  # else the receiver fetches by itself what the sender has announced
            command += ["--mca", "btl_vader_single_copy_mechanism", "none"]
        if not plain:
            command.append("--enable-recovery")
    elif not plain:
        command.append("-disable-auto-cleanup")
    rank = [arguments.program, parts[0], str(folder), place]
    if arguments.flavour == "mpich" and not plain:
        # Hydra 4.0 ends the survivors of a signal whatever it is told; so it does not learn of one.
        rank = ["sh", "-c", '"$@"; code=$?; if [ $code -gt 1 ]; then sleep 120; fi; exit $code', "sh"] + rank
    return command + ["-n", str(RANKS)] + rank, plain


class Rank:
    def __init__(self, file):
        self.pid = int(file.stem)
        self.lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        ranks = [int(line.split()[1]) for line in self.lines if line.startswith("rank ")]
        self.rank = ranks[0] if ranks else -1

    def find(self, word):
        return [line[len(word) + 1:] for line in self.lines if line.startswith(word + " ") or line == word]

    def alive(self):
        return is_alive(self.pid)


def reports(folder):
    return [Rank(file) for file in sorted(folder.glob("*.report"))]


def wait_for_end(process, folder, plain, stays):
    """Until all ranks that end by themselves have ended; `plain`: until the launcher has. False: out of patience."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        ended = process.poll() is not None
        if ended:
            return True
        ranks = reports(folder)
        known = len(ranks) == RANKS and all(rank.rank >= 0 for rank in ranks)
        if not plain and known and not any(rank.alive() for rank in ranks if not (stays and rank.rank == CULPRIT)):
            return True
        time.sleep(0.02)
    return False


def judge_bad_input(ranks, complain):
    for rank in ranks:
        said = dict(line.split(" ", 1) for line in rank.find("bad"))
        for what, pattern in BAD_INPUT.items():
            if not re.match(pattern, said.get(what, "nothing")):
                complain(f"rank {rank.rank}, {what}: '{said.get(what, 'nothing')}' is not like '{pattern}'")


def judge(wanted, ranks, plain, strict, complain):
    for rank in ranks:
        is_culprit = rank.rank == CULPRIT
        outcome = rank.find("outcome")
        pattern = wanted.outcome.get(rank.rank)
        if pattern is None and outcome and not wanted.stays:  # launchers let stopped processes go on to end them
            complain(f"rank {rank.rank} should have died, but had '{outcome[0]}'")
        if outcome and pattern is not None and not re.match(pattern, outcome[0]):
            complain(f"rank {rank.rank}: '{outcome[0]}' is not like '{pattern}'")
        if wanted.healthy and rank.find("abort"):
            complain(f"rank {rank.rank} was well and called MPI_Abort")
        if not wanted.healthy and outcome and outcome[0] != "none" and rank.find("finalize"):
            complain(f"rank {rank.rank} failed and called MPI_Finalize, where pending messages hang")
        if is_culprit or (plain and not strict):
            continue  # whether it lives to tell is up to the launcher
        if not outcome:
            complain(f"rank {rank.rank} ended without an outcome")
        for line in wanted.lines:
            if not any(re.match(line, said) for said in rank.lines):
                complain(f"rank {rank.rank} did not say '{line}'")


def run_case(arguments, case):
    """The complaints, and what everybody said."""
    complaints = []
    with tempfile.TemporaryDirectory(prefix="reshard_faults_") as name:
        folder = pathlib.Path(name)
        command, plain = command_of(arguments, case, folder)
        scenario = case.split(".")[0]
        wanted = APART.get(scenario, SCENARIOS[scenario]) if ".apart" in case else SCENARIOS[scenario]
        stays = wanted is not None and wanted.stays
        start = time.monotonic()
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True)
            try:
                in_time = wait_for_end(process, folder, plain, stays)
                seconds = time.monotonic() - start
                ranks = reports(folder)
                alive = [rank.rank for rank in ranks if rank.alive()]
                if in_time and not alive:  # nobody is left for the launcher to wait for
                    try:
                        process.wait(timeout=20)
                    except subprocess.TimeoutExpired:
                        complaints.append("the launcher does not end although every rank has")
                status = process.poll()
            finally:
                end_everything()
        ranks = reports(folder)
        if not in_time:
            complaints.append(f"after {PATIENCE:.0f} s rank {alive} still ran, the launcher's status was {status}")
        if len(ranks) != RANKS:
            complaints.append(f"{len(ranks)} of {RANKS} ranks reported")
        healthy = wanted is None or wanted.healthy
        if healthy and status != 0:
            complaints.append(f"the job was well, but ended with {status}")
        # Open MPI takes a job for a success whose losses it was asked to recover from.
        if plain and status in (None, 0):
            complaints.append(f"the job failed, but ended with {status}")
        if wanted is None:
            judge_bad_input(ranks, complaints.append)
        else:
            judge(wanted, ranks, plain, scenario == "throw", complaints.append)
        said = [f"rank {rank.rank}: {line}" for rank in ranks for line in rank.lines]
        output = (folder / "output").read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in output if line.startswith("reshard: ")]
        most = RANKS if ".apart" in case and scenario not in APART else 1  # nodes that fail at once all say so
        if not healthy and not plain and not (
                1 <= len(told) <= most and all(re.match(wanted.said, line) for line in told)):
            complaints.append(f"the user was told {len(told)} times, not once in words like '{wanted.said}'")
    return complaints, said + output[-40:], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--flavour", choices=["openmpi", "mpich"])
    parser.add_argument("--launcher")
    parser.add_argument("--program")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES + [f"{case} large" for case in LARGE]))
        return 0
    unknown = [case for case in arguments.cases if case not in CASES + LARGE]
    if unknown or not arguments.cases or None in (arguments.flavour, arguments.launcher, arguments.program):
        parser.error(f"no such case: {' '.join(unknown)}" if unknown else "say what to run")
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: (end_everything(), os._exit(1)))
    failed = 0
    for case in arguments.cases:
        complaints, said, seconds = run_case(arguments, case)
        print(f"{case}: {'FAILED' if complaints else 'ok'} ({seconds:.1f} s)", flush=True)
        for line in complaints + (said if complaints or arguments.verbose else []):
            print(f"    {line}", flush=True)
        failed += bool(complaints)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
